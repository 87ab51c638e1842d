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

namespace {

struct FlattenRows : attn::impl::FlattenRowsBase<FlattenRows> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    RewritePatternSet patterns(context);
    linalg::populateCollapseDimensions(patterns, findGroups);
    // Propagates reshapes through structured ops, except for matmuls that could not be collapsed.
    linalg::populateFoldReshapeOpsByCollapsingPatterns(patterns, [](OpOperand *operand) {
      auto producer = operand->get().getDefiningOp<linalg::LinalgOp>();
      auto consumer = dyn_cast<linalg::LinalgOp>(operand->getOwner());
      return !(producer && isMatmul(producer)) && !(consumer && isMatmul(consumer));
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
