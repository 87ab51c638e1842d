//===- Median.h - The median of numbers ---------------------------*- C++ -*-===//
#ifndef SACCADE_SUPPORT_MEDIAN_H
#define SACCADE_SUPPORT_MEDIAN_H

#include "llvm/ADT/STLExtras.h"
#include <vector>

namespace saccade {

/// The median of at least one number: the mean of the two in the middle if their count is even.
inline double medianOf(std::vector<double> numbers) {
  llvm::sort(numbers);
  size_t half = numbers.size() / 2;
  return numbers.size() % 2 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

} // namespace saccade

#endif // SACCADE_SUPPORT_MEDIAN_H
