//===- BulkCopyTest.cpp - cp.async.bulk and tensor maps -------------------===//

#include "AsyncHarness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

namespace {

std::vector<uint8_t> countedWords(size_t count) {
  std::vector<uint32_t> words;
  for (size_t index = 0; index < count; ++index)
    words.push_back(uint32_t(index * 2654435761u));
  return rawBytes(words);
}

/// Byte of a tile in shared memory at which byte `column` of row `row` is, for rows of `span` bytes: 16-byte chunks are
/// exchanged by the number of the row (PTX ISA, figures of the swizzling modes).
uint32_t tileByte(uint32_t row, uint32_t column, uint32_t span, TensorSwizzle swizzle) {
  uint32_t chunk = column / 16;
  switch (swizzle) {
  case TensorSwizzle::None:
    break;
  case TensorSwizzle::Bytes32:
    chunk ^= row / 4 % 2;
    break;
  case TensorSwizzle::Bytes64:
    chunk ^= row / 2 % 4;
    break;
  case TensorSwizzle::Bytes128:
    chunk ^= row % 8;
    break;
  }
  return row * span + chunk * 16 + column % 16;
}

/// A tensor in global memory, without gaps between rows except to a multiple of 16 bytes.
struct Problem {
  TiledTensor tensor;
  unsigned element;
  std::vector<int> coordinates;

  uint64_t bytes() const {
    return tensor.extents[tensor.rank - 1] * (tensor.rank > 1 ? tensor.strides[tensor.rank - 2] : element);
  }
  uint32_t rowBytes() const { return tensor.box[0] * element; }
  uint32_t numRows() const {
    uint32_t rows = 1;
    for (unsigned index = 1; index < tensor.rank; ++index)
      rows *= (tensor.box[index] + tensor.elementStrides[index] - 1) / tensor.elementStrides[index];
    return rows;
  }
  /// Offset in global memory of an element of a row of the box, or nullopt outside of the tensor.
  std::optional<uint64_t> source(uint32_t row, uint32_t column) const {
    int64_t at = coordinates[0] + int64_t(column);
    if (at < 0 || at >= int64_t(tensor.extents[0]))
      return std::nullopt;
    uint64_t offset = at * element;
    for (unsigned index = 1; index < tensor.rank; ++index) {
      uint32_t count = (tensor.box[index] + tensor.elementStrides[index] - 1) / tensor.elementStrides[index];
      int64_t position = coordinates[index] + int64_t(row % count) * tensor.elementStrides[index];
      if (position < 0 || position >= int64_t(tensor.extents[index]))
        return std::nullopt;
      offset += position * tensor.strides[index - 1];
      row /= count;
    }
    return offset;
  }
  std::string place() const {
    std::string text = "[%map, {";
    for (int coordinate : coordinates)
      text += std::to_string(coordinate) + ", ";
    text.resize(text.size() - 2);
    return text + "}]";
  }
  std::string rank() const { return std::to_string(tensor.rank) + "d"; }
};

Problem problem(std::vector<uint64_t> extents, std::vector<uint32_t> box, std::vector<int> coordinates,
                TensorType type = TensorType::BF16, TensorSwizzle swizzle = TensorSwizzle::None) {
  constexpr unsigned sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  Problem problem{{}, sizes[unsigned(type)], std::move(coordinates)};
  TiledTensor &tensor = problem.tensor;
  tensor.type = type, tensor.rank = extents.size(), tensor.swizzle = swizzle;
  uint64_t stride = (extents[0] * problem.element + 15) / 16 * 16;
  for (unsigned index = 0; index < tensor.rank; ++index) {
    tensor.extents[index] = extents[index], tensor.box[index] = box[index];
    if (index + 1 < tensor.rank)
      tensor.strides[index] = stride, stride *= extents[index + 1];
  }
  return problem;
}

/// Loads the box at %smem + 1024.
std::string load(const Problem &problem, uint32_t bytes) {
  return initialised(1) + "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem], " + std::to_string(bytes) +
         ";\n@%p0 cp.async.bulk.tensor." + problem.rank() +
         ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], " + problem.place() + ", [%smem];\n";
}
const std::string at1024 = "add.u32 %r0, %smem, 1024;\n";

