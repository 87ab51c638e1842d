//===- EntryTest.cpp - Checks of the arguments of calls -----------------------===//
#include "Arguments.h"
#include "gtest/gtest.h"
#include <string>

namespace {

// A hand-written entry. Its code records its arguments; its shape function requires equal row counts of `a` and `b`.
std::vector<std::vector<int64_t>> seen;
const char *outcome = nullptr;
int updates = 0;

const char *shapes(void **args, int64_t *sizes) {
  const auto *a = static_cast<const int64_t *>(args[0]), *b = static_cast<const int64_t *>(args[1]);
  if (a[3] != b[3]) {
    sizes[0] = b[3], sizes[1] = a[3], sizes[2] = 7;
    return b[3] == 100   ? "here: the number of heads\0a multiple of \0"
           : b[3] == 101 ? "here: the table\0at least \0"
           : b[3] == 102 ? "here: the rows\0at most \0sequence"
                         : "here: b has other rows than a\0\0";
  }
  sizes[0] = a[3] == 99 ? -3 : a[3], sizes[1] = 4;
  return nullptr;
}

const char *call(void **args) {
  seen.clear();
  for (int i : {0, 1, 2}) {
    const auto *words = static_cast<const int64_t *>(args[i]);
    seen.emplace_back(words, words + 7);
  }
  return outcome;
}

const SaccadeValueType values[] = {floats("a"), floats("b"), floats("sum")};
const SaccadeEntry add = {SACCADE_ENTRY_VERSION, 2, 1, 0, "add", values, call, shapes, nullptr, nullptr, nullptr};

/// A valid call of `add`, which the tests modify.
class Call : public testing::Test {
protected:
  std::string run() {
    status = saccade_entry_call(&add, args.data(), static_cast<int32_t>(args.size()));
    return status == SaccadeSuccess ? "" : saccade_entry_last_error();
  }
  std::string shapesOf(int32_t count) {
    status = saccade_entry_shapes(&add, args.data(), count, sizes);
    return status == SaccadeSuccess ? "" : saccade_entry_last_error();
  }
  void TearDown() override { outcome = nullptr; }

