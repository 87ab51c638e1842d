//===- Strides.cpp - Whether every element has a place of its own -------------===//
//
// Two elements meet where the steps between them, one number of them for each dimension and not all zero, lead nowhere.
//
//===----------------------------------------------------------------------===//
#include "Strides.h"

using namespace saccade::runtime;

bool Strides::areNested() const {
  for (int32_t i = 0; i < rank; ++i) {
    if (sizes[i] == 1)
      continue;
    int64_t smaller = 0; // cannot overflow: all of it lies in memory
    for (int32_t j = 0; j < rank; ++j)
      if (j != i && strides[j] <= strides[i])
        smaller += (sizes[j] - 1) * strides[j];
    if (smaller >= strides[i])
      return false;
  }
  return true;
}

/// Whether a steps along one dimension are as long as b along the other.
static bool stridesCollide(int64_t leftExtent, int64_t left, int64_t rightExtent, int64_t right) {
  int64_t a = left, b = right;
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return right / a < leftExtent && left / a < rightExtent;
}

bool Strides::findOverlappingDims(int32_t &left, int32_t &right) const {
  for (right = 1; right < rank; ++right)
    for (left = 0; left < right; ++left)
      if (sizes[left] > 1 && sizes[right] > 1 && stridesCollide(sizes[left], strides[left], sizes[right], strides[right]))
        return true;
  return false;
}

namespace {

/// Goes through the dimensions from the largest stride to the smallest. What the smaller ones can still make good
/// leaves few steps to try along each.
class Search {
public:
  explicit Search(const Strides &tensor) : tensor(tensor) {}

  /// `offset` is how far the steps up to dimension `last` lead (-1: none yet); `moved` where they are not all zero.
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
    int64_t stride = tensor.strides[here], most = tensor.sizes[here] - 1;
    int64_t first = -floorDivide(offset + rest, stride), end = floorDivide(rest - offset, stride);
    if (first < -most)
      first = -most;
    if (!moved && first < 0)
      first = 0; // there and back again is the same
    if (end > most)
      end = most;
    for (int64_t steps = first; steps <= end; ++steps) {
      if (++tried > limit)
        return Strides::TooLarge;
      if (Strides::Answer answer = run(here, offset + steps * stride, moved || steps != 0))
        return answer;
    }
    return Strides::No;
  }

private:
  bool comesBefore(int32_t left, int32_t right) const {
    int64_t a = tensor.strides[left], b = tensor.strides[right];
    return a > b || (a == b && left < right);
  }
  static int64_t floorDivide(int64_t number, int64_t by) { return number / by - (number % by < 0); }

  static constexpr int64_t limit = 1 << 14; // a tenth of a millisecond
  const Strides &tensor;
  int64_t tried = 0;
};

} // namespace

Strides::Answer Strides::elementsOverlap() const {
  int64_t reach = 0;
  for (int32_t i = 0; i < rank; ++i)
    reach += sizes[i] > 1 ? (sizes[i] - 1) * strides[i] : 0;
  // No machine has so much memory, and sums of two stay in range.
  return reach > INT64_MAX / 4 ? TooLarge : Search(*this).run(-1, 0, false);
}
