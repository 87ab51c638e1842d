//===- MedianTest.cpp - The median of numbers ---------------------------------===//
#include "saccade/Support/Median.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <random>

using namespace saccade;

TEST(Median, IsInTheMiddleOfAnyNumbers) {
  std::mt19937_64 random(1);
  for (size_t count = 1; count < 40; ++count) {
    // Distinct numbers that are in no order: each of 0, 1, 4, 9, ... once.
    std::vector<double> numbers;
    for (size_t i = 0; i < count; ++i)
      numbers.push_back(double(i * i));
    std::shuffle(numbers.begin(), numbers.end(), random);
    size_t low = (count - 1) / 2, high = count / 2;
    EXPECT_EQ(medianOf(numbers), double(low * low + high * high) / 2) << count;
  }
}
