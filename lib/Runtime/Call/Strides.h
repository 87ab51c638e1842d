//===- Strides.h - Detection of overlapping elements --------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CALL_STRIDES_H
#define SACCADE_LIB_RUNTIME_CALL_STRIDES_H

#include <stdint.h>

namespace saccade::runtime {

/// Extents and strides of a non-empty tensor whose span is within the address space. Strides of dimensions with more
/// than one element are positive.
struct Strides {
  int32_t rank;
  const int64_t *sizes, *strides;

  /// Whether each stride exceeds the span of all dimensions with smaller strides, as in nearly every tensor. Then no
  /// elements overlap. Takes O(rank²) time.
  bool areNested() const;

  /// Finds two dimensions whose strides alone make elements overlap.
  bool findOverlappingDims(int32_t &first, int32_t &second) const;

  enum Answer { No, Yes, TooLarge };
  /// Whether any two elements overlap. The problem is NP-hard (subset sum), so the search is limited.
  Answer elementsOverlap() const;
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_STRIDES_H
