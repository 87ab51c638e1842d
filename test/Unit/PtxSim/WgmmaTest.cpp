//===- WgmmaTest.cpp - wgmma and setmaxnreg -------------------------------===//

#include "AsyncHarness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

namespace {

uint32_t asType(const std::string &type, int value) {
  uint32_t single = llvm::bit_cast<uint32_t>(float(value));
  if (type == "bf16")
    return single >> 16;
  if (value == 0)
    return 0;
  // Small integers are exact in every type.
  unsigned bias = type == "f16" ? 15 : type == "e4m3" ? 7 : 15, fraction = type == "f16" ? 10 : type == "e4m3" ? 3 : 2;
  uint32_t exponent = (single >> 23 & 0xff) - 127 + bias, width = type == "f16" ? 16 : 8;
  return (single >> 31) << (width - 1) | exponent << fraction | (single >> (23 - fraction) & ((1u << fraction) - 1));
}

/// A multiplication of small integers, 64 x k times k x n.
struct Product {
  unsigned n = 64;
  std::string typeA = "bf16", typeB = "bf16";
  unsigned spanA = 128, spanB = 128; ///< bytes of the swizzle; 16: none
  bool fromRegisters = false, transposeA = false, transposeB = false;
  int scaleA = 1, scaleB = 1;
  bool accumulates = false;

  unsigned elementBytes() const { return typeA == "bf16" || typeA == "f16" ? 2 : 1; }
  unsigned k() const { return 32 / elementBytes(); }
  int a(unsigned row, unsigned index) const { return int((row * 7 + index * 3) % 5) - 2; }
  int b(unsigned index, unsigned column) const { return int((index * 5 + column * 11 + 1) % 7) - 3; }
};

/// Where the descriptor finds its operand: rows of `span` bytes, in groups of eight. The rows go along k if
/// `transposed`, else along the other dimension. Written from the figures of the PTX ISA, with whole atoms one after
/// the other: first along the rows, then along the columns.
struct Layout {
  unsigned rows, columns, span, elementBytes; ///< in elements, as stored

