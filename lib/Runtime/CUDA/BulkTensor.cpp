//===- BulkTensor.cpp - Tensors that bulk copies read -------------------------===//
//
// Decides whether bulk copies support a buffer, by the conditions of cuTensorMapEncodeTiled.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/BulkTensor.h"

using namespace saccade::runtime;

bool BulkTensor::describe(const int64_t *buffer, const int64_t *plan) {
  // Coordinates are 32-bit; strides have 40 bits.
  constexpr int64_t extentLimit = INT32_MAX, strideLimit = int64_t(1) << 40;
  type = static_cast<uint32_t>(plan[0]);
  int64_t elementBytes = plan[1], count = plan[3];
  swizzle = static_cast<uint32_t>(plan[2]);
  rank = static_cast<uint32_t>(count);
  const int64_t *order = plan + 4, *boxes = order + count, *sizes = buffer + 3, *steps = sizes + count;
  address = static_cast<uint64_t>(buffer[1] + buffer[2] * elementBytes);
  if (address % alignment != 0 || count > maxRank)
    return false;
  for (int64_t i = 0; i < count; ++i) {
    int64_t extent = sizes[order[i]], stride = steps[order[i]] * elementBytes;
    if (extent < 1 || extent > extentLimit)
      return false;
    if (boxes[i] == 0 && stride == 0)
      extent = 1;
    // The stride of a single element is arbitrary.
    if (extent == 1 && i > 0)
      stride = alignment;
    if (i == 0 ? stride != elementBytes : stride % alignment != 0 || stride < alignment || stride >= strideLimit)
      return false;
    extents[i] = static_cast<uint64_t>(extent);
    int64_t rows = boxes[i] < 0 ? commonRows(extent, -boxes[i]) : boxes[i];
    box[i] = static_cast<uint32_t>(boxes[i] == 0 ? 1 : rows);
    if (box[i] == 0)
      return false;
    if (i > 0)
      strides[i - 1] = static_cast<uint64_t>(stride);
  }
  return true;
}
