//===- Machine.h - Target machines and code emission -------------*- C++ -*-===//
#ifndef SACCADE_LIB_TARGET_MACHINE_H
#define SACCADE_LIB_TARGET_MACHINE_H

#include "llvm/Target/TargetMachine.h"

namespace saccade {

/// Creates the target machine of the triple `name`, whose backend must be initialised. Fails if LLVM was built without
/// it.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createMachine(llvm::StringRef name, llvm::StringRef cpu,
                                                                   llvm::StringRef features);

/// Runs the code generation pipeline and writes assembly or an object. Fails if the target does not support `kind`.
llvm::Error writeCode(llvm::Module &module, llvm::TargetMachine &machine, llvm::raw_pwrite_stream &os,
                      llvm::CodeGenFileType kind);

} // namespace saccade

#endif // SACCADE_LIB_TARGET_MACHINE_H