  unsigned perRow() const { return span / elementBytes; }
  uint32_t atomBytes() const { return 8 * span; }
  uint32_t bytes() const { return (rows + 7) / 8 * ((columns + perRow() - 1) / perRow()) * atomBytes(); }
  uint32_t betweenRows() const { return atomBytes(); }
  uint32_t betweenColumns() const { return (rows + 7) / 8 * atomBytes(); }
  uint32_t place(unsigned row, unsigned column) const {
    uint32_t byte = column % perRow() * elementBytes, chunk = byte / 16, line = row % 8;
    chunk ^= span == 128 ? line : span == 64 ? line / 2 : span == 32 ? line / 4 : 0;
    return row / 8 * betweenRows() + column / perRow() * betweenColumns() + line * span + chunk * 16 + byte % 16;
  }
};

uint64_t descriptor(const Layout &layout, bool transposed) {
  uint64_t swizzle = layout.span == 128 ? 1 : layout.span == 64 ? 2 : layout.span == 32 ? 3 : 0;
  uint64_t leading = layout.betweenColumns(), stride = layout.betweenRows();
  // Without a swizzle, the leading offset is always that along k.
  if (!swizzle && transposed)
    std::swap(leading, stride);
  return swizzle << 62 | stride >> 4 << 32 | leading >> 4 << 16;
}

/// Fills `image` with an operand; value(outer, k).
template <typename F>
Layout fill(std::vector<uint8_t> &image, uint32_t at, const std::string &type, unsigned outer, unsigned k,
            unsigned span, bool transposed, F value) {
  unsigned bytes = type == "bf16" || type == "f16" ? 2 : 1;
  Layout layout{transposed ? k : outer, transposed ? outer : k, span, bytes};
  image.resize(at + layout.bytes());
  for (unsigned o = 0; o < outer; ++o)
    for (unsigned i = 0; i < k; ++i) {
      uint32_t bits = asType(type, value(o, i)), place = at + (transposed ? layout.place(i, o) : layout.place(o, i));
      for (unsigned byte = 0; byte < bytes; ++byte)
        image[place + byte] = uint8_t(bits >> (8 * byte));
    }
  return layout;
}

std::string registerList(const std::string &prefix, unsigned count) {
  std::string text = "{";
  for (unsigned index = 0; index < count; ++index)
    text += (index ? ", %" : "%") + prefix + std::to_string(index);
  return text + "}";
}

/// Copies %in, of `bytes`, to shared memory.
std::string copiedIn(uint32_t bytes) {
  return "shl.b32 %r0, %thread, 2;\ncopy:\ncvt.u64.u32 %l0, %r0;\nadd.s64 %l0, %l0, %in;\nld.global.b32 %r1, [%l0];\n"
         "add.u32 %r2, %smem, %r0;\nst.shared.b32 [%r2], %r1;\nadd.u32 %r0, %r0, 512;\nsetp.lt.u32 %p0, %r0, " +
         std::to_string(bytes) + ";\n@%p0 bra copy;\n";
}
const std::string fences = "fence.proxy.async.shared::cta;\nbar.sync 0;\n", fence = "wgmma.fence.sync.aligned;\n",
                  commit = "wgmma.commit_group.sync.aligned;\n", waitAll = "wgmma.wait_group.sync.aligned 0;\n";

/// The case of a product: `begin`, `multiply`, and the end that stores %d0, %d1, ... of each thread.
struct Parts {
  std::string registers, load, descriptors, zero, multiply, store;
  AsyncCase test{""};
  AsyncCase made(const std::string &body) const {
    AsyncCase made = test;
    made.body = registers + body;
    return made;
  }
  AsyncCase whole() const {
    return made(load + fences + descriptors + zero + fence + multiply + commit + waitAll + store);
  }
};

Parts partsOf(const Product &product) {
  Parts parts;
  unsigned results = product.n / 2, k = product.k();
  std::vector<uint8_t> image;
  // B first, then A, each at a multiple of 1024 bytes.
  Layout b = fill(image, 0, product.typeB, product.n, k, product.spanB, product.transposeB,
                  [&](unsigned column, unsigned index) { return product.b(index, column); });
  uint32_t atA = (image.size() + 1023) / 1024 * 1024;
  Layout a = fill(image, atA, product.typeA, 64, k, product.spanA, product.transposeA,
                  [&](unsigned row, unsigned index) { return product.a(row, index); });
  image.resize((image.size() + 1023) / 1024 * 1024);
  parts.registers = ".reg .f32 %d<" + std::to_string(results) + ">;\n.reg .b32 %f<4>;\n";
  parts.load = copiedIn(image.size());
  auto made = [&](const std::string &name, uint32_t at, uint64_t bits) {
    return "add.u32 %r0, %smem, " + std::to_string(at) + ";\nshr.u32 %r0, %r0, 4;\ncvt.u64.u32 " + name +
           ", %r0;\nor.b64 " + name + ", " + name + ", " + std::to_string(bits) + ";\n";
  };
  parts.descriptors =
      made("%l1", atA, descriptor(a, product.transposeA)) + made("%l2", 0, descriptor(b, product.transposeB));
  if (product.fromRegisters)
    // Element i of a thread, from the figure of the PTX ISA.
    for (unsigned reg = 0; reg < 4; ++reg) {
      // %r1: row, %r2: first k. Elements come from the image of A, which is not swizzled here.
      unsigned each = 4 / product.elementBytes();
      parts.descriptors +=
          "shr.u32 %r1, %lane, 2;\nand.b32 %r3, %warp, 3;\nmad.lo.u32 %r1, %r3, 16, %r1;\nadd.u32 %r1, %r1, " +
          std::to_string(reg & 1 ? 8 : 0) + ";\nand.b32 %r2, %lane, 3;\nmad.lo.u32 %r2, %r2, " + std::to_string(each) +
          ", " + std::to_string(reg & 2 ? 4 * each : 0) + ";\n";
      // A has rows of 16 bytes in groups of eight, 1024 bytes per chunk of k.
      parts.descriptors += "mul.lo.u32 %r3, %r2, " + std::to_string(product.elementBytes()) +
                           ";\nshr.u32 %r4, %r3, 4;\nand.b32 %r3, %r3, 15;\nmad.lo.u32 %r3, %r4, 1024, %r3;\n"
                           "mad.lo.u32 %r3, %r1, 16, %r3;\nadd.u32 %r3, %r3, %smem;\nld.shared.b32 %f" +
                           std::to_string(reg) + ", [%r3+" + std::to_string(atA) + "];\n";
    }
  for (unsigned index = 0; index < results; ++index)
    parts.zero += "mov.f32 %d" + std::to_string(index) + ", 0f40000000;\n"; // 2
  parts.multiply = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(product.n) + "k" + std::to_string(k) + ".f32." +
                   product.typeA + "." + product.typeB + " " + registerList("d", results) + ", " +
                   (product.fromRegisters ? registerList("f", 4) : "%l1") + ", %l2, " +
                   std::to_string(product.accumulates) + ", " + std::to_string(product.scaleA) + ", " +
                   std::to_string(product.scaleB);
  if (product.elementBytes() == 2)
    parts.multiply += (product.fromRegisters ? ""
                       : product.transposeA  ? ", 1"
                                             : ", 0") +
                      std::string(product.transposeB ? ", 1" : ", 0");
  parts.multiply += ";\n";
  parts.store = "mul.wide.u32 %l0, %thread, " + std::to_string(4 * results) + ";\nadd.s64 %l0, %l0, %out;\n";
  for (unsigned index = 0; index < results; ++index)
    parts.store += "st.global.f32 [%l0+" + std::to_string(4 * index) + "], %d" + std::to_string(index) + ";\n";
  parts.test.threads = 128;
  parts.test.input = image;
  parts.test.outputBytes = 128 * results * 4;
  parts.test.sharedBytes = image.size();
  return parts;
}

Product product(unsigned n, const std::string &type = "bf16", unsigned span = 128) {
  Product product;
  product.n = n;
  product.typeA = product.typeB = type;
  product.spanA = product.spanB = span;
  return product;
}

/// Compares all sums of a product with a plain matmul.
void expectProduct(const Product &one, MmaMode mma = MmaMode::Float) {
  Parts parts = partsOf(one);
  AsyncCase test = parts.whole();
  test.mma = mma;
  std::vector<uint8_t> output = asyncOutput(test);
  unsigned results = one.n / 2;
  for (unsigned thread = 0; thread < 128; ++thread)
    for (unsigned index = 0; index < results; ++index) {
      // The figure of the PTX ISA: pairs of columns, two rows of a warp's 16.
      unsigned row = thread / 32 * 16 + thread % 32 / 4 + (index % 4 >= 2 ? 8 : 0),
               column = index / 4 * 8 + thread % 4 * 2 + index % 2;
      int expected = one.accumulates ? 2 : 0;
      for (unsigned i = 0; i < one.k(); ++i)
        expected += one.scaleA * one.a(row, i) * one.scaleB * one.b(i, column);
      float found;
      std::memcpy(&found, output.data() + 4 * (thread * results + index), 4);
      ASSERT_EQ(found, float(expected)) << "n " << one.n << " row " << row << " column " << column << " " << one.typeA
                                        << " spans " << one.spanA << " " << one.spanB << " transposed "
                                        << one.transposeA << one.transposeB;
    }
}

Finding findingIn(const Parts &parts, const std::string &body) { return asyncFinding(parts.made(body)); }

} // namespace

