//===- FoldTransposes.cpp - Fold transposes into attention --------------------===//
//
// Replaces transposes of operands and outputs of attention by other dimension names, and roundings of outputs by other
// element types. Runs after fusion, which converts
// all transposes to structured ops, and before tiling.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_FOLDTRANSPOSES
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade;
using attn::AttentionOp, attn::DimsAttr;

/// If `op` is a transpose: for each dimension of the result the dimension of the input.
static std::optional<SmallVector<int64_t>> readPermutation(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 1 || op.getNumDpsInits() != 1 ||
      op.getBlock()->getTerminator()->getOperand(0) != op.getBlock()->getArgument(0))
    return std::nullopt;
  AffineMap read = op.getMatchingIndexingMap(op.getDpsInputOperand(0));
  AffineMap written = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (!read.isPermutation() || !written.isPermutation())
    return std::nullopt;
  // From each dimension of the result to its loop, and from the loop to the dimension of the input.
  SmallVector<int64_t> permutation;
  for (AffineExpr loop : written.getResults())
    permutation.push_back(*read.getResultPosition(loop));
  return permutation;
}

/// Moves the name of dimension i to dimension permutation[i].
static DimsAttr permuteDims(DimsAttr dims, ArrayRef<int64_t> permutation) {
  SmallVector<attn::Dim> names(dims.getDims());
  for (auto [name, to] : llvm::zip_equal(dims.getDims(), permutation))
    names[to] = name;
  return DimsAttr::get(dims.getContext(), names);
}

namespace {

/// attention(transpose(x)) -> attention(x), for query, key and value.
struct FoldOperand : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    auto fold = [&](OpOperand &operand, DimsAttr dims, auto setDims) {
      auto transpose = operand.get().getDefiningOp<linalg::LinalgOp>();
      std::optional<SmallVector<int64_t>> permutation = transpose ? readPermutation(transpose) : std::nullopt;
      if (!permutation)
        return false;
      rewriter.modifyOpInPlace(op, [&] {
        operand.set(transpose.getDpsInputs()[0]);
        setDims(permuteDims(dims, *permutation));
      });
      return true;
    };
    bool isFolded = fold(op.getQueryMutable(), op.getQueryDims(), [&](DimsAttr dims) { op.setQueryDimsAttr(dims); });
    isFolded |= fold(op.getKeyMutable(), op.getKeyDims(), [&](DimsAttr dims) { op.setKeyDimsAttr(dims); });
    isFolded |= fold(op.getValueMutable(), op.getValueDims(), [&](DimsAttr dims) { op.setValueDimsAttr(dims); });
    return success(isFolded);
  }
};

/// transpose(attention) -> attention with permuted output, if the transpose is the only user.
struct FoldOutput : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    Value output = op.getOutput();
    if (!output.hasOneUse())
      return failure();
    auto transpose = dyn_cast<linalg::LinalgOp>(*output.user_begin());
    std::optional<SmallVector<int64_t>> permutation = transpose ? readPermutation(transpose) : std::nullopt;
    if (!permutation || transpose.getDpsInputs()[0] != output)
      return failure();
    SmallVector<attn::Dim> names;
    for (int64_t from : *permutation)
      names.push_back(op.getOutputDims().getDims()[from]);
    auto type = cast<RankedTensorType>(output.getType());
    rewriter.modifyOpInPlace(op, [&] {
      op.setOutputDimsAttr(DimsAttr::get(op.getContext(), names));
      output.setType(type.clone(applyPermutation(type.getShape(), *permutation)));
    });
    Value replacement = output;
    rewriter.setInsertionPointAfter(op);
    if (Type expected = transpose->getResult(0).getType(); replacement.getType() != expected)
      replacement = tensor::CastOp::create(rewriter, op.getLoc(), expected, replacement);
    rewriter.replaceOp(transpose, replacement);
    return success();
  }
};

/// An op that rounds an output to the type of the query, and is its only user, becomes one that copies a rounded
/// output: a frontend whose attention has results of f32 rounds them.
struct FoldRounding : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    Value output = op.getOutput();
    auto round = output.hasOneUse() ? dyn_cast<linalg::GenericOp>(*output.user_begin()) : linalg::GenericOp();
    if (!round || round.getNumDpsInputs() != 1 || round->getNumResults() != 1)
      return failure();
    Operation *end = round.getBody()->getTerminator();
    auto truncate = end->getOperand(0).getDefiningOp<arith::TruncFOp>();
    BlockArgument element = round.getBody()->getArgument(0);
    if (!truncate || truncate.getIn() != element || !element.hasOneUse() ||
        truncate.getType() != getElementTypeOrSelf(op.getQuery()))
      return failure();
    rewriter.modifyOpInPlace(
        op, [&] { output.setType(cast<RankedTensorType>(output.getType()).clone(truncate.getType())); });
    rewriter.modifyOpInPlace(round, [&] {
      element.setType(truncate.getType());
      end->setOperand(0, element);
    });
    rewriter.eraseOp(truncate);
    return success();
  }
};

/// Whether a reshape of the output of attention, which divides heads into groups, moves after the op that rounds it. A
/// frontend that repeats the KV heads of grouped queries has one.
bool dividesHeads(OpOperand *operand) {
  auto reshape = operand->get().getDefiningOp<tensor::ExpandShapeOp>();
  auto consumer = dyn_cast<linalg::GenericOp>(operand->getOwner());
  return reshape && consumer && reshape->hasOneUse() && consumer.getNumDpsInputs() == 1 &&
         consumer.getNumParallelLoops() == consumer.getNumLoops() && reshape.getSrc().getDefiningOp<AttentionOp>() &&
         reshape.getSrc().hasOneUse();
}

struct FoldTransposes : attn::impl::FoldTransposesBase<FoldTransposes> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<FoldOperand, FoldOutput, FoldRounding>(&getContext());
    linalg::populateFoldReshapeOpsByCollapsingPatterns(patterns, dividesHeads);
    tensor::CollapseShapeOp::getCanonicalizationPatterns(patterns, &getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
