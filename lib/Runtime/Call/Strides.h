//===- Strides.h - Whether every element has a place of its own ---*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CALL_STRIDES_H
#define SACCADE_LIB_RUNTIME_CALL_STRIDES_H

#include <stdint.h>

namespace saccade::runtime {

/// Extents and strides of a tensor that is not empty and whose span is known to lie in memory. Strides of dimensions
/// that have more than one element are positive.
struct Strides {
  int32_t rank;
  const int64_t *sizes, *strides;

  /// Each stride is larger than all steps along smaller ones together, as in nearly every tensor: then every element
  /// has a place of its own. Costs about rank² comparisons.
  bool areNested() const;

  /// Two dimensions along which steps lead to one element.
  bool findOverlappingDims(int32_t &left, int32_t &right) const;

  enum Answer { No, Yes, TooLarge };
  /// Whether any two elements share a place, steps along all dimensions counted. The problem is that of subset sums, so
  /// the search has a limit.
  Answer elementsOverlap() const;
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_STRIDES_H
