//===- HostTensor.cpp - Tensors in host memory --------------------------------===//
//
// Random data comes from a counter-based generator (SplitMix64 and the Box-Muller transform), so that it depends on the
// seed only.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/HostTensor.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <cstring>
#include <numbers>

using namespace saccade;

llvm::Expected<HostTensor> HostTensor::allocate(ElementType type, llvm::ArrayRef<int64_t> shape, bool columnMajor) {
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (extent < 0)
      return llvm::createStringError("dimension " + llvm::Twine(dim) + " has the negative extent " +
                                     llvm::Twine(extent));
  HostTensor tensor;
  tensor.elementType = type;
  tensor.extents.assign(shape.begin(), shape.end());
  tensor.elementStrides.assign(shape.size(), 1);
  // Strides of an empty tensor are computed with extents of at least 1; only the count is 0.
  int64_t step = 1;
  bool overflow = false;
  tensor.count = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    size_t dim = columnMajor ? i : shape.size() - 1 - i;
    tensor.elementStrides[dim] = step;
    overflow |= llvm::MulOverflow<int64_t>(step, std::max<int64_t>(shape[dim], 1), step);
    tensor.count *= shape[dim] == 0 ? 0 : 1;
  }
  int64_t bytes = 0;
  overflow |= llvm::MulOverflow<int64_t>(step, elementBytes(type), bytes) || bytes > (int64_t(1) << 46);
  tensor.count *= step;
  if (!overflow)
    tensor.memory.reset(static_cast<char *>(std::aligned_alloc(64, llvm::alignTo(bytes, 64))));
  if (!tensor.memory)
    return llvm::createStringError("not enough memory for a tensor of its size");
  std::memset(tensor.memory.get(), 0, bytes);
  return tensor;
}

bool HostTensor::isRowMajor() const {
  int64_t step = 1;
  for (size_t i = extents.size(); i-- > 0;) {
    if (extents[i] > 1 && elementStrides[i] != step)
      return false;
    step *= std::max<int64_t>(extents[i], 1);
  }
  return true;
}

void HostTensor::forEach(llvm::function_ref<void(char *)> visit) const {
  const unsigned width = elementBytes(elementType);
  llvm::SmallVector<int64_t, 4> position(extents.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (size_t dim = 0; dim < position.size(); ++dim)
      offset += position[dim] * elementStrides[dim];
    visit(memory.get() + offset * width);
    for (size_t dim = position.size(); dim-- > 0;) {
      if (++position[dim] < extents[dim])
        break;
      position[dim] = 0;
    }
  }
}

static uint64_t splitMix(uint64_t state) {
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

void HostTensor::fillRandom(uint64_t seed) {
  const uint64_t key = splitMix(seed);
  uint64_t counter = 0;
  forEach([&](char *element) {
    uint64_t first = splitMix(key + 2 * counter), second = splitMix(key + 2 * counter + 1);
    ++counter;
    if (!isFloat(elementType))
      return writeElement(elementType, element, double(first % (elementType == ElementType::i1 ? 2 : 8)));
    double radius = (double(first >> 11) + 1) * 0x1p-53, angle = double(second >> 11) * 0x1p-53;
    writeElement(elementType, element, std::sqrt(-2 * std::log(radius)) * std::cos(2 * std::numbers::pi * angle));
  });
}

void HostTensor::fill(double value) {
  forEach([&](char *element) { writeElement(elementType, element, value); });
}

llvm::Expected<HostTensor> HostTensor::convertTo(ElementType type) const {
  llvm::Expected<HostTensor> result = allocate(type, extents);
  if (!result)
    return result;
  char *to = result->data();
  const unsigned width = elementBytes(type);
  forEach([&](char *element) {
    if (type == elementType)
      std::memcpy(to, element, width);
    else
      writeElement(type, to, readElement(elementType, element));
    to += width;
  });
  return result;
}