  Matrix a{3}, b{3}, sum{3};
  std::vector<SaccadeArgument> args = {wrap(a.tensor), wrap(b.tensor), wrap(sum.tensor)};
  int64_t sizes[2] = {};
  SaccadeStatus status = SaccadeSuccess;
};

TEST_F(Call, CodeGetsDescriptorsOfWhatTheHostHas) {
  a.strides[0] = 1, a.strides[1] = 3; // transposed
  b.strides[0] = 0;                   // one row for all
  sum.strides[0] = 10, sum.strides[1] = 2;
  sum.tensor.byte_offset = 8;
  ASSERT_EQ("", run());
  EXPECT_EQ((Words{a.address(), a.address(), 0, 3, 4, 1, 3}), seen[0]);
  EXPECT_EQ((Words{b.address(), b.address(), 0, 3, 4, 0, 1}), seen[1]);
  EXPECT_EQ((Words{sum.address() + 8, sum.address() + 8, 0, 3, 4, 10, 2}), seen[2]);
}

TEST_F(Call, StridesMayBeNullOrNegativeAndThoseThatDoNotMatterAreIgnored) {
  a.tensor.strides = nullptr;
  b.strides[1] = -1;
  sum.shape[0] = a.shape[0] = b.shape[0] = 1;
  sum.strides[0] = -77;
  ASSERT_EQ("", run());
  EXPECT_EQ((Words{4, 1}), Words(seen[0].begin() + 5, seen[0].end()));
  EXPECT_EQ((Words{4, -1}), Words(seen[1].begin() + 5, seen[1].end()));
  EXPECT_EQ((Words{4, 1}), Words(seen[2].begin() + 5, seen[2].end()));
}

TEST_F(Call, EmptyTensorsNeedNoMemory) {
  for (Matrix *matrix : {&a, &b, &sum}) {
    matrix->shape[0] = 0;
    matrix->strides[1] = -5;
    matrix->tensor.data = nullptr;
  }
  ASSERT_EQ("", run());
  EXPECT_EQ((Words{0, 0, 0, 0, 4, 4, 1}), seen[2]);
}

TEST_F(Call, TensorObjectsOfTVMFFIHaveAHeader) {
  struct {
    char header[24];
    DLTensor tensor;
  } object;
  object.tensor = a.tensor;
  args[0].kind = SaccadeArgumentTensorObject;
  args[0].value.pointer = &object;
  ASSERT_EQ("", run());
  EXPECT_EQ(a.address(), seen[0][0]);
}

TEST_F(Call, AWrongNumberOfArgumentsReportsTheSignature) {
  args.pop_back();
  EXPECT_EQ("add: found 2 arguments, expected 2 inputs and memory for 1 result: "
            "add(a: tensor<?x4xf32>, b: tensor<?x4xf32>) -> (sum: tensor<?x4xf32>)",
            run());
  EXPECT_EQ(SaccadeTypeError, status);
  EXPECT_EQ("add: found 1 argument, expected 2 inputs: "
            "add(a: tensor<?x4xf32>, b: tensor<?x4xf32>) -> (sum: tensor<?x4xf32>)",
            shapesOf(1));
}

TEST_F(Call, OtherKindsAreNamed) {
  const std::pair<int32_t, const char *> kinds[] = {{0, "None"},
                                                    {1, "an integer"},
                                                    {2, "a bool"},
                                                    {3, "a float"},
                                                    {65, "a string"},
                                                    {71, "an array"},
                                                    {99, "an object of another kind"}};
  for (auto [kind, words] : kinds) {
    args[1] = integer(0, kind);
    EXPECT_EQ("add: argument 'b' (tensor<?x4xf32>): found " + std::string(words) + ", expected a tensor", run());
    EXPECT_EQ(SaccadeTypeError, status);
  }
  args[1] = integer(0, SaccadeArgumentDLTensor);
  EXPECT_EQ("add: argument 'b' (tensor<?x4xf32>): is NULL, expected a tensor", run());
}

TEST_F(Call, OtherDevicesAreNamed) {
  const std::pair<int32_t, const char *> devices[] = {{2, "cuda:1"}, {8, "metal:1"}, {77, "DLPack device 77:1"}};
  for (auto [device, words] : devices) {
    b.tensor.device = {decltype(b.tensor.device.device_type)(device), 1};
    EXPECT_EQ("add: argument 'b' (tensor<?x4xf32>): on " + std::string(words) + ", expected cpu", run());
    EXPECT_EQ(SaccadeTypeError, status);
  }
}

TEST_F(Call, OtherElementTypesAreNamed) {
  const std::pair<DLDataType, const char *> types[] = {{{kDLFloat, 64, 1}, "f64"},
                                                       {{kDLBfloat, 16, 1}, "bf16"},
                                                       {{kDLUInt, 8, 1}, "u8"},
                                                       {{kDLInt, 32, 1}, "i32"},
                                                       {{kDLBool, 8, 1}, "bool"},
                                                       {{5, 64, 1}, "complex64"},
                                                       {{kDLFloat, 32, 4}, "f32 x 4 lanes"},
                                                       {{11, 8, 1}, "DLPack type 11 of 8 bits"},
                                                       {{kDLFloat8_e4m3fn, 8, 1}, "f8E4M3FN"},
                                                       {{kDLFloat8_e5m2, 8, 1}, "f8E5M2"}};
  for (auto [type, words] : types) {
    sum.tensor.dtype = type;
    EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): found element type " + std::string(words) + ", expected f32",
              run());
    EXPECT_EQ(SaccadeTypeError, status);
  }
}

TEST_F(Call, RankAndExtentsMustBeThoseOfTheType) {
  a.tensor.ndim = 1;
  EXPECT_EQ("add: argument 'a' (tensor<?x4xf32>): found 1 dimension, expected 2", run());
  EXPECT_EQ(SaccadeTypeError, status);
  a.tensor.ndim = 2;
  a.shape[1] = 5;
  EXPECT_EQ("add: argument 'a' (tensor<?x4xf32>): found extent 5 in dimension 1, expected 4", run());
  EXPECT_EQ(SaccadeValueError, status);
  a.shape[1] = 4;
  a.shape[0] = -3;
  EXPECT_EQ("add: argument 'a' (tensor<?x4xf32>): found extent -3 in dimension 0", run());
  EXPECT_EQ(SaccadeValueError, status);
  a.tensor.shape = nullptr;
  EXPECT_EQ("add: argument 'a' (tensor<?x4xf32>): its shape is NULL", run());
}