TEST(Wgmma, MultipliesInAllShapes) {
  for (unsigned n = 8; n <= 256; n += n < 32 ? 8 : 56)
    expectProduct(product(n));
  expectProduct(product(256));
}

TEST(Wgmma, ReadsAllLayouts) {
  for (unsigned span : {16, 32, 64, 128})
    for (bool transposeA : {false, true})
      for (bool transposeB : {false, true}) {
        Product one = product(64, "bf16", span);
        one.transposeA = transposeA, one.transposeB = transposeB;
        expectProduct(one);
      }
  Product mixed = product(80, "f16", 64);
  mixed.spanA = 16;
  expectProduct(mixed);
  mixed.transposeB = true;
  expectProduct(mixed);
}

TEST(Wgmma, TakesAFromRegisters) {
  for (std::string type : {"f16", "bf16", "e4m3", "e5m2"}) {
    Product one = product(32, type, 32);
    one.fromRegisters = true, one.spanA = 16;
    expectProduct(one);
  }
}

TEST(Wgmma, MultipliesNarrowTypes) {
  for (auto [a, b] : {std::pair("e4m3", "e4m3"), {"e5m2", "e5m2"}, {"e4m3", "e5m2"}})
    for (unsigned span : {16, 32, 64, 128}) {
      Product one = product(48, a, span);
      one.typeB = b;
      expectProduct(one);
    }
}

