//===- FlattenRows.cpp - Collapse the rows of matmuls -------------------------===//
//
// Collapses batch and sequence to one dimension of rows in matmuls and the structured ops around them, so that tiles of
// rows span sequences. Runs after fusion, which leaves fewer ops to reshape.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_FLATTENROWS
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade;

/// The groups of loops of a matmul that can be collapsed: those of m, of n and of k.
static SmallVector<ReassociationIndices> findGroups(linalg::LinalgOp op) {
  SmallVector<ReassociationIndices> groups;
  if (!op.hasPureTensorSemantics() || !isMatmul(op))
    return groups;
  FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(op);
  for (ArrayRef<unsigned> loops : {ArrayRef(dims->m), ArrayRef(dims->n), ArrayRef(dims->k)}) {
    ReassociationIndices group(loops);
    llvm::sort(group);
    if (group.size() > 1 && group.back() - group.front() == int64_t(group.size()) - 1 &&
        linalg::areDimSequencesPreserved(op.getIndexingMapsArray(), {group}))
      groups.push_back(group);
  }
  return groups;
}

/// Whether an operand is the output of attention.
static bool isOutput(Value value) {
  auto attention = value.getDefiningOp<attn::AttentionOp>();
  return attention && attention.getOutput() == value;
}

/// Whether a reshape of the output of attention, which joins the heads, moves after the elementwise op that reads it.
/// The tasks of the attention can compute an op with the dimensions of the output, such as an output gate.
static bool movesReshape(OpOperand *operand) {
  auto reshape = operand->get().getDefiningOp<tensor::CollapseShapeOp>();
  auto consumer = dyn_cast<linalg::GenericOp>(operand->getOwner());
  return reshape && consumer && isOutput(reshape.getSrc()) && reshape.getSrc().hasOneUse() && reshape->hasOneUse() &&
         consumer.getNumParallelLoops() == consumer.getNumLoops();
}

/// Replaces the extents of reshaped outputs of attention by those of their sources.
static void readExtentsOfOutputs(Operation *root) {
  root->walk([](tensor::DimOp dim) {
    auto reshape = dim.getSource().getDefiningOp<tensor::CollapseShapeOp>();
    std::optional<int64_t> number = dim.getConstantIndex();
    if (!reshape || !number || !isOutput(reshape.getSrc()) || reshape.getReassociationIndices()[*number].size() != 1)
      return;
    OpBuilder b(dim);
    auto source = reshape.getSrc().getDefiningOp<attn::AttentionOp>();
    attn::Dim which = source.getOutputDims().getDims()[reshape.getReassociationIndices()[*number][0]];
    if (which == attn::Dim::Depth)
      return;
    OpFoldResult extent = attn::getDimSize(b, dim.getLoc(), source.getQuery(), source.getQueryDims(), which);
    dim.replaceAllUsesWith(getValueOrCreateConstantIndexOp(b, dim.getLoc(), extent));
    dim.erase();
  });
}

namespace {

struct FlattenRows : attn::impl::FlattenRowsBase<FlattenRows> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    readExtentsOfOutputs(getOperation());
    RewritePatternSet outputs(context);
    linalg::populateFoldReshapeOpsByExpansionPatterns(outputs, movesReshape);
    if (failed(applyPatternsGreedily(getOperation(), std::move(outputs))))
      return signalPassFailure();
    RewritePatternSet patterns(context);
    linalg::populateCollapseDimensions(patterns, findGroups);
    // Propagates reshapes through structured ops, except for matmuls that could not be collapsed, and ops that keep the
    // dimensions of attention.
    linalg::populateFoldReshapeOpsByCollapsingPatterns(patterns, [](OpOperand *operand) {
      auto isFixed = [](linalg::LinalgOp op) {
        return op && (isMatmul(op) || llvm::any_of(op->getOperands(), isOutput));
      };
      return !isFixed(operand->get().getDefiningOp<linalg::LinalgOp>()) &&
             !isFixed(dyn_cast<linalg::LinalgOp>(operand->getOwner()));
    });
    linalg::FillOp::getCanonicalizationPatterns(patterns, context);
    tensor::CollapseShapeOp::getCanonicalizationPatterns(patterns, context);
    tensor::ExpandShapeOp::getCanonicalizationPatterns(patterns, context);
    tensor::populateFoldTensorEmptyPatterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