TEST_F(Call, MessagesOfTheShapeFunctionAreReported) {
  b.shape[0] = 2;
  EXPECT_EQ("add: here: b has other rows than a: found 2, expected 3", run());
  EXPECT_EQ(SaccadeValueError, status);
  b.shape[0] = 100;
  EXPECT_EQ("add: here: the number of heads: found 100, expected a multiple of 3", shapesOf(2));
  b.shape[0] = 101;
  EXPECT_EQ("add: here: the table: found 101, expected at least 3", shapesOf(2));
  b.shape[0] = 102;
  EXPECT_EQ("add: here: the rows: found 102, expected at most 3, in sequence 7", shapesOf(2));
}

TEST_F(Call, ResultsThatWouldBeNegativeAreRefused) {
  a.shape[0] = b.shape[0] = 99;
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): dimension 0 has the negative extent -3", shapesOf(2));
  EXPECT_EQ(SaccadeValueError, status);
}

TEST_F(Call, DataMustBeThereAndAligned) {
  a.tensor.data = nullptr;
  EXPECT_EQ("add: argument 'a' (tensor<?x4xf32>): is NULL: a fake tensor has no data", run());
  EXPECT_EQ(SaccadeValueError, status);
  a.tensor.data = a.memory.data();
  a.tensor.byte_offset = 2;
  EXPECT_EQ("add: argument 'a' (tensor<?x4xf32>): the data address is not a multiple of the element size, 4 bytes",
            run());
  EXPECT_EQ(SaccadeValueError, status);
}

TEST_F(Call, StridesThatLeaveTheAddressSpaceAreRefused) {
  for (int64_t stride : {int64_t(1) << 61, -(int64_t(1) << 61), -(int64_t(1) << 46), INT64_MIN, INT64_MAX}) {
    a.strides[0] = stride;
    EXPECT_EQ("add: argument 'a' (tensor<?x4xf32>): its extents and strides exceed the address space", run()) << stride;
    EXPECT_EQ(SaccadeValueError, status);
  }
  // The sum of several dimensions exceeds the address space.
  a.shape[0] = b.shape[0] = INT64_MAX / 2;
  a.strides[0] = 1;
  EXPECT_EQ("add: argument 'a' (tensor<?x4xf32>): its extents and strides exceed the address space", run());
}

TEST_F(Call, ResultsHaveTheExtentsThatFollowFromTheInputs) {
  sum.shape[0] = 7;
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): found extent 7 in dimension 0, expected 3", run());
  EXPECT_EQ(SaccadeValueError, status);
}

TEST_F(Call, ElementsOfAResultMustNotOverlap) {
  auto withStrides = [&](int64_t outer, int64_t inner) {
    sum.strides[0] = outer, sum.strides[1] = inner;
    return run();
  };
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): found stride 0 in dimension 0, expected a positive one",
            withStrides(0, 1));
  EXPECT_EQ(SaccadeValueError, status);
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): found stride -1 in dimension 1, expected a positive one",
            withStrides(4, -1));
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): its strides 2 and 1 in dimensions 0 and 1 make elements overlap",
            withStrides(2, 1));
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): its strides 3 and 2 in dimensions 0 and 1 make elements overlap",
            withStrides(3, 2)); // two steps down are three to the right
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): its strides 3 and 1 in dimensions 0 and 1 make elements overlap",
            withStrides(3, 1));
  for (auto [outer, inner] : {std::pair(4, 1), std::pair(1, 3), std::pair(5, 1), std::pair(4, 6), std::pair(7, 2)})
    EXPECT_EQ("", withStrides(outer, inner)) << outer << ' ' << inner;
  // Five rows would equal four columns, but there are only three.
  a.shape[0] = b.shape[0] = sum.shape[0] = 10;
  EXPECT_EQ("", withStrides(4, 5));
}

