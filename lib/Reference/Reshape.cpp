//===- Reshape.cpp - tensor.expand_shape and tensor.collapse_shape ----------------===//
//
// A reshape preserves row-major order, so an element has the same linear position in source and result. The code finds
// the boxes of the source that contain a box of the result.
//
//===----------------------------------------------------------------------===//
#include "Frame.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade::reference;

/// Splits the linear positions [first, end) of a tensor of shape `sizes` into at most 2 · rank − 1 boxes.
static void cutInterval(int64_t first, int64_t end, ArrayRef<int64_t> sizes, Box prefix, SmallVectorImpl<Box> &boxes) {
  auto push = [&](int64_t offset, int64_t size, ArrayRef<int64_t> rest) {
    Box box = prefix;
    box.offsets.push_back(offset);
    box.sizes.push_back(size);
    box.offsets.append(rest.size(), 0);
    box.sizes.append(rest.begin(), rest.end());
    boxes.push_back(box);
  };
  if (first >= end)
    return;
  if (sizes.empty()) {
    boxes.push_back(prefix);
    return;
  }
  ArrayRef<int64_t> rest = sizes.drop_front();
  int64_t inner = Box::whole(rest).size();
  auto descend = [&](int64_t position, int64_t from, int64_t to) {
    Box fixed = prefix;
    fixed.offsets.push_back(position);
    fixed.sizes.push_back(1);
    cutInterval(from, to, rest, fixed, boxes);
  };
  int64_t low = first / inner, high = end / inner;
  if (low == high)
    return descend(low, first % inner, end % inner);
  if (first % inner) {
    descend(low, first % inner, inner);
    ++low;
  }
  if (low < high)
    push(low, high - low, rest);
  if (end % inner)
    descend(high, 0, end % inner);
}

/// The linear positions of `box` in a tensor of shape `sizes`, as intervals.
static SmallVector<std::pair<int64_t, int64_t>> intervalsOf(Box box, ArrayRef<int64_t> sizes) {
  SmallVector<int64_t> strides = rowMajorStrides(sizes);
  // Fully covered inner dimensions are contiguous.
  int64_t dim = box.rank() - 1;
  while (dim > 0 && box.sizes[dim] == sizes[dim])
    --dim;
  int64_t run = dim >= 0 ? box.sizes[dim] * strides[dim] : 1;
  for (int64_t inner = std::max<int64_t>(dim, 0); inner < box.rank(); ++inner)
    box.sizes[inner] = 1;
  SmallVector<std::pair<int64_t, int64_t>> intervals;
  forEachPoint(box, [&](ArrayRef<int64_t> index) {
    int64_t first = linearIndex(index, strides);
    if (!intervals.empty() && intervals.back().second == first)
      intervals.back().second += run;
    else
      intervals.push_back({first, first + run});
  });
  return intervals;
}

/// Computes `box` of result 0 of `op`. Dimensions groups[i] of the expanded side are dimension i of the collapsed side.
static LogicalResult reshape(Operation *op, Frame &frame, const Box &box, ArrayRef<ReassociationIndices> groups,
                             bool isExpanding) {
  Value source = op->getOperand(0);
  FailureOr<Cells *> from = frame.cells(source), to = frame.cells(op->getResult(0));
  if (failed(from) || failed(to))
    return failure();
  ArrayRef<int64_t> fromShape = (*from)->getShape(), toShape = (*to)->getShape();
  auto countOf = [](ArrayRef<int64_t> shape) { return Box::whole(shape).size(); };
  ArrayRef<int64_t> expanded = isExpanding ? toShape : fromShape, collapsed = isExpanding ? fromShape : toShape;
  if (groups.empty() && countOf(expanded) != countOf(collapsed))
    return op->emitOpError() << "has " << countOf(fromShape) << " elements in its source and " << countOf(toShape)
                             << " in its result";

  // The boxes of the source are the Cartesian products of the boxes of each group.
  SmallVector<Box> needed(1);
  for (auto [i, group] : llvm::enumerate(groups)) {
    ArrayRef<int64_t> sizes = expanded.slice(group.front(), group.size());
    if (countOf(sizes) != collapsed[i])
      return op->emitOpError() << "has " << countOf(sizes) << " elements in the dimensions of group " << i
                               << ", expected " << collapsed[i];
    SmallVector<Box> pieces;
    if (isExpanding) {
      Box part{SmallVector<int64_t>(ArrayRef(box.offsets).slice(group.front(), group.size())),
               SmallVector<int64_t>(ArrayRef(box.sizes).slice(group.front(), group.size()))};
      for (auto [first, end] : intervalsOf(part, sizes))
        pieces.push_back(Box{{first}, {end - first}});
    } else {
      cutInterval(box.offsets[i], box.offsets[i] + box.sizes[i], sizes, {}, pieces);
    }
    SmallVector<Box> products;
    for (const Box &prefix : needed)
      for (const Box &piece : pieces) {
        Box both = prefix;
        both.offsets.append(piece.offsets);
        both.sizes.append(piece.sizes);
        products.push_back(both);
      }
    needed = std::move(products);
  }
  // Without groups, one side has rank 0 and the other only unit extents.
  if (groups.empty())
    needed = {Box::whole(fromShape)};
  for (const Box &piece : needed)
    if (failed(frame.demand(source, piece)))
      return failure();
  forEachRow(box, (*to)->getStrides(), [&](int64_t first, int64_t length) {
    std::copy_n((*from)->data() + first, length, (*to)->data() + first);
  });
  return success();
}

static LogicalResult shapeOfExpand(tensor::ExpandShapeOp op, Frame &frame, unsigned, Shape &shape) {
  return frame.indices(op.getMixedOutputShape(), shape);
}

static LogicalResult evaluateExpand(tensor::ExpandShapeOp op, Frame &frame, unsigned, const Box &box) {
  return reshape(op, frame, box, op.getReassociationIndices(), /*isExpanding=*/true);
}

static LogicalResult shapeOfCollapse(tensor::CollapseShapeOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> source = frame.cells(op.getSrc());
  if (failed(source))
    return failure();
  for (const ReassociationIndices &group : op.getReassociationIndices())
    shape.push_back(Box::whole((*source)->getShape().slice(group.front(), group.size())).size());
  return success();
}

static LogicalResult evaluateCollapse(tensor::CollapseShapeOp op, Frame &frame, unsigned, const Box &box) {
  return reshape(op, frame, box, op.getReassociationIndices(), /*isExpanding=*/false);
}

void saccade::reference::addReshapeSemantics(SemanticsTable &table) {
  table.add<tensor::ExpandShapeOp>(shapeOfExpand, evaluateExpand);
  table.add<tensor::CollapseShapeOp>(shapeOfCollapse, evaluateCollapse);
}