TEST(Wgmma, ScalesAndAccumulates) {
  for (bool accumulates : {false, true})
    for (int scaleA : {1, -1})
      for (int scaleB : {1, -1}) {
        Product one = product(16);
        one.accumulates = accumulates, one.scaleA = scaleA, one.scaleB = scaleB;
        for (MmaMode mma : {MmaMode::Float, MmaMode::Exact, MmaMode::Hardware})
          expectProduct(one, mma);
      }
}

TEST(Wgmma, HardwareTruncatesAsMeasured) {
  // The sum starts as 2; every product is 2^-12, less than a unit in the last of 13 bits of fraction.
  Product one = product(8, "e4m3", 32);
  one.accumulates = true;
  Parts parts = partsOf(one);
  std::vector<uint8_t> &image = parts.test.input;
  std::fill(image.begin(), image.end(), 0x08); // 2^-6
  auto first = [&](MmaMode mma) {
    AsyncCase test = parts.whole();
    test.mma = mma;
    float value;
    std::memcpy(&value, asyncOutput(test).data(), 4);
    return value;
  };
  EXPECT_EQ(first(MmaMode::Exact), 2 + 32 * 0x1p-12f);
  EXPECT_EQ(first(MmaMode::Hardware), 2 + 32 * 0x1p-12f);
  std::fill(image.begin(), image.begin() + 1024, 0x04); // B: 2^-7
  EXPECT_EQ(first(MmaMode::Exact), 2 + 32 * 0x1p-13f);
  EXPECT_EQ(first(MmaMode::Hardware), 2);
}

TEST(Wgmma, SharedOperandsMustBeFencedAndOrdered) {
  Parts parts = partsOf(product(16));
  std::string rest = parts.descriptors + parts.zero + fence + parts.multiply + commit + waitAll + parts.store;
  EXPECT_EQ(findingIn(parts, parts.load + "bar.sync 0;\n" + rest).kind, FindingKind::Race);
  EXPECT_EQ(findingIn(parts, parts.load + "fence.proxy.async;\n" + rest).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(parts.made(parts.load + "bar.sync 0;\nfence.proxy.async;\n" + rest)).report);
  Finding finding = findingIn(parts, parts.descriptors + parts.zero + fence + parts.multiply);
  EXPECT_EQ(finding.kind, FindingKind::Uninitialised);
  EXPECT_NE(finding.source.find("wgmma.mma_async"), std::string::npos);
}

TEST(Wgmma, EveryWarpMustBeOrderedAfterWritesOfB) {
  // Warp 0 has written B, so it needs no barrier; the other warps read B, too.
  Product one = product(16);
  one.fromRegisters = true, one.spanA = 16;
  Parts parts = partsOf(one);
  std::string begin = "setp.ne.u32 %p1, %warp, 0;\n@%p1 bra loaded;\n", copy = copiedIn(2048), rest;
  copy.replace(copy.find("512"), 3, "128");
  for (unsigned index = 0; index < 4; ++index)
    rest += "mov.b32 %f" + std::to_string(index) + ", 0;\n";
  std::string ofB = parts.descriptors.substr(0, parts.descriptors.find("shr.u32 %r1, %lane"));
  rest = ofB + parts.zero + rest + fence + parts.multiply + commit + waitAll + parts.store;
  begin += copy + "bar.warp.sync -1;\nfence.proxy.async.shared::cta;\nloaded:\n";
  EXPECT_EQ(findingIn(parts, begin + rest).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(parts.made(begin + "bar.sync 0;\n" + rest)).report);
}

TEST(Wgmma, SharedOperandsMustNotChangeBeforeTheWait) {
  Parts parts = partsOf(product(16));
  std::string begin = parts.load + fences + parts.descriptors + parts.zero + fence + parts.multiply + commit,
              write = "setp.eq.u32 %p0, %thread, 0;\n@%p0 st.shared.b32 [%smem+4], 0;\n";
  Finding finding = findingIn(parts, begin + write + waitAll + parts.store);
  EXPECT_EQ(finding.kind, FindingKind::Race);
  EXPECT_NE(finding.message.find("wgmma"), std::string::npos) << finding.message;
  EXPECT_TRUE(runAsync(parts.made(begin + waitAll + write + parts.store)).report);
  // Another warp needs a barrier after the wait.
  std::string other = "setp.eq.u32 %p0, %thread, 128;\n@%p0 st.shared.b32 [%smem+4], 0;\n";
  auto inTwoGroups = [&](const std::string &between) {
    AsyncCase test = parts.made("setp.ge.u32 %p1, %thread, 128;\n@%p1 bra loaded;\n" + parts.load + "loaded:\n" +
                                fences + "@%p1 bra second;\n" + parts.descriptors + parts.zero + fence +
                                parts.multiply + commit + waitAll + parts.store + "second:\n" + between + other);
    test.threads = 256;
    return test;
  };
  EXPECT_EQ(asyncFinding(inTwoGroups("")).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(inTwoGroups("bar.sync 0;\n")).report);
  // Reading is allowed.
  EXPECT_TRUE(runAsync(parts.made(begin + "ld.shared.b32 %r0, [%smem];\n" + waitAll + parts.store)).report);
}

