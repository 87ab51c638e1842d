//===- VerifyBufferized.cpp - Invariants of bufferized IR ---------------------===//
//
// Verifies the invariants of bufferized IR on which code generation relies. It is the last pass of the bufferize stage.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {
#define GEN_PASS_DEF_VERIFYBUFFERIZED
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;

static bool isTensor(Type type) { return isa<TensorType>(type); }

static LogicalResult verifyAllocation(memref::AllocOp op) {
  auto func = op->getParentOfType<func::FuncOp>();
  if (func && func->hasAttr("attn.task")) {
    if (!op.getType().hasStaticShape())
      return op.emitOpError("has a dynamic size, expected buffers of a task to be static");
    return success();
  }
  // An iteration that launches tasks takes much longer than an allocation.
  auto launches = [](LoopLikeOpInterface loop) {
    return loop->walk([](saccade::attn::LaunchOp) { return WalkResult::interrupt(); }).wasInterrupted();
  };
  if (auto loop = op->getParentOfType<LoopLikeOpInterface>(); loop && !launches(loop))
    return op.emitOpError("allocates in a loop, expected allocations in loops that launch tasks only");
  return success();
}

namespace {

struct VerifyBufferized : saccade::impl::VerifyBufferizedBase<VerifyBufferized> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk<WalkOrder::PreOrder>([](Operation *op) -> WalkResult {
      if (llvm::any_of(op->getOperandTypes(), isTensor) || llvm::any_of(op->getResultTypes(), isTensor))
        return op->emitOpError("has tensor operands or results, expected buffers");
      if (isa<scf::ForallOp, scf::ParallelOp>(op))
        return op->emitOpError("is a parallel loop, expected it to be outlined as a task");
      if (auto alloc = dyn_cast<memref::AllocOp>(op))
        return verifyAllocation(alloc);
      if (auto func = dyn_cast<func::FuncOp>(op); func && llvm::any_of(func.getFunctionType().getInputs(), isTensor))
        return func.emitOpError("has tensor arguments, expected buffers");
      // Regions of attn ops read their captures as tensors.
      return isa<saccade::attn::ScoringOpInterface>(op) ? WalkResult::skip() : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
