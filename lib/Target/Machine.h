//===- Machine.h - LLVM's machines and what they write -----------*- C++ -*-===//
#ifndef SACCADE_LIB_TARGET_MACHINE_H
#define SACCADE_LIB_TARGET_MACHINE_H

#include "llvm/Target/TargetMachine.h"

namespace saccade {

/// LLVM's machine of a triple whose backend is initialised; an error where LLVM has none.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createMachine(llvm::StringRef triple, llvm::StringRef cpu,
                                                                   llvm::StringRef features);

/// Runs llc's pipeline over the module and writes assembly or an object; an error where the machine has no such form.
llvm::Error writeCode(llvm::Module &module, llvm::TargetMachine &machine, llvm::raw_pwrite_stream &os,
                      llvm::CodeGenFileType kind);

} // namespace saccade

#endif // SACCADE_LIB_TARGET_MACHINE_H