TEST(Wgmma, RegistersMustNotBeUsedBeforeTheWait) {
  Product one = product(16);
  one.fromRegisters = true, one.spanA = 16;
  Parts parts = partsOf(one);
  std::string begin = parts.load + fences + parts.descriptors + parts.zero + fence + parts.multiply + commit;
  for (std::string use :
       {"mov.f32 %d3, 0f00000000;\n", "mov.b32 %r0, %d2;\n", "mov.b32 %f1, 0;\n", "add.u32 %r0, %r0, %f3;\n"}) {
    Finding finding = findingIn(parts, begin + use + waitAll + parts.store);
    EXPECT_EQ(finding.kind, FindingKind::Race) << use;
    EXPECT_NE(finding.message.find("wgmma of line"), std::string::npos) << finding.message;
    EXPECT_TRUE(runAsync(parts.made(begin + waitAll + use + parts.store)).report) << use;
  }
  EXPECT_EQ(findingIn(parts, begin + "wgmma.wait_group.sync.aligned 1;\n" + parts.store).kind, FindingKind::Race);
  EXPECT_EQ(findingIn(parts, begin.substr(0, begin.size() - commit.size()) + waitAll + parts.store).kind,
            FindingKind::Race);
  EXPECT_EQ(findingIn(parts, begin).kind, FindingKind::Unwaited);
  // With two groups under way, waiting for all but one completes the first.
  std::string second = parts.multiply;
  for (size_t at = 0; (at = second.find("%d", at)) != std::string::npos; at += 2)
    second.replace(at, 2, "%e");
  std::string both = ".reg .f32 %e<8>;\n" + begin + second + commit + "wgmma.wait_group.sync.aligned 1;\n";
  EXPECT_TRUE(runAsync(parts.made(both + "mov.b32 %r0, %d2;\n" + waitAll + parts.store)).report);
  EXPECT_EQ(findingIn(parts, both + "mov.b32 %r0, %e2;\n" + waitAll + parts.store).kind, FindingKind::Race);
}

TEST(Wgmma, RegistersNeedAFence) {
  Product one = product(16);
  one.fromRegisters = true, one.spanA = 16, one.accumulates = true;
  Parts parts = partsOf(one);
  std::string begin = parts.load + fences + parts.descriptors + parts.zero, end = commit + waitAll + parts.store;
  EXPECT_EQ(findingIn(parts, begin + parts.multiply + end).kind, FindingKind::Race);
  EXPECT_EQ(findingIn(parts, parts.load + fences + parts.descriptors + fence + parts.zero + parts.multiply + end).kind,
            FindingKind::Race);
  // Products of the same shape share sums without a fence; after any other use, one is needed.
  std::string again = parts.multiply + commit + waitAll;
  EXPECT_TRUE(runAsync(parts.made(begin + fence + parts.multiply + again + parts.store)).report);
  std::string use = begin + fence + again + "mul.f32 %d0, %d0, %d0;\n";
  EXPECT_EQ(findingIn(parts, use + again + parts.store).kind, FindingKind::Race);
  EXPECT_TRUE(runAsync(parts.made(use + fence + again + parts.store)).report);
  std::string operand = begin + fence + again + "mov.b32 %f0, 0;\n";
  EXPECT_EQ(findingIn(parts, operand + again + parts.store).kind, FindingKind::Race);
  // Sums of a product of another shape.
  std::string other = parts.multiply;
  other.replace(other.find("n16"), 3, "n8"), other.replace(other.find(", %d4"), 20, "");
  EXPECT_EQ(findingIn(parts, begin + fence + other + again + parts.store).kind, FindingKind::Race) << other;
  EXPECT_EQ(findingIn(parts, parts.load + fences + parts.descriptors + fence + parts.multiply + end).kind,
            FindingKind::Uninitialised);
  // Operand A of a product under way is a sum of the next one, or the reverse.
  auto changed = [&](const std::string &from, const std::string &to) {
    std::string text = parts.multiply;
    return text.replace(text.find(from), from.size(), to);
  };
  std::string floats = ".reg .f32 %e<8>;\nmov.b32 %e0, %f0;\n", shared = changed("{%f0", "{%e0");
  for (unsigned index = 1; index < 8; ++index)
    floats += "mov.f32 %e" + std::to_string(index) + ", 0f00000000;\n";
  std::string ofFloats =
      changed("{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}", "{%e0, %e1, %e2, %e3, %e4, %e5, %e6, %e7}");
  for (auto [first, second] : {std::pair(shared, ofFloats), std::pair(ofFloats, shared)}) {
    Finding finding = findingIn(parts, begin + floats + fence + first + second + end);
    EXPECT_EQ(finding.kind, FindingKind::Race);
    EXPECT_NE(finding.message.find("both operand A and a sum"), std::string::npos) << finding.message;
  }
}