AsyncCase loadCase(const Problem &problem) {
  uint32_t bytes = problem.rowBytes() * problem.numRows();
  AsyncCase test{at1024 + load(problem, bytes) + waited(0) + copiedOut(bytes, 1024, 32)};
  test.input = countedWords((problem.bytes() + 3) / 4);
  test.outputBytes = bytes;
  test.tensor = problem.tensor;
  test.sharedBytes = 1024 + bytes;
  return test;
}

} // namespace

TEST(TensorCopy, LoadsBoxesOfAllRanksTypesAndSwizzles) {
  using S = TensorSwizzle;
  std::vector<Problem> problems = {problem({100}, {64}, {16}),
                                   problem({100}, {64}, {-8}),
                                   problem({100}, {64}, {90}),
                                   problem({40, 20}, {32, 8}, {3, 5}),
                                   problem({40, 20}, {32, 8}, {30, 15}),
                                   problem({40, 20}, {32, 8}, {-5, -3}),
                                   problem({40, 20}, {32, 8}, {100, 0}),
                                   problem({24, 6, 5}, {16, 4, 3}, {-3, 4, 3}, TensorType::F32),
                                   problem({16, 3, 4, 5}, {8, 2, 3, 2}, {12, -1, 2, 4}, TensorType::U16),
                                   problem({16, 3, 4, 5, 2}, {16, 2, 2, 2, 2}, {-1, 2, 3, -1, 1}, TensorType::U8),
                                   problem({12, 9}, {4, 8}, {5, 3}, TensorType::U64),
                                   problem({90, 30}, {64, 16}, {20, 20}, TensorType::BF16, S::Bytes128),
                                   problem({90, 30}, {32, 24}, {-4, -4}, TensorType::F16, S::Bytes64),
                                   problem({90, 30}, {16, 24}, {80, 2}, TensorType::BF16, S::Bytes32),
                                   problem({90, 30, 3}, {32, 8, 2}, {8, 28, 1}, TensorType::F32, S::Bytes128),
                                   problem({90, 30}, {128, 8}, {0, 0}, TensorType::U8, S::Bytes128)};
  Problem strided = problem({90, 30}, {64, 15}, {1, 2}, TensorType::BF16, S::Bytes128);
  strided.tensor.elementStrides[1] = 2;
  problems.push_back(strided);
  for (const Problem &one : problems) {
    AsyncCase test = loadCase(one);
    std::vector<uint8_t> expected(test.outputBytes), output = asyncOutput(test);
    for (uint32_t row = 0; row < one.numRows(); ++row)
      for (uint32_t column = 0; column < one.tensor.box[0]; ++column)
        for (unsigned byte = 0; byte < one.element; ++byte)
          if (auto from = one.source(row, column))
            expected[tileByte(row, column * one.element + byte, one.rowBytes(), one.tensor.swizzle)] =
                test.input[*from + byte];
    EXPECT_EQ(output, expected) << one.place() << " swizzle " << unsigned(one.tensor.swizzle);
  }
}

TEST(TensorCopy, StoresBoxesWithinTheTensor) {
  using S = TensorSwizzle;
  for (const Problem &one : {problem({40, 20}, {32, 8}, {3, 5}), problem({40, 20}, {32, 8}, {30, 15}),
                             problem({24, 6, 5}, {16, 4, 3}, {20, 4, 3}, TensorType::F32),
                             problem({90, 30}, {64, 16}, {20, 20}, TensorType::BF16, S::Bytes128),
                             problem({90, 30}, {32, 24}, {70, 4}, TensorType::BF16, S::Bytes64)}) {
    // Word i of the tile is 3 i.
    uint32_t bytes = one.rowBytes() * one.numRows();
    AsyncCase test{
        "mov.u32 %r0, %thread;\nfill:\nshl.b32 %r1, %r0, 2;\nadd.u32 %r1, %r1, %smem;\nmul.lo.u32 %r2, %r0, 3;\n"
        "st.shared.b32 [%r1+1024], %r2;\nadd.u32 %r0, %r0, 32;\nsetp.lt.u32 %p1, %r0, " +
        std::to_string(bytes / 4) + ";\n@%p1 bra fill;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n" + at1024 +
        "setp.eq.u32 %p0, %thread, 0;\n@%p0 cp.async.bulk.tensor." + one.rank() +
        ".global.shared::cta.tile.bulk_group " + one.place() +
        ", [%r0];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"};
    test.outputBytes = one.bytes();
    test.clearOutput = true;
    test.tensor = one.tensor, test.mapsOutput = true;
    test.sharedBytes = 1024 + bytes;
    std::vector<uint8_t> expected(test.outputBytes), output = asyncOutput(test);
    for (uint32_t row = 0; row < one.numRows(); ++row)
      for (uint32_t column = 0; column < one.tensor.box[0]; ++column)
        for (unsigned byte = 0; byte < one.element; ++byte)
          if (auto to = one.source(row, column)) {
            uint32_t at = tileByte(row, column * one.element + byte, one.rowBytes(), one.tensor.swizzle);
            expected[*to + byte] = uint8_t((3 * (at / 4)) >> (8 * (at % 4)));
          }
    EXPECT_EQ(output, expected) << one.place();
  }
}

