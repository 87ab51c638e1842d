//===- BulkTensor.h - Tensors that bulk copies read ---------------*- C++ -*-===//
//
// The arguments of cuTensorMapEncodeTiled for a buffer. Plain C++, because every shared library contains the runtime.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_RUNTIME_BULKTENSOR_H
#define SACCADE_RUNTIME_BULKTENSOR_H

#include <cstdint>

namespace saccade::runtime {

/// A tensor in global memory and the boxes that a kernel copies to shared memory. Dimension 0 is the innermost.
struct BulkTensor {
  static constexpr int32_t maxRank = 5;
  /// The rows after which a swizzle repeats. A tile in shared memory consists of boxes of multiples of it.
  static constexpr int64_t swizzleRows = 8;

  /// Bytes of which the address and the strides are multiples.
  static constexpr int64_t alignment = 16;

  uint32_t type = 0; ///< CUtensorMapDataType
  uint32_t rank = 0;
  uint64_t address = 0;
  uint64_t extents[maxRank] = {};     ///< in elements
  uint64_t strides[maxRank - 1] = {}; ///< in bytes, of dimensions 1 to rank - 1
  uint32_t box[maxRank] = {};         ///< in elements
  uint32_t swizzle = 0;               ///< CUtensorMapSwizzle

  /// Reads a buffer, given as the words of a kernel parameter: allocated and aligned address, offset, sizes, strides.
  /// `plan`: data type, bytes of an element, swizzle, rank, then for each dimension of the tensor, innermost first, its
  /// dimension in the buffer, and for each the extent of the box. An extent of −n stands for `commonRows` of n and the
  /// extent of the tensor, one of 0 for 1 in a dimension along which the tensor may be repeated: if its stride is 0,
  /// the described tensor has one position there. Returns false if bulk copies do not support the buffer: they need a
  /// contiguous innermost dimension, and an address and strides that are multiples of 16 bytes.
  bool describe(const int64_t *buffer, const int64_t *plan);

  /// The rows of the boxes of a tile of `tileRows` rows in pages of `pageRows`: the largest power of two that divides
  /// both, or 0 if it is less than `swizzleRows`.
  static constexpr int64_t commonRows(int64_t pageRows, int64_t tileRows) {
    int64_t both = pageRows | tileRows, rows = both & -both;
    return rows < swizzleRows ? 0 : rows;
  }
};

} // namespace saccade::runtime

#endif // SACCADE_RUNTIME_BULKTENSOR_H
