//===- ImportTosa.cpp - Lower ops of TOSA -------------------------------------===//
//
// Runs upstream's passes from TOSA to the common form where a program has ops of TOSA. It stands in front of raising,
// which reads the common form only.
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

/// Marks branches and maxima that were there before upstream's passes.
static constexpr StringLiteral ownMark = "attn.own";

/// Where extents are open, upstream asks at run time whether one is 1 and copies the tensor if so. Here two that meet
/// are equal, which is checked when the program is called: the tensor stays as it is, and either extent is the
/// result's. What the program itself asks stays.
static void assumeEqualDims(ModuleOp module) {
  SmallVector<scf::IfOp> stretches;
  SmallVector<arith::MaxUIOp> larger;
  module.walk([&](Operation *op) {
    if (op->removeDiscardableAttr(ownMark))
      return;
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      auto compare = branch.getCondition().getDefiningOp<arith::CmpIOp>();
      auto extent = compare ? compare.getLhs().getDefiningOp<tensor::DimOp>() : nullptr;
      if (extent && branch.getNumResults() == 1 && branch.elseBlock() &&
          branch.elseYield().getResults().front() == extent.getSource())
        stretches.push_back(branch);
    } else if (auto maximum = dyn_cast<arith::MaxUIOp>(op)) {
      auto isExtent = [](Value value) { return isa_and_nonnull<tensor::DimOp, arith::MaxUIOp>(value.getDefiningOp()); };
      if (llvm::all_of(maximum->getOperands(), isExtent))
        larger.push_back(maximum);
    }
  });
  for (scf::IfOp branch : stretches) {
    branch.getResult(0).replaceAllUsesWith(branch.elseYield().getResults().front());
    branch.erase();
  }
  for (arith::MaxUIOp maximum : larger) {
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
    // Shapes that ops were given stay behind.
    WalkResult left = getOperation().walk<WalkOrder::PostOrder, ReverseIterator>([&](Operation *op) {
      if (!isTosa(op))
        return WalkResult::advance();
      if (isOpTriviallyDead(op)) {
        op->erase();
        return WalkResult::advance();
      }
      op->emitError() << op->getName() << ": this op is not supported";
      return WalkResult::interrupt();
    });
    if (left.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
