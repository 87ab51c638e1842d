//===- OutlineKernels.cpp - Tasks become kernels ------------------------------===//
//
// Moves the body of every task into the device module, where a CTA stands for an item. It stands first in the stage: from
// here on host and device are two programs.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/Kernels.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace saccade {
#define GEN_PASS_DEF_OUTLINEKERNELS
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// A name that PTX takes.
static std::string kernelName(StringRef task) {
  std::string name = task.str();
  for (char &c : name)
    if (!llvm::isAlnum(c))
      c = '_';
  return name;
}

/// The loop over the items of a task: from its argument `begin` to `end`.
static scf::ForOp findItemLoop(func::FuncOp task) {
  unsigned first = task.getNumArguments() - 3;
  for (auto loop : task.getBody().front().getOps<scf::ForOp>())
    if (loop.getLowerBound() == task.getArgument(first) && loop.getUpperBound() == task.getArgument(first + 1))
      return loop;
  return nullptr;
}

/// Widens what is narrower than a word. A launch does the same.
static void widenParameters(func::FuncOp kernel) {
  Block &entry = kernel.getBody().front();
  OpBuilder builder = OpBuilder::atBlockBegin(&entry);
  for (BlockArgument argument : entry.getArguments()) {
    Type type = argument.getType();
    if (!type.isIntOrFloat() || type.isInteger(64))
      continue;
    argument.setType(builder.getI64Type());
    Location loc = argument.getLoc();
    Type bits = builder.getIntegerType(type.getIntOrFloatBitWidth());
    Value value = argument;
    if (bits != builder.getI64Type())
      value = arith::TruncIOp::create(builder, loc, bits, value);
    Operation *user = value.getDefiningOp();
    if (bits != type)
      value = arith::BitcastOp::create(builder, loc, type, value);
    argument.replaceAllUsesExcept(value, user ? user : value.getDefiningOp());
  }
  kernel.setFunctionType(builder.getFunctionType(entry.getArgumentTypes(), {}));
}

/// Makes the body of `task` that of a kernel: the number of the CTA for the item, captures alone as parameters.
static LogicalResult makeKernel(func::FuncOp kernel) {
  scf::ForOp items = findItemLoop(kernel);
  if (!items)
    return kernel.emitError("is a task without a loop over its items");
  IRRewriter rewriter(items);
  Location loc = items.getLoc();
  Value cta = NVVM::BlockIdXOp::create(rewriter, loc, rewriter.getI32Type());
  Value item = arith::IndexCastUIOp::create(rewriter, loc, rewriter.getIndexType(), cta);
  rewriter.eraseOp(items.getBody()->getTerminator());
  rewriter.inlineBlockBefore(items.getBody(), items, item);
  rewriter.eraseOp(items);
  unsigned first = kernel.getNumArguments() - 3;
  for (unsigned i = first; i < first + 3; ++i)
    if (!kernel.getArgument(i).use_empty())
      return kernel.emitError("is a task that uses its range or its scratch memory outside of its loop");
  BitVector last(first, false);
  last.resize(first + 3, true);
  if (failed(kernel.eraseArguments(last)))
    return failure();
  widenParameters(kernel);
  return success();
}

namespace {

struct OutlineKernels : saccade::impl::OutlineKernelsBase<OutlineKernels> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto device = mlir::gpu::GPUModuleOp::create(builder, module.getLoc(), deviceModule);
    SymbolTable kernels(device);
    for (auto task : llvm::to_vector(module.getOps<func::FuncOp>())) {
      if (!task->hasAttr("attn.task")) {
        if (failed(checkHost(task)))
          return signalPassFailure();
        continue;
      }
      func::FuncOp kernel = task.clone();
      kernel.setName(kernelName(task.getName()));
      kernel.setPublic();
      kernel->removeAttr("attn.task");
      kernel->setAttr(kernelAttr, builder.getUnitAttr());
      kernels.insert(kernel);
      if (failed(makeKernel(kernel)))
        return signalPassFailure();
      // What launches see of it.
      task.eraseBody();
      task->setAttr(kernelAttr, builder.getStringAttr(kernel.getName()));
    }
  }

  /// The host has no access to device memory, so it computes nothing on tensors.
  LogicalResult checkHost(func::FuncOp function) {
    WalkResult result = function.walk([](Operation *op) -> WalkResult {
      if (isa<linalg::LinalgOp, memref::CopyOp, memref::LoadOp, memref::StoreOp>(op))
        return op->emitOpError("is not part of any task, which programs for a GPU do not support yet");
      return WalkResult::advance();
    });
    return failure(result.wasInterrupted());
  }
};

} // namespace
