//===- Strides.cpp - Detection of overlapping elements ------------------------===//
//
// Two elements overlap if a non-zero integer combination of the strides, with coefficients smaller than the extents in
// absolute value, is zero.
//
//===----------------------------------------------------------------------===//
#include "Strides.h"

using namespace saccade::runtime;

bool Strides::areNested() const {
  for (int32_t i = 0; i < rank; ++i) {
    if (sizes[i] == 1)
      continue;
    int64_t smaller = 0; // cannot overflow: the span is within the address space
    for (int32_t j = 0; j < rank; ++j)
      if (j != i && strides[j] <= strides[i])
        smaller += (sizes[j] - 1) * strides[j];
    if (smaller >= strides[i])
      return false;
  }
  return true;
}

/// Whether multiples of both strides, within the extents, are equal. The smallest such multiple is their LCM.
static bool stridesCollide(int64_t firstExtent, int64_t first, int64_t secondExtent, int64_t second) {
  int64_t a = first, b = second;
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return second / a < firstExtent && first / a < secondExtent;
}

bool Strides::findOverlappingDims(int32_t &first, int32_t &second) const {
  for (second = 1; second < rank; ++second)
    for (first = 0; first < second; ++first)
      if (sizes[first] > 1 && sizes[second] > 1 &&
          stridesCollide(sizes[first], strides[first], sizes[second], strides[second]))
        return true;
  return false;
}

namespace {

/// Searches for a combination by branch and bound, from the largest stride to the smallest. The largest offset that the
/// smaller strides can compensate bounds the coefficients of each stride.
class Search {
public:
  explicit Search(const Strides &tensor) : tensor(tensor) {}

  /// `offset` is the combination of the strides up to dimension `last` (-1: none); `moved` if a coefficient is
  /// non-zero.
  Strides::Answer run(int32_t last, int64_t offset, bool moved) {
    int32_t here = -1;
    for (int32_t i = 0; i < tensor.rank; ++i)
      if (tensor.sizes[i] > 1 && (last < 0 || comesBefore(last, i)) && (here < 0 || comesBefore(i, here)))
        here = i;
    if (here < 0)
      return moved && offset == 0 ? Strides::Yes : Strides::No;
    int64_t rest = 0;
    for (int32_t i = 0; i < tensor.rank; ++i)
      if (tensor.sizes[i] > 1 && comesBefore(here, i))
        rest += (tensor.sizes[i] - 1) * tensor.strides[i];
    int64_t stride = tensor.strides[here], maxCoefficient = tensor.sizes[here] - 1;
    int64_t first = -floorDivide(offset + rest, stride), end = floorDivide(rest - offset, stride);
    if (first < -maxCoefficient)
      first = -maxCoefficient;
    if (!moved && first < 0)
      first = 0; // by symmetry the first non-zero coefficient is positive
    if (end > maxCoefficient)
      end = maxCoefficient;
    for (int64_t coefficient = first; coefficient <= end; ++coefficient) {
      if (++tried > limit)
        return Strides::TooLarge;
      if (Strides::Answer answer = run(here, offset + coefficient * stride, moved || coefficient != 0))
        return answer;
    }
    return Strides::No;
  }

private:
  bool comesBefore(int32_t first, int32_t second) const {
    int64_t a = tensor.strides[first], b = tensor.strides[second];
    return a > b || (a == b && first < second);
  }
  static int64_t floorDivide(int64_t number, int64_t by) { return number / by - (number % by < 0); }

  static constexpr int64_t limit = 1 << 14; // about 0.1 ms
  const Strides &tensor;
  int64_t tried = 0;
};

} // namespace

Strides::Answer Strides::elementsOverlap() const {
  int64_t maxOffset = 0;
  for (int32_t i = 0; i < rank; ++i)
    maxOffset += sizes[i] > 1 ? (sizes[i] - 1) * strides[i] : 0;
  // The limit exceeds any real memory and keeps sums of two offsets in range.
  return maxOffset > INT64_MAX / 4 ? TooLarge : Search(*this).run(-1, 0, false);
}
