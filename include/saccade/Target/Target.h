//===- Target.h - Machine code from the LLVM dialect --------------*- C++ -*-===//
//
// The last stage for CPUs: LLVM IR, assembly and object files for one CPU target.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TARGET_TARGET_H
#define SACCADE_TARGET_TARGET_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Support/CPUTarget.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"
#include <memory>

namespace llvm {
class LLVMContext;
class Module;
class TargetMachine;
} // namespace llvm

namespace saccade {

/// Creates the target machine of `target` (position-independent). Fails if LLVM was built without it.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createTargetMachine(const CPUTarget &target);

/// Translates a module of the LLVM dialect to LLVM IR for `target`, sets the target attributes of every function, and
/// runs a light clean-up. Returns null after a diagnostic if the module has ops of other dialects.
std::unique_ptr<llvm::Module> translate(mlir::ModuleOp module, llvm::LLVMContext &context, const CPUTarget &target);

/// Writes the LLVM IR of a translated module as text.
void printLLVM(const llvm::Module &module, llvm::raw_ostream &os);

/// Generates code for a translated module, as text or as an ELF object. Code generation modifies the module, which must
/// not be used afterwards.
llvm::Error emitAssembly(llvm::Module &module, const CPUTarget &target, llvm::raw_pwrite_stream &os);
llvm::Error emitObject(llvm::Module &module, const CPUTarget &target, llvm::raw_pwrite_stream &os);

} // namespace saccade

#endif // SACCADE_TARGET_TARGET_H
