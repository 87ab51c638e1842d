//===- GPUTarget.cpp - The table of GPU architectures -------------------------===//
//
// PTX 8.0 is what drivers since CUDA 12.0 take.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/GPUTarget.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"

using namespace saccade;

static const GPUTarget architectures[] = {
    // name, features, asynchronous copies and tensor cores for 16 bits, shared memory
    {"sm_75", "+ptx80", false, 64 * 1024},
    {"sm_80", "+ptx80", true, 163 * 1024},
};

const GPUTarget *saccade::lookupGPUTarget(llvm::StringRef name) {
  for (const GPUTarget &target : architectures)
    if (target.name == name)
      return &target;
  return nullptr;
}

const GPUTarget *saccade::requireGPUTarget(mlir::Operation *op, llvm::StringRef name) {
  const GPUTarget *target = lookupGPUTarget(name);
  if (!target)
    op->emitError() << "unknown target '" << name << "', expected one of " << gpuTargetNames();
  return target;
}

llvm::StringRef saccade::gpuTargetNames() { return "sm_75, sm_80"; }
