//===- ExpandViews.cpp - Expanded views as address arithmetic -----------------===//
//
// CPU and GPU code generation share this step of the conversion to the LLVM dialect.
//
//===----------------------------------------------------------------------===//
#include "ExpandViews.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

static void expandView(memref::ExpandShapeOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  auto [staticStrides, staticOffset] = op.getResultType().getStridesAndOffset();
  auto metadata = memref::ExtractStridedMetadataOp::create(builder, loc, op.getSrc());
  auto known = [&](int64_t value, Value otherwise) -> OpFoldResult {
    return ShapedType::isDynamic(value) ? OpFoldResult(otherwise) : builder.getIndexAttr(value);
  };
  // A rank-0 source has no groups; unit strides then remain.
  SmallVector<OpFoldResult> sizes = op.getMixedOutputShape(), strides(sizes.size(), builder.getIndexAttr(1));
  for (auto [group, innermost] : llvm::zip_equal(op.getReassociationIndices(), metadata.getStrides())) {
    Value stride = innermost;
    for (int64_t dim : llvm::reverse(group)) {
      strides[dim] = known(staticStrides[dim], stride);
      Value size = getValueOrCreateConstantIndexOp(builder, loc, sizes[dim]);
      stride = arith::MulIOp::create(builder, loc, stride, size);
    }
  }
  Value view = memref::ReinterpretCastOp::create(builder, loc, op.getResultType(), op.getSrc(),
                                                 known(staticOffset, metadata.getOffset()), sizes, strides);
  op.replaceAllUsesWith(view);
  op.erase();
}

void saccade::expandViews(Operation *root) { root->walk(expandView); }
