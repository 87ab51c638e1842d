//===- FoldBoundaryReshapes.cpp - Reshape arguments and results in place ------===//
//
// Converts reshapes of arguments and results to views if run-time strides allow it, and to copies otherwise. Runs
// before bufferization, which decides statically and would always copy.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Bufferize/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_FOLDBOUNDARYRESHAPES
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;

//===----------------------------------------------------------------------===//
// Collapsed views
//===----------------------------------------------------------------------===//

namespace {
/// A buffer viewed in a shape of fewer dimensions.
struct CollapsedView {
  Value fits; ///< i1: whether strides allow the view
  Value view; ///< fully dynamic layout; valid only if `fits`
  SmallVector<Value> sizes;
};
} // namespace

static MemRefType getStridedType(ShapedType type) {
  SmallVector<int64_t> strides(type.getRank(), ShapedType::kDynamic);
  return MemRefType::get(type.getShape(), type.getElementType(),
                         StridedLayoutAttr::get(type.getContext(), ShapedType::kDynamic, strides));
}

/// The extent and stride of a group of dimensions (outermost first) collapsed to one. `fits` becomes false if an outer
/// stride is not the product of the inner stride and extent; strides of dimensions of extent 1 are ignored.
static std::pair<Value, Value> collapseGroup(OpBuilder &builder, Location loc, ValueRange sizes, ValueRange strides,
                                             Value &fits) {
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  if (sizes.empty())
    return {one, one};
  auto isOne = [&](Value value) -> Value {
    return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, value, one);
  };
  Value size = sizes.back(), stride = strides.back();
  for (auto [outerSize, outerStride] : llvm::reverse(llvm::zip_equal(sizes.drop_back(), strides.drop_back()))) {
    Value next = arith::MulIOp::create(builder, loc, stride, size);
    Value dense = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, outerStride, next);
    Value innerIsOne = isOne(size);
    Value good =
        arith::OrIOp::create(builder, loc, dense, arith::OrIOp::create(builder, loc, innerIsOne, isOne(outerSize)));
    fits = arith::AndIOp::create(builder, loc, fits, good);
    stride = arith::SelectOp::create(builder, loc, innerIsOne, outerStride, stride);
    size = arith::MulIOp::create(builder, loc, size, outerSize);
  }
  return {size, stride};
}

static CollapsedView createCollapsedView(OpBuilder &builder, Location loc, Value buffer, RankedTensorType type,
                                         ArrayRef<ReassociationIndices> groups) {
  auto metadata = memref::ExtractStridedMetadataOp::create(builder, loc, buffer);
  ArrayRef<int64_t> shape = cast<MemRefType>(buffer.getType()).getShape();
  SmallVector<Value> allSizes;
  for (auto [extent, size] : llvm::zip_equal(shape, metadata.getSizes()))
    allSizes.push_back(
        ShapedType::isDynamic(extent) ? size : arith::ConstantIndexOp::create(builder, loc, extent).getResult());
  CollapsedView result;
  result.fits = arith::ConstantIntOp::create(builder, loc, 1, 1);
  SmallVector<OpFoldResult> sizes, strides;
  for (auto [i, group] : llvm::enumerate(groups)) {
    SmallVector<Value> groupSizes, groupStrides;
    for (int64_t dim : group) {
      groupSizes.push_back(allSizes[dim]);
      groupStrides.push_back(metadata.getStrides()[dim]);
    }
    auto [size, stride] = collapseGroup(builder, loc, groupSizes, groupStrides, result.fits);
    result.sizes.push_back(size);
    sizes.push_back(type.isDynamicDim(i) ? OpFoldResult(size) : builder.getIndexAttr(type.getDimSize(i)));
    strides.push_back(stride);
  }
  result.view = memref::ReinterpretCastOp::create(builder, loc, getStridedType(type), buffer,
                                                  OpFoldResult(metadata.getOffset()), sizes, strides);
  return result;
}

/// Allocates a compact copy of `view`, with zero elements if the view fits.
static Value createFallback(OpBuilder &builder, Location loc, const CollapsedView &view, RankedTensorType type) {
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  SmallVector<Value> sizes;
  // Only dynamic extents can be set to 0; one suffices.
  for (auto [i, size] : llvm::enumerate(view.sizes))
    if (type.isDynamicDim(i))
      sizes.push_back(arith::SelectOp::create(builder, loc, view.fits, zero, size));
  return memref::AllocOp::create(builder, loc, MemRefType::get(type.getShape(), type.getElementType()), sizes);
}

/// Copies between `buffer` and its compact collapsed copy `fallback` if the view does not fit.
static void createCopyUnlessFits(OpBuilder &builder, Location loc, const CollapsedView &view, Value buffer,
                                 Value fallback, ArrayRef<ReassociationIndices> groups, bool toFallback) {
  Value no = arith::ConstantIntOp::create(builder, loc, 0, 1);
  Value copies = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, view.fits, no);
  auto ifOp = scf::IfOp::create(builder, loc, copies, /*withElseRegion=*/false);
  OpBuilder inner = ifOp.getThenBodyBuilder();
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<OpFoldResult> sizes = memref::getMixedSizes(inner, loc, buffer);
  Value expanded = memref::ExpandShapeOp::create(inner, loc, MemRefType::get(type.getShape(), type.getElementType()),
                                                 fallback, groups, sizes);
  linalg::CopyOp::create(inner, loc, toFallback ? buffer : expanded, toFallback ? expanded : buffer);
}