TEST(TensorCopy, ReducesInTheTypeOfTheTensor) {
  Problem one = problem({8, 4}, {8, 4}, {0, 0}, TensorType::F32);
  AsyncCase test{
      "shl.b32 %r1, %thread, 2;\nadd.u32 %r1, %r1, %smem;\ncvt.rn.f32.u32 %r2, %thread;\nst.shared.b32 [%r1], %r2;\n"
      "fence.proxy.async;\nbar.sync 0;\nsetp.eq.u32 %p0, %thread, 0;\n@!%p0 bra end;\n"
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%map, {0, 1}], [%smem];\n"
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%map, {0, 0}], [%smem];\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nend:\n"};
  test.outputBytes = one.bytes();
  test.clearOutput = true;
  test.tensor = one.tensor, test.mapsOutput = true;
  std::vector<uint8_t> output = asyncOutput(test);
  std::vector<float> expected;
  for (int index = 0; index < 32; ++index)
    expected.push_back(float(index + (index >= 8 ? index - 8 : 0)));
  EXPECT_EQ(output, rawBytes(expected));
}

TEST(TensorCopy, AddressesAreChecked) {
  Problem one = problem({90, 30}, {64, 16}, {0, 0}, TensorType::BF16, TensorSwizzle::Bytes128);
  auto kindAt = [&](const std::string &address, const Problem &of) {
    AsyncCase test = loadCase(of);
    test.sharedBytes += 2048;
    test.body = address + load(of, 2048) + waited(0);
    return asyncFinding(test).kind;
  };
  EXPECT_EQ(kindAt("add.u32 %r0, %smem, 1152;\n", one), FindingKind::Misaligned);
  EXPECT_EQ(kindAt("add.u32 %r0, %smem, 1536;\n", one), FindingKind::Misaligned);
  one.tensor.swizzle = TensorSwizzle::None;
  EXPECT_EQ(kindAt("add.u32 %r0, %smem, 1040;\n", one), FindingKind::Misaligned);
  EXPECT_EQ(kindAt("add.u32 %r0, %smem, 4096;\n", one), FindingKind::OutOfBounds);
  Problem narrow = problem({90, 30}, {32, 16}, {0, 0}, TensorType::BF16, TensorSwizzle::Bytes128);
  EXPECT_EQ(kindAt(at1024, narrow), FindingKind::Unsupported);
  // The tensor is larger than its memory.
  AsyncCase test = loadCase(one);
  test.input.resize(1000);
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::OutOfBounds);
  // No map, a map of another rank, a misaligned map, a map in other memory.
  test = loadCase(one);
  test.tensor.reset();
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::BadOperand);
  test = loadCase(problem({90}, {64}, {0}));
  test.tensor = one.tensor;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::BadOperand);
  test = loadCase(one);
  test.body.insert(0, "add.s64 %map, %map, 16;\n");
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Misaligned);
  // Stores start within the tensor.
  test = loadCase(one);
  test.body =
      "setp.eq.u32 %p0, %thread, 0;\n@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {-1, 0}], "
      "[%smem];\n";
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::BadOperand);
}

