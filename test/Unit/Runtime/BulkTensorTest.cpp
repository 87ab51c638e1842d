//===- BulkTensorTest.cpp - Buffers that bulk copies support ------------------===//
//
// A buffer of b × h × s × d as the words of a kernel parameter, changed in one way per case.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/BulkTensor.h"
#include "gtest/gtest.h"
#include <vector>

using saccade::runtime::BulkTensor;

namespace {

// bf16, two bytes, 128-byte swizzle; columns, rows, heads, batch; boxes of 64 × 128.
constexpr int64_t plan[] = {9, 2, 3, 4, 3, 2, 1, 0, 64, 128, 1, 1};

/// Two pointers, offset, sizes, strides.
std::vector<int64_t> buffer() { return {4096, 4096, 8, 3, 5, 70, 96, 5 * 70 * 96, 70 * 96, 96, 1}; }

bool isSupported(size_t word, int64_t value) {
  std::vector<int64_t> words = buffer();
  words[word] = value;
  return BulkTensor().describe(words.data(), plan);
}

TEST(BulkTensor, DescribesABufferInnermostDimensionFirst) {
  BulkTensor tensor;
  ASSERT_TRUE(tensor.describe(buffer().data(), plan));
  EXPECT_EQ(tensor.type, 9u);
  EXPECT_EQ(tensor.rank, 4u);
  EXPECT_EQ(tensor.swizzle, 3u);
  EXPECT_EQ(tensor.address, 4096u + 16);
  EXPECT_EQ(std::vector(tensor.extents, tensor.extents + 4), (std::vector<uint64_t>{96, 70, 5, 3}));
  EXPECT_EQ(std::vector(tensor.strides, tensor.strides + 3), (std::vector<uint64_t>{192, 13440, 67200}));
  EXPECT_EQ(std::vector(tensor.box, tensor.box + 4), (std::vector<uint32_t>{64, 128, 1, 1}));
}

TEST(BulkTensor, AddressesAndStridesAreMultiplesOf16Bytes) {
  EXPECT_TRUE(isSupported(2, 0));
  EXPECT_FALSE(isSupported(2, 4));
  EXPECT_FALSE(isSupported(1, 4104));
  EXPECT_TRUE(isSupported(9, 104));
  EXPECT_FALSE(isSupported(9, 100));
  EXPECT_FALSE(isSupported(7, 5 * 70 * 96 + 4));
}

TEST(BulkTensor, ColumnsAreContiguous) { EXPECT_FALSE(isSupported(10, 2)); }

TEST(BulkTensor, RowsThatAreOneInMemoryAreNotSupported) {
  EXPECT_FALSE(isSupported(9, 0));
  EXPECT_FALSE(isSupported(9, -96));
}

TEST(BulkTensor, ExtentsAreNotEmptyAndHave31Bits) {
  EXPECT_FALSE(isSupported(5, 0));
  EXPECT_TRUE(isSupported(5, INT32_MAX));
  EXPECT_FALSE(isSupported(5, int64_t(INT32_MAX) + 1));
  EXPECT_FALSE(isSupported(7, int64_t(1) << 39));
}

TEST(BulkTensor, BoxesOfPagesDivideThePagesAndTheTile) {
  int64_t ofPages[] = {9, 2, 3, 4, 3, 2, 1, 0, 64, -112, 1, 1};
  auto rowsOf = [&](int64_t pageRows) -> uint32_t {
    std::vector<int64_t> words = buffer();
    words[5] = pageRows;
    BulkTensor tensor;
    return tensor.describe(words.data(), ofPages) ? tensor.box[1] : 0;
  };
  EXPECT_EQ(rowsOf(8), 8u);
  EXPECT_EQ(rowsOf(24), 8u);
  EXPECT_EQ(rowsOf(256), 16u);
  for (int64_t pageRows : {1, 4, 12, 17})
    EXPECT_EQ(rowsOf(pageRows), 0u) << pageRows;
}

TEST(BulkTensor, ATensorThatIsRepeatedHasOnePosition) {
  constexpr int64_t ofRepeated[] = {9, 2, 3, 4, 3, 2, 1, 0, 64, 128, 0, 0};
  std::vector<int64_t> words = buffer();
  words[8] = 0;
  EXPECT_FALSE(BulkTensor().describe(words.data(), plan));
  BulkTensor tensor;
  ASSERT_TRUE(tensor.describe(words.data(), ofRepeated));
  EXPECT_EQ(std::vector(tensor.extents, tensor.extents + 4), (std::vector<uint64_t>{96, 70, 1, 3}));
  EXPECT_EQ(std::vector(tensor.box, tensor.box + 4), (std::vector<uint32_t>{64, 128, 1, 1}));
  words[9] = 0;
  EXPECT_FALSE(BulkTensor().describe(words.data(), ofRepeated));
}

TEST(BulkTensor, StridesOfSingleElementsAreArbitrary) {
  std::vector<int64_t> words = buffer();
  words[3] = 1, words[7] = 7;
  BulkTensor tensor;
  ASSERT_TRUE(tensor.describe(words.data(), plan));
  EXPECT_EQ(tensor.strides[2], 16u);
}

} // namespace
