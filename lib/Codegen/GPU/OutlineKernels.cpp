//===- OutlineKernels.cpp - Outline tasks into kernels ------------------------===//
//
// Moves the body of every task into a kernel of the device module, with one CTA per work item. It runs first in the
// stage, because host and device are lowered separately afterwards.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_OUTLINEKERNELS
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Returns a valid PTX identifier for a task.
static std::string kernelName(StringRef task) {
  std::string name = task.str();
  for (char &c : name)
    if (!llvm::isAlnum(c))
      c = '_';
  return name;
}

/// Returns the loop over the items of a task, from its argument `begin` to `end`, or null.
static scf::ForOp findItemLoop(func::FuncOp task) {
  unsigned first = task.getNumArguments() - 3;
  for (auto loop : task.getBody().front().getOps<scf::ForOp>())
    if (loop.getLowerBound() == task.getArgument(first) && loop.getUpperBound() == task.getArgument(first + 1))
      return loop;
  return nullptr;
}

/// Widens scalar parameters to 64 bits, as LowerLaunches does on the host side.
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

/// Turns a cloned task into a kernel: the CTA index replaces the item, only the captures stay parameters.
static LogicalResult makeKernel(func::FuncOp kernel) {
  scf::ForOp items = findItemLoop(kernel);
  if (!items)
    return kernel.emitError("is a task without a loop over its items, expected an scf.for from begin to end");
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
      return kernel.emitError("is a task that uses its range or its workspace outside of its loop");
  BitVector last(first, false);
  last.resize(first + 3, true);
  if (failed(kernel.eraseArguments(last)))
    return failure();
  widenParameters(kernel);
  return success();
}

/// Copies the constants that a kernel reads to the device module: they are loaded with it, once per context.
static void copyConstants(ModuleOp module, func::FuncOp kernel, SymbolTable &device) {
  kernel.walk([&](memref::GetGlobalOp use) {
    if (!device.lookup(use.getName()))
      device.insert(cast<memref::GlobalOp>(SymbolTable::lookupNearestSymbolFrom(module, use.getNameAttr())).clone());
  });
}

/// The module of all kernels, which is created at the end of `module` if it has none.
static mlir::gpu::GPUModuleOp deviceModuleOf(ModuleOp module) {
  if (auto device = module.lookupSymbol<mlir::gpu::GPUModuleOp>(deviceModule))
    return device;
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  return mlir::gpu::GPUModuleOp::create(builder, module.getLoc(), deviceModule);
}

FailureOr<func::FuncOp> saccade::outlineKernel(func::FuncOp task) {
  auto module = task->getParentOfType<ModuleOp>();
  SymbolTable kernels(deviceModuleOf(module));
  func::FuncOp kernel = task.clone();
  kernel.setName(kernelName(task.getName()));
  kernel.setPublic();
  kernel->removeAttr("attn.task");
  kernel->setAttr(kernelAttr, UnitAttr::get(task.getContext()));
  kernels.insert(kernel);
  if (failed(makeKernel(kernel)))
    return failure();
  copyConstants(module, kernel, kernels);
  // Keep the declaration that launches refer to.
  task.eraseBody();
  task->setAttr(kernelAttr, StringAttr::get(task.getContext(), kernel.getName()));
  return kernel;
}

namespace {

struct OutlineKernels : saccade::impl::OutlineKernelsBase<OutlineKernels> {
  void runOnOperation() override {
    deviceModuleOf(getOperation());
    for (auto task : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      if (!task->hasAttr("attn.task")) {
        if (failed(checkHost(task)))
          return signalPassFailure();
      } else if (!task.isExternal() && failed(outlineKernel(task))) {
        return signalPassFailure();
      }
  }

  /// Rejects computations on buffers outside of tasks: the host cannot access device memory.
  LogicalResult checkHost(func::FuncOp function) {
    WalkResult result = function.walk([](Operation *op) -> WalkResult {
      if (isa<linalg::LinalgOp, memref::CopyOp, memref::LoadOp, memref::StoreOp>(op))
        return op->emitOpError("is not part of a task, which is not supported on GPUs");
      return WalkResult::advance();
    });
    return failure(result.wasInterrupted());
  }
};

} // namespace