TEST(TensorMap, ArgumentsAreCheckedAsByTheDriver) {
  TiledTensor good;
  good.rank = 3;
  good.extents = {100, 50, 20}, good.strides = {208, 10400}, good.box = {64, 8, 2};
  EXPECT_TRUE(std::holds_alternative<TensorMap>(encodeTiled(good)));
  auto refused = [&](auto change) {
    TiledTensor tensor = good;
    change(tensor);
    auto made = encodeTiled(tensor);
    return std::holds_alternative<std::string>(made);
  };
  using T = TiledTensor;
  EXPECT_TRUE(refused([](T &t) { t.rank = 0; }));
  EXPECT_TRUE(refused([](T &t) { t.rank = 6; }));
  EXPECT_TRUE(refused([](T &t) { t.address = 8; }));
  EXPECT_TRUE(refused([](T &t) { t.extents[1] = 0; }));
  EXPECT_TRUE(refused([](T &t) { t.extents[1] = (uint64_t(1) << 32) + 1; }));
  EXPECT_FALSE(refused([](T &t) { t.extents[1] = uint64_t(1) << 32; }));
  EXPECT_TRUE(refused([](T &t) { t.strides[0] = 200; }));
  EXPECT_TRUE(refused([](T &t) { t.strides[1] = uint64_t(1) << 40; }));
  EXPECT_FALSE(refused([](T &t) { t.strides[1] = (uint64_t(1) << 40) - 16; }));
  EXPECT_TRUE(refused([](T &t) { t.box[2] = 0; }));
  EXPECT_TRUE(refused([](T &t) { t.box[1] = 257; }));
  EXPECT_FALSE(refused([](T &t) { t.box[1] = 256; }));
  EXPECT_TRUE(refused([](T &t) { t.box[0] = 60; }));
  EXPECT_TRUE(refused([](T &t) { t.elementStrides[1] = 0; }));
  EXPECT_TRUE(refused([](T &t) { t.elementStrides[1] = 9; }));
  EXPECT_FALSE(refused([](T &t) { t.swizzle = TensorSwizzle::Bytes128; }));
  EXPECT_TRUE(refused([](T &t) { t.swizzle = TensorSwizzle::Bytes64; }));
  EXPECT_TRUE(refused([](T &t) { t.type = TensorType(10); }));
}

// --- copies of contiguous bytes -------------------------------------------------------------------------------------

namespace {

std::string bulkLoad(unsigned bytes, const std::string &to = "[%smem+1024]", const std::string &from = "[%in]") {
  return "mov.u32 %r5, " + std::to_string(bytes) +
         ";\n@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " + to + ", " + from +
         ", %r5, [%smem];\n";
}
std::string expected(unsigned bytes) {
  return "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem], " + std::to_string(bytes) + ";\n";
}
const std::string store = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%smem+1024], 128;\n",
                  commit = "@%p0 cp.async.bulk.commit_group;\n", waitAll = "@%p0 cp.async.bulk.wait_group 0;\n";
/// Thread t writes t to word t of %smem + 1024.
const std::string filled = "setp.eq.u32 %p0, %thread, 0;\nshl.b32 %r1, %thread, 2;\nadd.u32 %r1, %r1, %smem;\n"
                           "st.shared.b32 [%r1+1024], %thread;\n";
const std::string fenced = "fence.proxy.async.shared::cta;\nbar.sync 0;\n";

AsyncCase copyCase(const std::string &body) {
  AsyncCase test{body};
  test.input = countedWords(64);
  test.outputBytes = 128;
  test.clearOutput = true;
  return test;
}

} // namespace

TEST(BulkCopy, CopiesBothWays) {
  AsyncCase test = copyCase(initialised(1) + expected(128) + bulkLoad(128) + waited(0) + "bar.sync 0;\n" +
                            "fence.proxy.async;\n" + store + commit + waitAll);
  EXPECT_EQ(asyncOutput(test), std::vector<uint8_t>(test.input.begin(), test.input.begin() + 128));
}

TEST(BulkCopy, SizesAndAddressesAreChecked) {
  for (auto [copy, kind] : {std::pair(bulkLoad(24), FindingKind::BadOperand),
                            {bulkLoad(0), FindingKind::BadOperand},
                            {bulkLoad(32, "[%smem+1032]"), FindingKind::Misaligned},
                            {bulkLoad(32, "[%smem+1024]", "[%in+8]"), FindingKind::Misaligned},
                            {bulkLoad(272), FindingKind::OutOfBounds},
                            {bulkLoad(32, "[%smem+8176]"), FindingKind::OutOfBounds}})
    EXPECT_EQ(asyncFinding(copyCase(initialised(1) + expected(32) + copy + waited(0))).kind, kind) << copy;
}