TEST(Wgmma, DescriptorsAreChecked) {
  Parts parts = partsOf(product(16));
  auto kindWith = [&](const std::string &change) {
    return findingIn(parts, parts.load + fences + parts.descriptors + change + parts.zero + fence + parts.multiply +
                                commit + waitAll + parts.store)
        .kind;
  };
  EXPECT_EQ(kindWith("or.b64 %l2, %l2, " + std::to_string(uint64_t(1) << 49) + ";\n"), FindingKind::BadOperand);
  EXPECT_EQ(kindWith("or.b64 %l2, %l2, 16384;\n"), FindingKind::BadOperand);
  for (int row : {1, 4, 7})
    EXPECT_EQ(kindWith("add.s64 %l2, %l2, " + std::to_string(8 * row) + ";\n"), FindingKind::Misaligned) << row;
  EXPECT_EQ(kindWith("add.s64 %l2, %l2, 4096;\n"), FindingKind::OutOfBounds);
  EXPECT_EQ(kindWith("mov.b64 %l1, %l9;\n"), FindingKind::Uninitialised);
  EXPECT_EQ(kindWith("cvt.u64.u32 %l0, %lane;\nadd.s64 %l1, %l1, %l0;\n"), FindingKind::BadOperand);
  EXPECT_EQ(kindWith("cvt.u64.u32 %l0, %warp;\nadd.s64 %l1, %l1, %l0;\n"), FindingKind::BadOperand);
}

TEST(Wgmma, NeedsAllFourWarps) {
  Parts parts = partsOf(product(16));
  std::string begin = parts.load + fences + parts.descriptors + parts.zero,
              rest = fence + parts.multiply + commit + waitAll + parts.store;
  EXPECT_EQ(findingIn(parts,
                      begin + "setp.ne.u32 %p0, %lane, 5;\n@%p0 bra multiply;\nbra end;\nmultiply:\n" + rest + "end:\n")
                .kind,
            FindingKind::Divergence);
  EXPECT_EQ(findingIn(parts, begin + "setp.eq.u32 %p0, %warp, 2;\n@%p0 bra end;\n" + rest + "end:\nbar.sync 0;\n").kind,
            FindingKind::Deadlock);
  EXPECT_EQ(findingIn(parts, begin + fence + "setp.eq.u32 %p0, %warp, 2;\n@%p0 bra other;\n" + parts.multiply +
                                 "bra end;\nother:\n" + parts.multiply + "end:\n" + commit + waitAll + parts.store)
                .kind,
            FindingKind::Divergence);
  EXPECT_EQ(
      findingIn(parts, begin + "setp.ne.u32 %p0, %warp, 2;\n@%p0 bra multiply;\n" + commit + "multiply:\n" + rest).kind,
      FindingKind::Divergence);
  AsyncCase test = parts.made(begin + rest);
  test.threads = 96;
  test.outputBytes = 96 * 32;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Divergence);
}

