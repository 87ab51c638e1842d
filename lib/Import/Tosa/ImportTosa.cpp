//===- ImportTosa.cpp - Lower TOSA ops ------------------------------------===//
//
// Runs MLIR's own lowering of TOSA if the program has TOSA ops. Runs before raising, which requires linalg on tensors.
//
//===----------------------------------------------------------------------===//
#include "mlir/Conversion/TosaToArith/TosaToArith.h"
#include "mlir/Conversion/TosaToLinalg/TosaToLinalg.h"
#include "mlir/Conversion/TosaToTensor/TosaToTensor.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Index/IR/IndexDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tosa/IR/TosaOps.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Import/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_IMPORTTOSA
#include "saccade/Import/Passes.h.inc"
} // namespace saccade

using namespace mlir;

/// Marks scf.if and arith.maxui ops that existed before MLIR's lowering.
static constexpr StringLiteral ownMark = "attn.own";

/// For dynamic extents, MLIR's lowering emits a run-time test for extent 1 and a broadcasting copy. Here matching
/// dynamic extents are equal, which the entry point checks, so the branch and the maximum of the extents are removed.
/// Ops that existed before are kept.
static void assumeEqualDims(ModuleOp module) {
  SmallVector<scf::IfOp> broadcasts;
  SmallVector<arith::MaxUIOp> maxima;
  module.walk([&](Operation *op) {
    if (op->removeDiscardableAttr(ownMark))
      return;
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      auto compare = branch.getCondition().getDefiningOp<arith::CmpIOp>();
      auto extent = compare ? compare.getLhs().getDefiningOp<tensor::DimOp>() : nullptr;
      if (extent && branch.getNumResults() == 1 && branch.elseBlock() &&
          branch.elseYield().getResults().front() == extent.getSource())
        broadcasts.push_back(branch);
    } else if (auto maximum = dyn_cast<arith::MaxUIOp>(op)) {
      auto isExtent = [](Value value) { return isa_and_nonnull<tensor::DimOp, arith::MaxUIOp>(value.getDefiningOp()); };
      if (llvm::all_of(maximum->getOperands(), isExtent))
        maxima.push_back(maximum);
    }
  });
  for (scf::IfOp branch : broadcasts) {
    branch.getResult(0).replaceAllUsesWith(branch.elseYield().getResults().front());
    branch.erase();
  }
  for (arith::MaxUIOp maximum : maxima) {
    maximum.replaceAllUsesWith(maximum.getLhs());
    maximum.erase();
  }
}

namespace {

struct ImportTosa : saccade::impl::ImportTosaBase<ImportTosa> {
  void runOnOperation() override {
    auto isTosa = [](Operation *op) { return isa_and_nonnull<tosa::TosaDialect>(op->getDialect()); };
    WalkResult found = getOperation().walk(
        [&](Operation *op) { return isTosa(op) ? WalkResult::interrupt() : WalkResult::advance(); });
    if (!found.wasInterrupted())
      return;
    getOperation().walk([&](Operation *op) {
      if (isa<scf::IfOp, arith::MaxUIOp>(op))
        op->setDiscardableAttr(ownMark, UnitAttr::get(&getContext()));
    });
    OpPassManager pipeline(ModuleOp::getOperationName());
    tosa::addTosaToLinalgPasses(pipeline, TosaToLinalgOptions(), TosaToLinalgNamedOptions(),
                                /*validationOptions=*/std::nullopt);
    OpPassManager &function = pipeline.nest<func::FuncOp>();
    function.addPass(createTosaToArithPass());
    function.addPass(createTosaToTensorPass());
    if (failed(runPipeline(pipeline, getOperation())))
      return signalPassFailure();
    assumeEqualDims(getOperation());
    // Erase the remaining dead shape operands.
    WalkResult remaining = getOperation().walk<WalkOrder::PostOrder, ReverseIterator>([&](Operation *op) {
      if (!isTosa(op))
        return WalkResult::advance();
      if (isOpTriviallyDead(op)) {
        op->erase();
        return WalkResult::advance();
      }
      op->emitError() << op->getName() << ": this op is not supported";
      return WalkResult::interrupt();
    });
    if (remaining.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
