//===- Target.h - From the LLVM dialect to machine code -----------*- C++ -*-===//
//
// The last stage: LLVM IR, assembly and objects for one CPU target.
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

/// Whether this machine's processor can execute code for `target`.
bool hostRuns(const CPUTarget &target);

/// A code generator for `target` (x86-64 Linux, position-independent), or an error where this LLVM cannot make one.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createTargetMachine(const CPUTarget &target);

/// Translates a module of the LLVM dialect to LLVM IR for `target`, which names the processor on every function, and
/// cleans it up lightly. Null after a diagnostic where the module holds anything else.
std::unique_ptr<llvm::Module> translate(mlir::ModuleOp module, llvm::LLVMContext &context, const CPUTarget &target);

/// Writes the LLVM IR of a translated module as text.
void printLLVM(const llvm::Module &module, llvm::raw_ostream &os);

/// Generates code for a translated module, as text or as an ELF object. The module must not be used afterwards: code
/// generation changes it.
llvm::Error emitAssembly(llvm::Module &module, const CPUTarget &target, llvm::raw_pwrite_stream &os);
llvm::Error emitObject(llvm::Module &module, const CPUTarget &target, llvm::raw_pwrite_stream &os);

} // namespace saccade

#endif // SACCADE_TARGET_TARGET_H