TEST(BulkCopy, LoadsMustBeWaitedFor) {
  std::string read = "ld.shared.b32 %r0, [%smem+1024];\n", begin = initialised(1) + expected(128) + bulkLoad(128);
  EXPECT_EQ(asyncFinding(copyCase(begin + read + waited(0))).kind, FindingKind::Race);
  EXPECT_EQ(asyncFinding(copyCase(begin + "@%p0 st.shared.b32 [%smem+1036], 1;\n" + waited(0))).kind,
            FindingKind::Race);
  EXPECT_EQ(asyncFinding(copyCase(begin)).kind, FindingKind::Unwaited);
  EXPECT_TRUE(runAsync(copyCase(begin + waited(0) + read)).report);
  // Neither a wait for the phase before nor that of another warp suffices.
  AsyncCase late = copyCase(begin + waited(1) + read);
  late.async = AsyncMode::Late;
  EXPECT_EQ(runAsync(late).report.finding->kind, FindingKind::Race);
  AsyncCase test = copyCase(begin + "setp.eq.u32 %p1, %warp, 0;\n@!%p1 bra other;\n" + waited(0) +
                            "bra end;\nother:\n" + read + "end:\n");
  test.threads = 64;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Race);
}

TEST(BulkCopy, LoadsFollowEarlierAccesses) {
  std::string load = expected(128) + bulkLoad(128) + waited(0);
  // A write needs a proxy fence and a barrier; a read only a barrier.
  EXPECT_EQ(asyncFinding(copyCase(initialised(1) + filled + load)).kind, FindingKind::Race);
  EXPECT_EQ(asyncFinding(copyCase(initialised(1) + filled + "bar.sync 0;\n" + load)).kind, FindingKind::Race);
  EXPECT_EQ(asyncFinding(copyCase(initialised(1) + filled + "fence.proxy.async;\n" + load)).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(copyCase(initialised(1) + filled + fenced + load)).report);
  EXPECT_TRUE(runAsync(copyCase(initialised(1) + filled + "bar.sync 0;\nfence.proxy.async;\n" + load)).report);
  EXPECT_TRUE(
      runAsync(copyCase(initialised(1) + filled + fenced + "ld.shared.b32 %r2, [%r1+1024];\nbar.sync 0;\n" + load))
          .report);
  EXPECT_EQ(asyncFinding(copyCase(initialised(1) + filled + fenced + "ld.shared.b32 %r2, [%r1+1024];\n" + load)).kind,
            FindingKind::Race);
  // Warp 1 has read, and warp 2 after it; only warp 2 is ordered before the load.
  auto readers = [&](const std::string &barrier) {
    std::string read = "ld.shared.b32 %r2, [%smem+1024];\n";
    AsyncCase test = copyCase(initialised(1) + filled + fenced + "setp.eq.u32 %p1, %warp, 0;\n@%p1 bra copy;\n" +
                              "setp.eq.u32 %p2, %warp, 2;\n@%p2 bra second;\n" + read + barrier +
                              "bra end;\nsecond:\nbar.warp.sync -1;\n" + read +
                              "bar.sync 1, 64;\nbra end;\ncopy:\nbar.sync 1, 64;\n" + barrier + load + "end:\n");
    test.threads = 96;
    return test;
  };
  EXPECT_EQ(asyncFinding(readers("")).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(readers("bar.sync 2, 64;\n")).report);
  // The destination of a cp.async that the thread has not waited for.
  const std::string copy = "cp.async.ca.shared.global [%smem+1024], [%in], 16;\n", wait = "cp.async.wait_all;\n";
  const std::string fence = "fence.proxy.async;\n", start = initialised(1) + "@!%p0 bra end;\n";
  EXPECT_EQ(asyncFinding(copyCase(start + copy + fence + load + wait + "end:\n")).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(copyCase(start + copy + wait + fence + load + "end:\n")).report);
  // Two loads of the same bytes.
  EXPECT_EQ(asyncFinding(copyCase(initialised(1) + expected(256) + bulkLoad(128) + bulkLoad(128) + waited(0))).kind,
            FindingKind::Race);
}