/// Selects the view if it fits, otherwise the fallback.
static Value createChoice(OpBuilder &builder, Location loc, const CollapsedView &view, Value fallback) {
  Value strided = memref::CastOp::create(builder, loc, view.view.getType(), fallback);
  return arith::SelectOp::create(builder, loc, view.fits, view.view, strided);
}

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

static bool isEntryArgument(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  return argument && isa<func::FuncOp>(argument.getOwner()->getParentOp());
}

/// Replaces a collapsed argument by a view or a copy of it.
static void foldCollapsedArgument(tensor::CollapseShapeOp op) {
  Location loc = op.getLoc();
  OpBuilder builder(op);
  builder.setInsertionPointAfterValue(op.getSrc());
  Value buffer = bufferization::ToBufferOp::create(builder, loc, getStridedType(op.getSrcType()), op.getSrc(),
                                                   /*read_only=*/true);
  auto groups = op.getReassociationIndices();
  CollapsedView view = createCollapsedView(builder, loc, buffer, op.getResultType(), groups);
  Value fallback = createFallback(builder, loc, view, op.getResultType());
  createCopyUnlessFits(builder, loc, view, buffer, fallback, groups, /*toFallback=*/true);
  Value chosen = createChoice(builder, loc, view, fallback);
  Value tensor = bufferization::ToTensorOp::create(builder, loc, op.getResultType(), chosen, /*restrict=*/true);
  op.replaceAllUsesWith(tensor);
  op.erase();
}

/// Materialises an expanded result before its expansion, in a collapsed view of the result or in a buffer that is
/// copied.
static void foldExpandedResult(bufferization::MaterializeInDestinationOp op, tensor::ExpandShapeOp expand) {
  Location loc = op.getLoc();
  Value result = op.getDest();
  OpBuilder builder(op);
  builder.setInsertionPointToStart(&op->getParentOfType<func::FuncOp>().getBody().front());
  auto groups = expand.getReassociationIndices();
  CollapsedView view = createCollapsedView(builder, loc, result, expand.getSrcType(), groups);
  Value fallback = createFallback(builder, loc, view, expand.getSrcType());
  Value chosen = createChoice(builder, loc, view, fallback);
  op.getSourceMutable().assign(expand.getSrc());
  op.getDestMutable().assign(chosen);
  builder.setInsertionPointAfter(op);
  createCopyUnlessFits(builder, loc, view, result, fallback, groups, /*toFallback=*/false);
}

/// The sizes of `value`, taken from the `tensor.empty` that it was written to. Sets the insertion point of `builder`
/// there; fails if there is none.
static FailureOr<SmallVector<OpFoldResult>> findSizes(OpBuilder &builder, Value value) {
  while (true) {
    Operation *op = value.getDefiningOp();
    if (auto empty = dyn_cast_or_null<tensor::EmptyOp>(op)) {
      builder.setInsertionPoint(empty);
      return empty.getMixedSizes();
    }
    if (auto forall = dyn_cast_or_null<scf::ForallOp>(op))
      value = forall.getTiedOpOperand(cast<OpResult>(value))->get();
    else if (auto loop = dyn_cast_or_null<scf::ForOp>(op))
      value = loop.getTiedLoopInit(cast<OpResult>(value))->get();
    else if (auto written = dyn_cast_or_null<DestinationStyleOpInterface>(op))
      value = written.getTiedOpOperand(cast<OpResult>(value))->get();
    else
      return failure();
  }
}

/// Writes a collapsed result through the expanded view of the destination.
static void foldCollapsedResult(bufferization::MaterializeInDestinationOp op, tensor::CollapseShapeOp collapse) {
  OpBuilder builder(op);
  FailureOr<SmallVector<OpFoldResult>> sizes = findSizes(builder, collapse.getSrc());
  if (failed(sizes))
    return;
  auto groups = collapse.getReassociationIndices();
  auto type = cast<MemRefType>(op.getDest().getType());
  FailureOr<MemRefType> expandedType =
      memref::ExpandShapeOp::computeExpandedType(type, collapse.getSrcType().getShape(), groups);
  if (failed(expandedType))
    return;
  Value view = memref::ExpandShapeOp::create(builder, op.getLoc(), *expandedType, op.getDest(), groups, *sizes);
  op.getSourceMutable().assign(collapse.getSrc());
  op.getDestMutable().assign(view);
}

namespace {

struct FoldBoundaryReshapes : saccade::impl::FoldBoundaryReshapesBase<FoldBoundaryReshapes> {
  void runOnOperation() override {
    SmallVector<tensor::CollapseShapeOp> collapses;
    SmallVector<bufferization::MaterializeInDestinationOp> results;
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (!func.isPublic())
        continue;
      func.walk([&](tensor::CollapseShapeOp op) {
        if (isEntryArgument(op.getSrc()))
          collapses.push_back(op);
      });
      func.walk([&](bufferization::MaterializeInDestinationOp op) {
        if (isEntryArgument(op.getDest()) && isa<MemRefType>(op.getDest().getType()))
          results.push_back(op);
      });
    }
    // Results first: an argument that is returned in another shape matches both folds.
    for (auto op : results) {
      if (auto expand = op.getSource().getDefiningOp<tensor::ExpandShapeOp>())
        foldExpandedResult(op, expand);
      else if (auto collapse = op.getSource().getDefiningOp<tensor::CollapseShapeOp>())
        foldCollapsedResult(op, collapse);
    }
    for (auto op : collapses)
      foldCollapsedArgument(op);
  }
};

} // namespace
