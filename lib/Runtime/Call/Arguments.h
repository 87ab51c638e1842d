//===- Arguments.h - From what hosts pass to what code reads ------*- C++ -*-===//
//
// Checks one argument against the type in the table, and writes the descriptor or the scalar that compiled code reads.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CALL_ARGUMENTS_H
#define SACCADE_LIB_RUNTIME_CALL_ARGUMENTS_H

#include "Message.h"

namespace saccade::runtime {

/// The memory that a tensor's elements lie in. Nothing is known of what lies between them.
struct Span {
  uintptr_t first = 0, last = 0, end = 0; ///< the lowest element, the highest, and the byte behind it
  uintptr_t origin = 0;                   ///< the element of index 0
  bool isDense = false;                   ///< every byte between `first` and `end` belongs to an element
  bool isEmpty = true;

  /// True only where it is certain that both have an element in common.
  bool overlaps(const Span &other) const {
    if (isEmpty || other.isEmpty || end <= other.first || other.end <= first)
      return false;
    return origin == other.origin || (isDense && (contains(other.first) || contains(other.last))) ||
           (other.isDense && (other.contains(first) || other.contains(last)));
  }

private:
  bool contains(uintptr_t address) const { return address >= first && address < end; }
};

/// MLIR's memref descriptor is made of words of eight bytes: {allocated, aligned, offset, sizes[rank], strides[rank]}.
constexpr int64_t descriptorWords(const SaccadeValueType &type) { return type.rank < 0 ? 1 : 3 + 2 * type.rank; }

/// The device that all tensors of a call must be on: for a GPU's program that of the first tensor on one.
DLDevice findDevice(const SaccadeEntry &entry, const SaccadeArgument *args, int32_t count);

/// Value `index` of the entry, which a tensor must have on `device`. `words` are those of its type.
SaccadeStatus convertArgument(const SaccadeEntry &entry, int32_t index, const SaccadeArgument &argument, DLDevice device,
                              int64_t *words, Span &span);

/// Whether a converted result is of the extents that the inputs ask for, and every element has a place of its own.
SaccadeStatus checkResult(const SaccadeEntry &entry, int32_t index, const int64_t *words, const int64_t *extents,
                          const Span &span);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_ARGUMENTS_H
