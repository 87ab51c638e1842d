//===- QuantizedKeys.h - Keys and queries rounded to int8 -----------*- C++ -*-===//
//
// The plain evaluation of `qk_type(i8)`, for evaluations with rounding: SageAttention's quantization (Zhang et al.
// 2024) with the mean of all keys of a sequence and a scale for each row.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_QUANTIZEDKEYS_H
#define SACCADE_REFERENCE_QUANTIZEDKEYS_H

#include <cstdint>
#include <vector>

namespace saccade::reference {

/// Elements that are apart by `stride`.
struct StridedRow {
  const double *elements;
  int64_t stride;
  double operator[](int64_t i) const { return elements[i * stride]; }
};

/// The step of the quantization of a row to int8: its largest magnitude divided by 127. NaN if an element is.
double quantizationStep(const std::vector<double> &row);

/// The keys of a sequence and KV head, and what rounding them to int8 makes of them.
class QuantizedKeys {
public:
  /// Keys of `depth` elements at multiples of `keyStride`.
  QuantizedKeys(StridedRow first, int64_t keyStride, int64_t keys, int64_t depth);

  /// The dot product of a query with key `key`, both rounded; the part of the mean is not rounded.
  double dotProduct(const std::vector<double> &query, int64_t key) const;
  /// A query, as `dotProduct` takes it: the elements, then the same rounded.
  std::vector<double> round(StridedRow query) const;
  /// A bound on the error of `dotProduct`.
  double errorBound(StridedRow query, int64_t key) const;
  /// The deviation of the error of `dotProduct`, if the errors of elements are uniform within half a step.
  double deviation(StridedRow query, int64_t key) const;

private:
  std::vector<double> centered(int64_t key) const;

  StridedRow first;
  int64_t keyStride, depth;
  std::vector<double> mean, rounded; ///< rounded: keys minus the mean, rounded
};

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_QUANTIZEDKEYS_H
