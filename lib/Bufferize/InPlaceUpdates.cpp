//===- InPlaceUpdates.cpp - Arguments that are updated in place ---------------===//
//
// One-shot bufferization decides which ops write to the memory of an operand and which need a copy. For an argument
// that is updated in place a copy of all of it is an error: it would cost more than the update.
//
//===----------------------------------------------------------------------===//
#include "InPlaceUpdates.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace saccade;

namespace {

/// An argument and the result that updates it.
struct Update {
  func::FuncOp function;
  BlockArgument argument;
  unsigned result;

  func::ReturnOp getReturn() { return cast<func::ReturnOp>(function.front().getTerminator()); }
  Value getReturned() { return getReturn().getOperand(result); }
  std::string name() { return attn::nameValues(function)[argument.getArgNumber()]; }
};

} // namespace

static SmallVector<Update> findUpdates(ModuleOp module) {
  SmallVector<Update> updates;
  for (auto function : module.getOps<func::FuncOp>())
    for (auto [argument, result] : llvm::zip_equal(function.getArguments(), attn::getUpdatingResults(function)))
      if (result && function.isPublic() && isa<TensorType>(argument.getType()))
        updates.push_back({function, argument, *result});
  return updates;
}

/// The first op after `copying` that reads memory of `argument`, or null.
static Operation *findLaterReader(Update &update, Operation *copying, OneShotAnalysisState &state) {
  Block *body = &update.function.front();
  for (Operation *op = body->findAncestorOpInBlock(*copying)->getNextNode(); op; op = op->getNextNode()) {
    WalkResult found = op->walk([&](Operation *nested) {
      auto reads = [&](Value operand) {
        return isa<TensorType>(operand.getType()) && state.areAliasingBufferizedValues(operand, update.argument);
      };
      bool isReader =
          !isa<func::ReturnOp, MaterializeInDestinationOp>(nested) && llvm::any_of(nested->getOperands(), reads);
      return isReader ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (found.wasInterrupted())
      return op;
  }
  return nullptr;
}

/// Refuses a copy of the whole argument. Tasks may copy slices of it.
static LogicalResult verifyWithoutCopy(Update &update, OneShotAnalysisState &state) {
  Operation *copying = nullptr;
  update.function.walk([&](Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      if (isa<TensorType>(operand.get().getType()) && !isa<tensor::ExtractSliceOp>(op) && !state.isInPlace(operand) &&
          state.areEquivalentBufferizedValues(operand.get(), update.argument)) {
        copying = op;
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  if (!copying)
    return success();
  InFlightDiagnostic error = emitError(copying->getLoc())
                             << "argument '" << update.name() << "' is updated in place ('" << attn::updatedByAttr
                             << "'), but this op would have to copy it, expected that nothing reads the contents that "
                                "it overwrites";
  if (Operation *reader = findLaterReader(update, copying, state))
    error.attachNote(reader->getLoc()) << "they are read here; use the updated tensor, or remove the attribute";
  return error;
}

LogicalResult saccade::prepareInPlaceUpdates(ModuleOp module, const OneShotBufferizationOptions &options) {
  SmallVector<Update> updates = findUpdates(module);
  if (updates.empty())
    return success();
  {
    OneShotAnalysisState state(module, options);
    if (failed(analyzeModuleOp(module, state)))
      return failure();
    for (Update &update : updates) {
      if (failed(verifyWithoutCopy(update, state)))
        return failure();
      if (state.areEquivalentBufferizedValues(update.getReturned(), update.argument))
        continue;
      OpBuilder b(update.getReturn());
      auto materialized = MaterializeInDestinationOp::create(b, update.getReturn().getLoc(), update.argument.getType(),
                                                             update.getReturned(), update.argument);
      update.getReturn()->setOperand(update.result, materialized.getResult());
    }
  }
  OneShotAnalysisState state(module, options);
  if (failed(analyzeModuleOp(module, state)))
    return failure();
  for (Update &update : updates) {
    if (failed(verifyWithoutCopy(update, state)))
      return failure();
    if (!state.areEquivalentBufferizedValues(update.getReturned(), update.argument))
      return emitError(update.getReturned().getLoc())
             << "result " << update.result << " cannot be written to argument '" << update.name()
             << "', which it updates in place: it is computed from parts of the argument that it overwrites";
  }
  return success();
}

LogicalResult saccade::finishInPlaceUpdates(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic())
      continue;
    BitVector dropped(function.getNumResults());
    for (auto [argument, result] : llvm::zip_equal(function.getArguments(), attn::getUpdatingResults(function))) {
      if (!result)
        continue;
      Value returned = function.front().getTerminator()->getOperand(*result);
      while (auto cast = returned.getDefiningOp<memref::CastOp>())
        returned = cast.getSource();
      if (returned != argument)
        return function.emitError("result ") << *result << " is not in the memory of its argument after bufferization";
      dropped.set(*result);
      function.removeArgAttr(argument.getArgNumber(), attn::updatedByAttr);
    }
    if (dropped.none())
      continue;
    function.front().getTerminator()->eraseOperands(dropped);
    if (failed(function.eraseResults(dropped)))
      return failure();
  }
  return success();
}
