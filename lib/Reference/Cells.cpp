//===- Cells.cpp - Lazily computed elements of a value ------------------------===//
#include "Cells.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace mlir;
using namespace saccade::reference;

SmallVector<int64_t> saccade::reference::rowMajorStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int64_t dim = int64_t(shape.size()) - 2; dim >= 0; --dim)
    strides[dim] = strides[dim + 1] * shape[dim + 1];
  return strides;
}

std::optional<Box> saccade::reference::intersect(const Box &a, const Box &b) {
  Box shared;
  for (int64_t dim = 0; dim < a.rank(); ++dim) {
    int64_t first = std::max(a.offsets[dim], b.offsets[dim]);
    int64_t end = std::min(a.offsets[dim] + a.sizes[dim], b.offsets[dim] + b.sizes[dim]);
    if (first >= end)
      return std::nullopt;
    shared.offsets.push_back(first);
    shared.sizes.push_back(end - first);
  }
  return shared;
}

FailureOr<std::shared_ptr<Cells>> Cells::create(Type elementType, ArrayRef<int64_t> shape) {
  std::shared_ptr<Cells> cells(new Cells);
  cells->elementType = elementType;
  cells->shape.assign(shape.begin(), shape.end());
  int64_t count = 1;
  if (!llvm::is_contained(shape, 0)) {
    for (int64_t extent : shape)
      if (llvm::MulOverflow(count, extent, count) || count > INT64_MAX / int64_t(sizeof(Scalar)))
        return failure();
  } else {
    count = 0;
  }
  cells->strides = rowMajorStrides(count ? shape : ArrayRef<int64_t>(SmallVector<int64_t>(shape.size(), 0)));
  cells->count = count;
  cells->allKnown = count == 0;
  cells->values.reset(static_cast<Scalar *>(std::calloc(std::max<int64_t>(count, 1), sizeof(Scalar))));
  cells->known.reset(static_cast<bool *>(std::calloc(std::max<int64_t>(count, 1), 1)));
  if (!cells->values || !cells->known)
    return failure();
  return cells;
}

std::shared_ptr<Cells> Cells::ofTensor(const Tensor &tensor) {
  FailureOr<std::shared_ptr<Cells>> cells = create(tensor.elementType, tensor.shape);
  if (failed(cells))
    llvm::report_bad_alloc_error("out of memory for a copy of an argument");
  llvm::copy(tensor.values, (*cells)->data());
  (*cells)->allKnown = true;
  return *cells;
}

std::shared_ptr<Cells> Cells::ofScalar(Type type, Scalar value) {
  Tensor tensor(type, {});
  tensor.values[0] = value;
  return ofTensor(tensor);
}

std::optional<Box> Cells::unknownPart(const Box &box) const {
  if (allKnown || box.size() == 0)
    return std::nullopt;
  // Elements usually become known box by box, so memchr mostly finds an unknown element at once.
  SmallVector<int64_t> low(box.rank(), INT64_MAX), high(box.rank(), -1);
  bool found = false;
  Box rows = box;
  int64_t length = box.rank() ? box.sizes.back() : 1;
  if (box.rank())
    rows.sizes.back() = 1;
  forEachPoint(rows, [&](ArrayRef<int64_t> index) {
    const bool *row = known.get() + linearIndex(index, strides);
    const void *first = std::memchr(row, 0, length);
    if (!first)
      return;
    found = true;
    if (index.empty())
      return;
    int64_t last = length - 1;
    while (row[last])
      --last;
    for (auto [dim, position] : llvm::enumerate(index)) {
      bool isLast = dim + 1 == index.size();
      low[dim] = std::min(low[dim], isLast ? position + (static_cast<const bool *>(first) - row) : position);
      high[dim] = std::max(high[dim], isLast ? position + last : position);
    }
  });
  if (!found)
    return std::nullopt;
  Box part{low, {}};
  for (auto [first, last] : llvm::zip_equal(low, high))
    part.sizes.push_back(last - first + 1);
  return part;
}

void Cells::setKnown(const Box &box) {
  if (allKnown)
    return;
  if (box.size() == count) {
    allKnown = true;
    return;
  }
  forEachRow(box, strides, [&](int64_t first, int64_t length) { std::memset(known.get() + first, 1, length); });
}
