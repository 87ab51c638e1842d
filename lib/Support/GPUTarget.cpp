//===- GPUTarget.cpp - The table of GPU architectures -------------------------===//
//
// All targets use PTX 8.0, which drivers since CUDA 12.0 accept, unless a kernel has more parameters than it permits.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/GPUTarget.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace saccade;

static constexpr GPUTarget architectures[] = {
    {.name = "sm_75", .features = "+ptx80", .sharedBytes = 64 * 1024, .isSelected = true},
    {.name = "sm_80", .features = "+ptx80", .hasAsyncCopy = true, .sharedBytes = 163 * 1024, .isSelected = true},
    // Not yet run on a GPU, only on PtxSim.
    {.name = "sm_90a", .features = "+ptx80", .hasAsyncCopy = true, .hasBulkCopy = true, .sharedBytes = 227 * 1024},
};

const GPUTarget *saccade::lookupGPUTarget(llvm::StringRef name) {
  for (const GPUTarget &target : architectures)
    if (target.name == name)
      return &target;
  return nullptr;
}

const GPUTarget *saccade::newestGPUTarget(int64_t capability) {
  const GPUTarget *newest = nullptr;
  int64_t best = 0;
  for (const GPUTarget &target : architectures) {
    // "sm_90a": code with a suffix runs on this architecture only, PTX without one on later ones too.
    llvm::StringRef digits = target.name;
    int64_t architecture = 0;
    bool isKnown = digits.consume_front("sm_") && !digits.consumeInteger(10, architecture);
    bool runs = digits.empty() ? architecture <= capability : architecture == capability;
    if (isKnown && runs && target.isSelected && architecture >= best) {
      best = architecture;
      newest = &target;
    }
  }
  return newest;
}

const GPUTarget *saccade::requireGPUTarget(mlir::Operation *op, llvm::StringRef name) {
  const GPUTarget *target = lookupGPUTarget(name);
  if (!target)
    op->emitError() << "unknown target '" << name << "', expected one of " << gpuTargetNames();
  return target;
}

llvm::StringRef saccade::gpuTargetNames() {
  static const std::string names =
      llvm::join(llvm::map_range(architectures, [](const GPUTarget &target) { return target.name; }), ", ");
  return names;
}
