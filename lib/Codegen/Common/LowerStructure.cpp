//===- LowerStructure.cpp - Conversion steps of CPU and GPU code --------------===//
#include "LowerStructure.h"
#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

LogicalResult saccade::lowerStructure(ArrayRef<Operation *> roots) {
  if (roots.empty())
    return success();
  RewritePatternSet patterns(roots.front()->getContext());
  populateAffineToStdConversionPatterns(patterns);
  populateSCFToControlFlowConversionPatterns(patterns);
  ConversionTarget target(*roots.front()->getContext());
  target.addIllegalDialect<affine::AffineDialect>();
  target.addIllegalOp<scf::ForOp, scf::IfOp, scf::IndexSwitchOp, scf::WhileOp, scf::ExecuteRegionOp>();
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  return applyPartialConversion(roots, target, std::move(patterns));
}

LogicalResult saccade::convertFully(Operation *root, const ConversionTarget &target, RewritePatternSet patterns) {
  if (failed(applyFullConversion(root, target, std::move(patterns))))
    return failure();
  SmallVector<UnrealizedConversionCastOp> casts;
  root->walk([&](UnrealizedConversionCastOp op) { casts.push_back(op); });
  reconcileUnrealizedCasts(casts);
  return success();
}
