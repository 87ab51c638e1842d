//===- StridesTest.cpp - Detection of overlapping elements --------------------===//
#include "Arguments.h"
#include "gtest/gtest.h"
#include <random>
#include <set>
#include <string>

namespace {

/// The message of a call for a result with these extents and strides.
std::string check(Words shape, Words strides) {
  static signed char byte; // not accessed: the entry does nothing
  const Words any(shape.size(), -1);
  const SaccadeValueType type = {"y", "tensor", any.data(), static_cast<int32_t>(shape.size()), kDLInt, 8, 0};
  static Words expected;
  expected = shape;
  const SaccadeEntry entry = {SACCADE_ENTRY_VERSION,
                              0,
                              1,
                              0,
                              "make",
                              &type,
                              [](void **) -> const char * { return nullptr; },
                              [](void **, int64_t *sizes) -> const char * {
                                std::copy(expected.begin(), expected.end(), sizes);
                                return nullptr;
                              },
                              nullptr,
                              nullptr,
                              nullptr};
  DLTensor tensor = {};
  tensor.data = &byte;
  tensor.device.device_type = decltype(tensor.device.device_type)(kDLCPU);
  tensor.ndim = type.rank;
  tensor.dtype = {kDLInt, 8, 1};
  tensor.shape = shape.data();
  tensor.strides = strides.data();
  SaccadeArgument argument = wrap(tensor);
  std::string prefix = "make: result 'y' (tensor): ";
  if (saccade_entry_call(&entry, &argument, 1) == SaccadeSuccess)
    return "";
  std::string message = saccade_entry_last_error();
  EXPECT_TRUE(message.starts_with(prefix)) << message;
  return message.substr(prefix.size());
}

/// Whether two elements overlap, by exhaustive search.
bool meet(const Words &shape, const Words &strides) {
  std::set<int64_t> seen;
  Words at(shape.size(), 0);
  while (true) {
    int64_t offset = 0;
    for (size_t i = 0; i < at.size(); ++i)
      offset += at[i] * strides[i];
    if (!seen.insert(offset).second)
      return true;
    size_t i = 0;
    while (i < at.size() && ++at[i] == shape[i])
      at[i++] = 0;
    if (i == at.size())
      return false;
  }
}

TEST(Strides, ThreeDimensionsMayOverlapIfNoTwoDo) {
  EXPECT_EQ("its strides make elements overlap", check({2, 2, 2}, {1, 2, 3}));
  EXPECT_EQ("its strides make elements overlap", check({2, 2, 2}, {3, 1, 2}));
  EXPECT_EQ("its strides make elements overlap", check({2, 1, 2, 2}, {30, 7, 10, 20}));
  EXPECT_EQ("", check({2, 2, 2}, {1, 2, 4}));
  EXPECT_EQ("", check({2, 2, 2}, {3, 5, 6})); // not nested, but all eight offsets differ
}

TEST(Strides, AgreesWithExhaustiveSearch) {
  std::mt19937 random(1);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  int meeting = 0;
  constexpr int rounds = 20000;
  for (int round = 0; round < rounds; ++round) {
    Words shape(pick(1, 5)), strides;
    for (int64_t &extent : shape) {
      extent = pick(1, 4);
      strides.push_back(pick(1, 40));
    }
    bool expected = meet(shape, strides);
    meeting += expected;
    ASSERT_EQ(expected, !check(shape, strides).empty())
        << testing::PrintToString(shape) << ' ' << testing::PrintToString(strides);
  }
  EXPECT_GT(meeting, rounds / 10);
  EXPECT_LT(meeting, rounds * 9 / 10);
}

TEST(Strides, TooComplexStridesAreRefused) {
  // Three large dimensions of almost equal strides would require a long search.
  EXPECT_EQ("its strides are too complex to prove that no elements overlap",
            check({1000000, 1000000, 1000000}, {1000003, 1000033, 1000037}));
  EXPECT_EQ("its strides are too complex to prove that no elements overlap",
            check({2, 2, 2}, {INT64_MAX / 4, INT64_MAX / 4 - 1, INT64_MAX / 4 - 3}));
  // The sum of all three decides.
  for (int64_t part : {11, 13}) {
    int64_t stride = INT64_MAX / part;
    EXPECT_EQ(check({2, 2, 2}, {stride, stride - 1, stride - 3}),
              part == 11 ? "its strides are too complex to prove that no elements overlap" : "");
  }
}

} // namespace
