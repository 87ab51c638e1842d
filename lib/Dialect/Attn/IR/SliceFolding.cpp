//===- SliceFolding.cpp - Canonical slices that keep some unit dimensions -----===//
//
// A slice may drop dimensions of extent 1. Upstream, when it learns that a size is constant, drops the first ones,
// whichever were dropped before, and so turns 1×16 into 16×1. Heads, batches and single queries are such dimensions
// everywhere in attention; these patterns come before upstream's and keep what was kept.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// Offsets, sizes and strides of a slice with their constants, and the type of its small side.
struct ConstantSlice {
  SmallVector<OpFoldResult> offsets, sizes, strides;
  RankedTensorType type;
};

/// Nothing where `op` keeps all dimensions (upstream does those well), or where no operand is constant.
template <typename OpTy> std::optional<ConstantSlice> foldConstants(OpTy op, RankedTensorType smallType) {
  ConstantSlice slice{op.getMixedOffsets(), op.getMixedSizes(), op.getMixedStrides(), {}};
  if (smallType.getRank() == int64_t(slice.sizes.size()))
    return std::nullopt;
  bool anyOffset = succeeded(foldDynamicOffsetSizeList(slice.offsets));
  bool anySize = succeeded(foldDynamicOffsetSizeList(slice.sizes));
  bool anyStride = succeeded(foldDynamicStrideList(slice.strides));
  if (!anyOffset && !anySize && !anyStride)
    return std::nullopt;
  llvm::SmallBitVector dropped = op.getDroppedDims();
  SmallVector<int64_t> shape;
  for (auto [i, size] : llvm::enumerate(slice.sizes))
    if (!dropped.test(i))
      shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  slice.type = smallType.clone(shape);
  return slice;
}

struct FoldExtractedSlice : OpRewritePattern<tensor::ExtractSliceOp> {
  explicit FoldExtractedSlice(MLIRContext *context) : OpRewritePattern(context, /*benefit=*/10) {}
  LogicalResult matchAndRewrite(tensor::ExtractSliceOp op, PatternRewriter &rewriter) const override {
    std::optional<ConstantSlice> slice = foldConstants(op, op.getType());
    if (!slice)
      return failure();
    Value result = tensor::ExtractSliceOp::create(rewriter, op.getLoc(), slice->type, op.getSource(), slice->offsets,
                                                  slice->sizes, slice->strides);
    if (result.getType() != op.getType())
      result = tensor::CastOp::create(rewriter, op.getLoc(), op.getType(), result);
    rewriter.replaceOp(op, result);
    return success();
  }
};

/// For tensor.insert_slice and tensor.parallel_insert_slice.
template <typename OpTy> struct FoldInsertedSlice : OpRewritePattern<OpTy> {
  explicit FoldInsertedSlice(MLIRContext *context) : OpRewritePattern<OpTy>(context, /*benefit=*/10) {}
  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    std::optional<ConstantSlice> slice = foldConstants(op, op.getSourceType());
    if (!slice)
      return failure();
    Value source = op.getSource();
    if (source.getType() != slice->type) {
      // Nothing but insertions may stand beside a parallel insertion.
      OpBuilder::InsertionGuard guard(rewriter);
      if constexpr (std::is_same_v<OpTy, tensor::ParallelInsertSliceOp>)
        rewriter.setInsertionPoint(op->getParentOp());
      source = tensor::CastOp::create(rewriter, op.getLoc(), slice->type, source);
    }
    rewriter.replaceOpWithNewOp<OpTy>(op, source, op.getDest(), slice->offsets, slice->sizes, slice->strides);
    return success();
  }
};

} // namespace

void AttnDialect::getCanonicalizationPatterns(RewritePatternSet &patterns) const {
  patterns.add<FoldExtractedSlice, FoldInsertedSlice<tensor::InsertSliceOp>,
               FoldInsertedSlice<tensor::ParallelInsertSliceOp>>(getContext());
}