TEST_F(Call, ResultsThatCertainlyOverlapAreRefused) {
  sum.tensor.data = b.tensor.data;
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): overlaps with argument 'b'", run());
  EXPECT_EQ(SaccadeValueError, status);
  sum.tensor.data = static_cast<float *>(b.tensor.data) + 11; // the last element of b
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): overlaps with argument 'b'", run());
  sum.tensor.data = static_cast<float *>(b.tensor.data) + 12;
  EXPECT_EQ("", run());
  sum.tensor.data = static_cast<float *>(b.tensor.data) - 11;
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): overlaps with argument 'b'", run());
  sum.tensor.data = static_cast<float *>(b.tensor.data) - 12;
  EXPECT_EQ("", run());
  // With negative strides from the same element, and without gaps.
  sum.tensor.data = b.tensor.data;
  b.strides[0] = -4, b.strides[1] = -1;
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): overlaps with argument 'b'", run());
  sum.tensor.data = static_cast<float *>(b.tensor.data) - 5;
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): overlaps with argument 'b'", run());
}

TEST_F(Call, ResultsWithGapsThatOverlapDenseInputsAreDetected) {
  sum.strides[0] = 10, sum.strides[1] = 2;
  for (int offset : {-26, 0, 11}) { // the last element of the sum is the first of b, or the first of it in b
    sum.tensor.data = static_cast<float *>(b.tensor.data) + offset;
    EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): overlaps with argument 'b'", run()) << offset;
  }
  for (int offset : {-27, 12}) {
    sum.tensor.data = static_cast<float *>(b.tensor.data) + offset;
    EXPECT_EQ("", run()) << offset;
  }
}

TEST_F(Call, SlicesOfOneBufferMayInterleave) {
  auto *packed = static_cast<float *>(a.tensor.data);
  b.tensor.data = packed + 4;
  sum.tensor.data = packed + 8;
  a.strides[0] = b.strides[0] = sum.strides[0] = 12;
  EXPECT_EQ("", run());
  sum.tensor.data = packed; // the same slice
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): overlaps with argument 'a'", run());
  // A dense result that contains the last row of `a` is detected.
  sum.tensor.data = packed + 20;
  sum.strides[0] = 4;
  EXPECT_EQ("add: result 'sum' (tensor<?x4xf32>): overlaps with argument 'a'", run());
}

TEST_F(Call, MemoryThatRunsOutIsAnErrorOfItsOwn) {
  outcome = "out of memory";
  EXPECT_EQ("add: out of memory", run());
  EXPECT_EQ(SaccadeOutOfMemory, status);
}

TEST_F(Call, ShapesNeedNoResultsAndIgnoreThem) {
  EXPECT_EQ("", shapesOf(2));
  EXPECT_EQ(3, sizes[0]);
  EXPECT_EQ(4, sizes[1]);
  args[2] = integer(0, SaccadeArgumentNone);
  EXPECT_EQ("", shapesOf(3));
}

/// An entry that updates its first input, and has no results.
const SaccadeValueType updatedValues[] = {[] {
                                            SaccadeValueType type = floats("cache");
                                            type.updated_by = 1;
                                            return type;
                                          }(),
                                          floats("rows")};
const SaccadeEntry update = {SACCADE_ENTRY_VERSION,
                             2,
                             0,
                             0,
                             "update",
                             updatedValues,
                             [](void **) -> const char * {
                               ++updates;
                               return nullptr;
                             },
                             [](void **, int64_t *) -> const char * { return nullptr; },
                             nullptr,
                             nullptr,
                             nullptr};

TEST(Update, InputsThatAreUpdatedAreCheckedAsResults) {
  Matrix cache{3}, rows{3};
  std::vector<SaccadeArgument> args = {wrap(cache.tensor), wrap(rows.tensor)};
  auto run = [&]() -> std::string {
    return saccade_entry_call(&update, args.data(), 2) == SaccadeSuccess ? "" : saccade_entry_last_error();
  };
  updates = 0;
  EXPECT_EQ("", run());
  rows.strides[0] = 0;
  EXPECT_EQ("", run());
  EXPECT_EQ(2, updates);
  cache.strides[0] = 0;
  EXPECT_EQ("update: argument 'cache' (tensor<?x4xf32>): found stride 0 in dimension 0, expected a positive one",
            run());
  cache.strides[0] = 4;
  rows.tensor.data = cache.tensor.data;
  EXPECT_EQ("update: argument 'cache' (tensor<?x4xf32>): overlaps with argument 'rows'", run());
  EXPECT_EQ(2, updates);
}

} // namespace
