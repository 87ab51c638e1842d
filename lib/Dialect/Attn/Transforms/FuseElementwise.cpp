//===- FuseElementwise.cpp - Fuse elementwise ops around attention ------------===//
//
// Fuses bias, norm, activation and residual ops, so that each tensor is read and written once. Runs on whole tensors,
// before schedules are chosen.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_FUSEELEMENTWISE
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade;

/// Whether `op` has parallel loops only.
static bool isPointwise(linalg::LinalgOp op) { return op.getNumParallelLoops() == op.getNumLoops(); }

/// Whether all uses of `value` are init operands.
static bool isOnlyInit(Value value) {
  return llvm::all_of(value.getUses(), [](OpOperand &use) {
    auto user = dyn_cast<linalg::LinalgOp>(use.getOwner());
    return user && user.isDpsInit(&use);
  });
}

namespace {

/// Generalizes named elementwise ops and reductions, so that they can be fused. Inits of reductions and matmuls remain
/// named ops (fill, broadcast), which later passes match.
struct Generalize : OpInterfaceRewritePattern<linalg::LinalgOp> {
  using OpInterfaceRewritePattern::OpInterfaceRewritePattern;

  LogicalResult matchAndRewrite(linalg::LinalgOp op, PatternRewriter &rewriter) const override {
    if (isa<linalg::GenericOp>(op) || !op.hasPureTensorSemantics() || linalg::isaContractionOpInterface(op) ||
        isOnlyInit(op->getResult(0)) || !(isPointwise(op) || isa<linalg::ReduceOp>(op)))
      return failure();
    return linalg::generalizeNamedOp(rewriter, op);
  }
};

/// linalg.softmax -> max, exponential, sum and quotient.
struct DecomposeSoftmax : OpRewritePattern<linalg::SoftmaxOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::SoftmaxOp op, PatternRewriter &rewriter) const override {
    FailureOr<SmallVector<Value>> results = op.decomposeOperation(rewriter);
    if (failed(results))
      return failure();
    rewriter.replaceOp(op, *results);
    return success();
  }
};

/// tensor.splat -> linalg.fill.
struct SplatToFill : OpRewritePattern<tensor::SplatOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::SplatOp op, PatternRewriter &rewriter) const override {
    SmallVector<OpFoldResult> sizes;
    unsigned next = 0;
    for (int64_t extent : op.getType().getShape())
      sizes.push_back(ShapedType::isDynamic(extent) ? OpFoldResult(op.getDynamicSizes()[next++])
                                                    : OpFoldResult(rewriter.getIndexAttr(extent)));
    Value empty = tensor::EmptyOp::create(rewriter, op.getLoc(), sizes, op.getType().getElementType());
    rewriter.replaceOpWithNewOp<linalg::FillOp>(op, op.getInput(), empty);
    return success();
  }
};

/// Whether `op` reads its output operand. In the loop nest of another op, which may have more loops, it would update
/// the output several times.
bool updatesOutput(linalg::LinalgOp op) {
  return llvm::any_of(op.getDpsInitsMutable(), [&](OpOperand &init) { return op.payloadUsesValueFromOperand(&init); });
}

/// Fuses elementwise producers with a single use, so that nothing is recomputed, and never into contractions.
bool shouldFuse(OpOperand *operand) {
  auto producer = operand->get().getDefiningOp<linalg::LinalgOp>();
  auto consumer = dyn_cast<linalg::LinalgOp>(operand->getOwner());
  return producer && consumer && producer->hasOneUse() && isPointwise(producer) && !updatesOutput(producer) &&
         !linalg::isaContractionOpInterface(consumer);
}

struct FuseElementwise : attn::impl::FuseElementwiseBase<FuseElementwise> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    RewritePatternSet structure(context);
    structure.add<DecomposeSoftmax, Generalize, SplatToFill>(context);
    linalg::populateConvertToDestinationStylePatterns(structure);
    tensor::populateDecomposeTensorConcatPatterns(structure);
    if (failed(applyPatternsGreedily(getOperation(), std::move(structure))))
      return signalPassFailure();

    RewritePatternSet fusion(context);
    linalg::populateElementwiseOpsFusionPatterns(fusion, shouldFuse);
    if (failed(applyPatternsGreedily(getOperation(), std::move(fusion))))
      return signalPassFailure();
  }
};

} // namespace
