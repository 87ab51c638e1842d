//===- SliceFolding.cpp - Canonical slices that keep some unit dimensions -----===//
//
// Slices may drop unit dimensions. When upstream folds a constant size, it drops the first unit dimensions instead of
// the dropped ones, and so turns 1×16 into 16×1. These patterns have a higher benefit and keep the dropped dimensions;
// heads, batches and single queries of attention are such dimensions.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/PatternMatch.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// Offsets, sizes and strides of a slice with constants folded, and the type of the slice.
struct ConstantSlice {
  SmallVector<OpFoldResult> offsets, sizes, strides;
  RankedTensorType type;
};

/// Nullopt if `op` keeps all dimensions (upstream folds these correctly), or if no operand is constant.
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
      // The terminator region of scf.forall holds insertions only, so the cast goes before it.
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

void AttnDialect::getCanonicalizationPatterns(RewritePatternSet &results) const {
  results.add<FoldExtractedSlice, FoldInsertedSlice<tensor::InsertSliceOp>,
              FoldInsertedSlice<tensor::ParallelInsertSliceOp>>(getContext());
}
