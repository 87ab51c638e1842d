//===- Arguments.h - Checks and conversion of arguments -----------*- C++ -*-===//
//
// Checks an argument against its type in the entry table, and writes the descriptor or scalar that compiled code reads.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CALL_ARGUMENTS_H
#define SACCADE_LIB_RUNTIME_CALL_ARGUMENTS_H

#include "Message.h"

namespace saccade::runtime {

/// The address range of a tensor's elements.
struct Span {
  uintptr_t first = 0, last = 0, end = 0; ///< the lowest element, the highest element, and the end of that
  uintptr_t origin = 0;                   ///< the element of index 0
  bool isDense = false;                   ///< every byte between `first` and `end` belongs to an element
  bool isEmpty = true;

  /// True if the tensors certainly share an element; false negatives are possible for tensors with gaps.
  bool overlaps(const Span &other) const {
    if (isEmpty || other.isEmpty || end <= other.first || other.end <= first)
      return false;
    return origin == other.origin || (isDense && (contains(other.first) || contains(other.last))) ||
           (other.isDense && (other.contains(first) || other.contains(last)));
  }

private:
  bool contains(uintptr_t address) const { return address >= first && address < end; }
};

/// The 8-byte words of a value: 1 for a scalar, else those of a memref descriptor {allocated, aligned, offset,
/// sizes[rank], strides[rank]}.
constexpr int64_t descriptorWords(const SaccadeValueType &type) { return type.rank < 0 ? 1 : 3 + 2 * type.rank; }

/// The first tensor in the memory of a CUDA device, or null.
const DLTensor *findCUDATensor(const SaccadeArgument *args, int32_t count);

/// The device that all tensors of a call must be on. For a GPU program it is the device of the first CUDA tensor.
DLDevice findDevice(const SaccadeEntry &entry, const SaccadeArgument *args, int32_t count);

/// Checks the argument for value `index` of the entry, whose tensors must be on `device`, and writes its `words`.
SaccadeStatus convertArgument(const SaccadeEntry &entry, int32_t index, const SaccadeArgument &argument,
                              DLDevice device, int64_t *words, Span &span);

/// Checks that a converted result has the expected extents and that its elements do not overlap.
SaccadeStatus checkResult(const SaccadeEntry &entry, int32_t index, const int64_t *words, const int64_t *extents,
                          const Span &span);

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CALL_ARGUMENTS_H
