//===- Slice.cpp - tensor.extract_slice and tensor.insert_slice ------------------===//
#include "Frame.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade::reference;

namespace {

/// An evaluated slice: index i of the slice is index offsets + i · strides of the whole tensor.
struct Slice {
  SmallVector<int64_t> offsets, sizes, strides;
  SmallVector<unsigned> kept; ///< dimensions that remain in a rank-reduced slice

  /// Evaluates offsets, sizes and strides of `op` and checks that the slice is within a tensor of shape `whole`.
  template <typename OpTy> static FailureOr<Slice> of(OpTy op, Frame &frame, ArrayRef<int64_t> whole) {
    Slice slice;
    if (failed(frame.indices(op.getMixedOffsets(), slice.offsets)) ||
        failed(frame.indices(op.getMixedSizes(), slice.sizes)) ||
        failed(frame.indices(op.getMixedStrides(), slice.strides)))
      return failure();
    llvm::SmallBitVector dropped = op.getDroppedDims();
    for (auto [dim, extent] : llvm::enumerate(whole)) {
      if (!dropped[dim])
        slice.kept.push_back(dim);
      int64_t size = slice.sizes[dim];
      int64_t first = slice.offsets[dim], last = first + (size - 1) * slice.strides[dim];
      bool isWithin = size == 0 || (size > 0 && std::min(first, last) >= 0 && std::max(first, last) < extent);
      if (!isWithin)
        return op.emitOpError() << "accesses indices " << first << " to " << last << " of dimension " << dim
                                << ", which has extent " << extent;
    }
    return slice;
  }

  /// Index in the whole tensor of `index` of the (rank-reduced) slice.
  SmallVector<int64_t> positionOf(ArrayRef<int64_t> index) const {
    SmallVector<int64_t> position(offsets);
    for (auto [dim, i] : llvm::zip_equal(kept, index))
      position[dim] += i * strides[dim];
    return position;
  }

  /// Bounding box, in the whole tensor, of `box` of the slice.
  Box around(const Box &box) const {
    SmallVector<int64_t> last(box.offsets);
    for (auto [end, size] : llvm::zip_equal(last, box.sizes))
      end += size - 1;
    SmallVector<int64_t> low = positionOf(box.offsets), high = positionOf(last);
    Box boundingBox;
    for (auto [a, b] : llvm::zip_equal(low, high)) {
      boundingBox.offsets.push_back(std::min(a, b));
      boundingBox.sizes.push_back(std::abs(b - a) + 1);
    }
    return boundingBox;
  }

  /// The part of the slice within `box` of the whole tensor; nullopt if empty.
  std::optional<Box> within(const Box &box) const {
    Box part;
    unsigned next = 0;
    for (int64_t dim = 0; dim < box.rank(); ++dim) {
      int64_t first = 0;
      while (first < sizes[dim] && !contains(box, dim, first))
        ++first;
      int64_t end = first;
      while (end < sizes[dim] && contains(box, dim, end))
        ++end;
      if (first == end)
        return std::nullopt;
      if (next < kept.size() && kept[next] == dim) {
        part.offsets.push_back(first);
        part.sizes.push_back(end - first);
        ++next;
      }
    }
    return part;
  }

private:
  bool contains(const Box &box, int64_t dim, int64_t index) const {
    int64_t position = offsets[dim] + index * strides[dim];
    return position >= box.offsets[dim] && position < box.offsets[dim] + box.sizes[dim];
  }
};

} // namespace

static LogicalResult shapeOfExtractSlice(tensor::ExtractSliceOp op, Frame &frame, unsigned, Shape &shape) {
  SmallVector<int64_t> sizes;
  if (failed(frame.indices(op.getMixedSizes(), sizes)))
    return failure();
  llvm::SmallBitVector dropped = op.getDroppedDims();
  for (auto [dim, size] : llvm::enumerate(sizes))
    if (!dropped[dim])
      shape.push_back(size);
  return success();
}

static LogicalResult evaluateExtractSlice(tensor::ExtractSliceOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> from = frame.cells(op.getSource()), to = frame.cells(op.getResult());
  if (failed(from) || failed(to))
    return failure();
  FailureOr<Slice> slice = Slice::of(op, frame, (*from)->getShape());
  if (failed(slice) || failed(frame.demand(op.getSource(), slice->around(box))))
    return failure();
  forEachPoint(box, [&](ArrayRef<int64_t> index) { (*to)->at(index) = (*from)->at(slice->positionOf(index)); });
  return success();
}

static LogicalResult shapeOfInsertSlice(tensor::InsertSliceOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> dest = frame.cells(op.getDest());
  if (failed(dest))
    return failure();
  shape.assign((*dest)->getShape().begin(), (*dest)->getShape().end());
  return success();
}

static LogicalResult evaluateInsertSlice(tensor::InsertSliceOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> to = frame.cells(op.getResult()), from = frame.cells(op.getSource());
  if (failed(to) || failed(from))
    return failure();
  FailureOr<Slice> slice = Slice::of(op, frame, (*to)->getShape());
  if (failed(slice))
    return failure();
  Shape expected;
  for (unsigned dim : slice->kept)
    expected.push_back(slice->sizes[dim]);
  if ((*from)->getShape() != ArrayRef<int64_t>(expected))
    return op.emitOpError() << "inserts a source of shape [" << (*from)->getShape() << "], expected ["
                            << ArrayRef<int64_t>(expected) << "]";
  std::optional<Box> inserted = slice->within(box);
  // If the slice covers the box, the destination is not needed.
  if (!inserted || inserted->size() != box.size()) {
    FailureOr<Cells *> dest = frame.demand(op.getDest(), box);
    if (failed(dest))
      return failure();
    forEachRow(box, (*to)->getStrides(), [&](int64_t first, int64_t length) {
      std::copy_n((*dest)->data() + first, length, (*to)->data() + first);
    });
  }
  if (!inserted)
    return success();
  if (failed(frame.demand(op.getSource(), *inserted)))
    return failure();
  forEachPoint(*inserted, [&](ArrayRef<int64_t> index) { (*to)->at(slice->positionOf(index)) = (*from)->at(index); });
  return success();
}

void saccade::reference::addSliceSemantics(SemanticsTable &table) {
  table.add<tensor::ExtractSliceOp>(shapeOfExtractSlice, evaluateExtractSlice);
  table.add<tensor::InsertSliceOp>(shapeOfInsertSlice, evaluateInsertSlice);
}