TEST(Wgmma, AllWarpsMustFenceCommitAndWaitAlike) {
  Parts parts = partsOf(product(16));
  std::string begin = parts.load + fences + parts.descriptors + parts.zero;
  // Under a condition that holds for warp 2 only, or for all warps.
  auto conditional = [](const std::string &warps, const std::string &line) {
    return "setp.ge.u32 %p0, %warp, " + warps + ";\n@!%p0 bra skip;\n" + line + "skip:\n";
  };
  for (const std::string &line : {fence, commit, waitAll}) {
    auto before = [&](const std::string &warps) {
      return begin + conditional(warps, line) + fence + parts.multiply + commit + waitAll + parts.store;
    };
    auto after = [&](const std::string &warps) {
      return begin + fence + parts.multiply + commit + waitAll + parts.store + conditional(warps, line);
    };
    for (const std::string &body : {before("2"), after("2")}) {
      Finding found = findingIn(parts, body);
      EXPECT_EQ(found.kind, FindingKind::Divergence) << line;
      EXPECT_NE(found.str().find("warp 2 has executed the wgmma of line"), std::string::npos) << found.str();
    }
    for (const std::string &body : {before("0"), after("0"), before("4"), after("4")})
      EXPECT_TRUE(runAsync(parts.made(body)).report) << line;
  }
}

TEST(Wgmma, OperandsAreCheckedAtLoading) {
  Parts parts = partsOf(product(16));
  auto refuses = [&](const std::string &from, const std::string &to) {
    std::string text = parts.multiply;
    text.replace(text.find(from), from.size(), to);
    AsyncCase test = parts.made(text);
    test.forPtxas = false;
    Report report = runAsync(test).report;
    return report.finding && report.finding->kind == FindingKind::Unsupported;
  };
  EXPECT_TRUE(refuses("m64n16", "m64n12"));
  EXPECT_TRUE(refuses("m64n16", "m64n24"));
  EXPECT_TRUE(refuses("k16", "k32"));
  EXPECT_TRUE(refuses(".bf16.bf16", ".bf16.f16"));
  EXPECT_TRUE(refuses("0, 1, 1, 0, 0", "0, 2, 1, 0, 0"));
  EXPECT_TRUE(refuses("0, 1, 1, 0, 0", "0, 1, 1, 0, 2"));
  EXPECT_TRUE(refuses("0, 1, 1, 0, 0", "0, 1, 1, 0"));
}

// --- setmaxnreg -----------------------------------------------------------------------------------------------------

TEST(MaxRegisters, MoveBetweenWarpgroups) {
  auto body = [](const std::string &dec, const std::string &inc) {
    AsyncCase test{"setp.lt.u32 %p0, %thread, 128;\n@%p0 bra first;\nsetmaxnreg.inc.sync.aligned.u32 " + inc +
                       ";\nbra end;\nfirst:\nsetmaxnreg.dec.sync.aligned.u32 " + dec + ";\nend:\n",
                   384};
    return test;
  };
  // 168 registers at the launch: 24 + 2 x 240 = 3 x 168.
  EXPECT_TRUE(runAsync(body("24", "240")).report);
  EXPECT_EQ(asyncFinding(body("32", "240")).kind, FindingKind::Deadlock);
  EXPECT_TRUE(runAsync(body("40", "232")).report);
  EXPECT_EQ(asyncFinding(body("176", "240")).kind, FindingKind::BadOperand);
  EXPECT_EQ(asyncFinding(body("24", "160")).kind, FindingKind::BadOperand);
  AsyncCase test = body("24", "240");
  test.directives = ".maxntid 384\n.minnctapersm 2\n"; // 80 registers
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Deadlock);
  test.directives = ".maxnreg 160\n";
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Deadlock);
  test.directives = "\n";
  test.forPtxas = false;
  EXPECT_EQ(asyncFinding(test).kind, FindingKind::Unsupported);
}

TEST(MaxRegisters, AreChecked) {
  for (std::string line : {"setmaxnreg.dec.sync.aligned.u32 16;", "setmaxnreg.dec.sync.aligned.u32 20;",
                           "setmaxnreg.dec.sync.aligned.u32 28;", "setmaxnreg.inc.sync.aligned.u32 264;"}) {
    AsyncCase test{line, 128};
    test.forPtxas = false;
    EXPECT_EQ(asyncFinding(test).kind, FindingKind::Unsupported) << line;
  }
  EXPECT_EQ(
      asyncFinding({"setp.eq.u32 %p0, %warp, 1;\n@%p0 bra end;\nsetmaxnreg.dec.sync.aligned.u32 24;\nend:\n", 128})
          .kind,
      FindingKind::Divergence);
}