TEST(BulkCopy, LoadsReplaceEarlierWrites) {
  // Warp 0 writes, warp 1 copies over it, and warp 2, which expects the bytes, knows of the write through the copy
  // only.
  AsyncCase test = copyCase(initialised(1) + "setp.eq.u32 %p1, %warp, 2;\n@%p1 bra reader;\n" + filled +
                            "setp.eq.u32 " + "%p0, %thread, 32;\nfence.proxy.async;\nbar.sync 1, 64;\n" +
                            bulkLoad(128) + "bra end;\nreader:\nsetp.eq.u32 %p0, %lane, 0;\n" + expected(128) +
                            waited(0) + "ld.shared.b32 %r2, [%smem+1028];\n@%p0 st.global.b32 [%out], %r2;\nend:\n");
  test.threads = 96;
  std::vector<uint8_t> output = asyncOutput(test);
  EXPECT_TRUE(std::equal(output.begin(), output.begin() + 4, test.input.begin() + 4));
}

TEST(BulkCopy, ExpectedBytesMustArrive) {
  EXPECT_EQ(asyncFinding(copyCase(initialised(1) + expected(144) + bulkLoad(128) + waited(0))).kind,
            FindingKind::Deadlock);
  // One of two copies completes after the phase, which the last one of them may be.
  AsyncCase test = copyCase(initialised(1) + expected(64) + bulkLoad(64) + bulkLoad(64, "[%smem+1088]", "[%in+64]") +
                            waited(0) + "ld.shared.b32 %r0, [%smem+1088];");
  EXPECT_EQ(runAsync(test).report.finding->kind, FindingKind::Race);
  test.async = AsyncMode::Late;
  EXPECT_EQ(runAsync(test).report.finding->kind, FindingKind::Unwaited);
}

TEST(BulkCopy, BarriersMustBeInitialised) {
  EXPECT_EQ(asyncFinding(copyCase("setp.eq.u32 %p0, %thread, 0;\n" + bulkLoad(128))).kind, FindingKind::Uninitialised);
  EXPECT_EQ(asyncFinding(copyCase("setp.eq.u32 %p0, %thread, 0;\n@%p0 mbarrier.init.shared::cta.b64 [%smem], 1;\n" +
                                  expected(128) + bulkLoad(128)))
                .kind,
            FindingKind::Race);
  // The barrier ends before the copy.
  AsyncCase late =
      copyCase(initialised(1) + expected(128) + bulkLoad(128) + "@%p0 mbarrier.inval.shared::cta.b64 [%smem];\n");
  late.async = AsyncMode::Late;
  EXPECT_EQ(runAsync(late).report.finding->kind, FindingKind::Uninitialised);
  // A copy over the barrier itself.
  EXPECT_EQ(asyncFinding(copyCase(initialised(1) + expected(128) + bulkLoad(128, "[%smem]"))).kind, FindingKind::Race);
}

TEST(BulkCopy, StoresReadFencedBytes) {
  std::vector<uint32_t> counted;
  for (uint32_t index = 0; index < 32; ++index)
    counted.push_back(index);
  EXPECT_EQ(asyncOutput(copyCase(filled + fenced + store + commit + waitAll)), rawBytes(counted));
  EXPECT_EQ(asyncFinding(copyCase(filled + "bar.sync 0;\n" + store + commit + waitAll)).kind, FindingKind::Race);
  EXPECT_EQ(asyncFinding(copyCase(filled + "fence.proxy.async;\n" + store + commit + waitAll)).kind, FindingKind::Race);
  EXPECT_EQ(asyncFinding(copyCase(filled + "fence.proxy.async.global;\nbar.sync 0;\n" + store + commit + waitAll)).kind,
            FindingKind::Race);
  // The fence must come after the writes.
  EXPECT_EQ(asyncFinding(copyCase("fence.proxy.async;\n" + filled + "bar.sync 0;\n" + store + commit + waitAll)).kind,
            FindingKind::Race);
  EXPECT_EQ(asyncFinding(copyCase("setp.eq.u32 %p0, %thread, 0;\n" + store + commit + waitAll)).kind,
            FindingKind::Uninitialised);
  // A fence of thread 0 is no fence of the threads that have written.
  EXPECT_EQ(asyncFinding(copyCase(filled + "@%p0 fence.proxy.async;\nbar.sync 0;\n" + store + commit + waitAll)).kind,
            FindingKind::Race);
  // Nor is a fence of warp 1 that warp 0 does not know of, although it is earlier.
  AsyncCase test =
      copyCase(initialised(32, 8) + filled + "bar.sync 0;\nsetp.eq.u32 %p1, %warp, 0;\n@%p1 bra copy;\n" +
               "fence.proxy.async;\nmbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%smem+8];\nbra end;\n" + "copy:\n" +
               waited(0, 8) + "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [%smem+1152], 128;\n" + commit +
               waitAll + "end:\n");
  test.threads = 64;
  test.forPtxas = false; // .relaxed needs a later PTX version
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Race);
}

