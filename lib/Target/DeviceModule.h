//===- DeviceModule.h - LLVM IR of the device module --------------*- C++ -*-===//
#ifndef SACCADE_LIB_TARGET_DEVICEMODULE_H
#define SACCADE_LIB_TARGET_DEVICEMODULE_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Support/GPUTarget.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"

namespace saccade {

/// Creates the target machine of a GPU for the PTX version `features`, which is `target.features` or a later one.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createDeviceMachine(const GPUTarget &target,
                                                                         llvm::StringRef features);

/// Runs LLVM's default pipeline on a device module. The result for a kernel depends on this kernel and on the functions
/// and constants that it uses, on no other kernel.
void optimizeDevice(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace saccade

#endif // SACCADE_LIB_TARGET_DEVICEMODULE_H
