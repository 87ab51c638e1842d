//===- MachineCode.cpp - Assembly and objects for a CPU target ----------------===//
//
// Runs LLVM's code generation pipeline at -O3 in process.
//
//===----------------------------------------------------------------------===//
#include "Machine.h"
#include "saccade/Target/Target.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetOptions.h"

static void initializeBackends() {
  static const bool done = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    LLVMInitializeAArch64AsmParser();
    return true;
  }();
  (void)done;
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> saccade::createMachine(llvm::StringRef name, llvm::StringRef cpu,
                                                                            llvm::StringRef features) {
  llvm::Triple triple(name);
  std::string message;
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(triple, message);
  if (!backend)
    return llvm::createStringError(message);
  std::unique_ptr<llvm::TargetMachine> machine(
      backend->createTargetMachine(triple, cpu, features, llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt,
                                   llvm::CodeGenOptLevel::Aggressive));
  if (!machine)
    return llvm::createStringError("LLVM has no code generator for '" + triple.str() + "'");
  return machine;
}

llvm::Error saccade::writeCode(llvm::Module &module, llvm::TargetMachine &machine, llvm::raw_pwrite_stream &os,
                               llvm::CodeGenFileType kind) {
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, os, nullptr, kind))
    return llvm::createStringError("LLVM cannot write this kind of file for the target");
  passes.run(module);
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> saccade::createTargetMachine(const CPUTarget &target) {
  initializeBackends();
  return createMachine(target.triple, target.cpu, target.features);
}

static llvm::Error emit(llvm::Module &module, const saccade::CPUTarget &target, llvm::raw_pwrite_stream &os,
                        llvm::CodeGenFileType kind) {
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = saccade::createTargetMachine(target);
  return machine ? saccade::writeCode(module, **machine, os, kind) : machine.takeError();
}

llvm::Error saccade::emitAssembly(llvm::Module &module, const CPUTarget &target, llvm::raw_pwrite_stream &os) {
  return emit(module, target, os, llvm::CodeGenFileType::AssemblyFile);
}

llvm::Error saccade::emitObject(llvm::Module &module, const CPUTarget &target, llvm::raw_pwrite_stream &os) {
  return emit(module, target, os, llvm::CodeGenFileType::ObjectFile);
}