TEST(BulkCopy, StoresMustBeWaitedFor) {
  std::string begin = filled + fenced + store, again = "@%p0 st.shared.b32 [%smem+1024], 7;\n";
  EXPECT_EQ(asyncFinding(copyCase(begin)).kind, FindingKind::Unwaited);
  EXPECT_EQ(asyncFinding(copyCase(begin + waitAll)).kind, FindingKind::Unwaited);
  EXPECT_EQ(asyncFinding(copyCase(begin + commit)).kind, FindingKind::Unwaited);
  EXPECT_EQ(asyncFinding(copyCase(begin + commit + "@%p0 cp.async.bulk.wait_group 1;\n")).kind, FindingKind::Unwaited);
  EXPECT_EQ(asyncFinding(copyCase(begin + commit + again + waitAll)).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(copyCase(begin + commit + "@%p0 cp.async.bulk.wait_group.read 0;\n" + again)).report);
  // Threads 0 and 32 store the same bytes, and the wait of one says nothing of the other.
  auto twice = [&](const std::string &first, const std::string &second) {
    AsyncCase test =
        copyCase(filled + fenced + "setp.eq.u32 %p1, %warp, 1;\n" + store + commit + first + "bar.sync 0;\n" +
                 "@!%p1 bra end;\nsetp.eq.u32 %p0, %lane, 0;\nadd.s64 %out, %out, 128;\n" + store + commit + waitAll +
                 again + "end:\n" + second);
    test.threads = 64;
    test.outputBytes = 256;
    return test;
  };
  EXPECT_EQ(asyncFinding(twice("", "cp.async.bulk.wait_group 0;\n")).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(twice(waitAll, "")).report);
  // The wait of one thread says nothing to another one without a barrier.
  std::string other = "setp.eq.u32 %p1, %thread, 32;\n@%p1 st.shared.b32 [%smem+1024], 7;\n";
  AsyncCase test = copyCase(filled + fenced + store + commit + waitAll + other);
  test.threads = 64;
  test.outputBytes = 256;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Race);
  test.body = filled + fenced + store + commit + waitAll + "bar.sync 0;\n" + other;
  EXPECT_TRUE(runAsync(test).report);
}

TEST(BulkCopy, Reduces) {
  std::string begin = filled + fenced, reduce = "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.";
  for (auto [operation, value] : {std::pair("add.u32", 14u), {"max.s32", 7u}, {"min.u32", 7u}, {"or.b32", 7u}}) {
    std::string body = begin + reduce + operation + " [%out], [%smem+1024], 128;\n" + reduce + operation +
                       " [%out], [%smem+1024], 128;\n" + commit + waitAll;
    std::vector<uint8_t> output = asyncOutput(copyCase(body));
    EXPECT_EQ(output[28], std::string(operation) == "min.u32" ? 0 : value) << operation;
  }
  AsyncCase test = copyCase(begin + reduce + "add.noftz.bf16 [%out], [%smem+1024], 128;\n" + commit + waitAll);
  EXPECT_EQ(asyncOutput(test)[20], 5); // subnormal numbers are kept
  test.clearOutput = false;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Uninitialised);
}

TEST(BulkCopy, NeedsHopper) {
  for (std::string line :
       {"cp.async.bulk.commit_group;", "wgmma.fence.sync.aligned;", "setmaxnreg.dec.sync.aligned.u32 24;",
        "mbarrier.try_wait.parity.shared.b64 %p, [%r], 0;", "mbarrier.arrive.expect_tx.shared.b64 _, [%r], 0;"})
    EXPECT_EQ(
        loadFinding(header() + ".visible .entry k()\n{\n.reg .pred %p;\n.reg .b32 %r;\n" + line + "\nret;\n}\n").kind,
        FindingKind::Unsupported)
        << line;
}
