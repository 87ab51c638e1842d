//===- Produce.cpp - Output of saccade-compile -------------------------------===//
#include "Produce.h"
#include "saccade/Pipeline/StageMark.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/Target.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace saccade;

std::string saccade::libdevice(const Options &options) {
  return options.libdevice.empty() ? findLibdevice(options.assembler) : options.libdevice;
}

/// Generates LLVM IR, PTX or a cubin.
static llvm::Error produceDevice(mlir::ModuleOp module, const Options &options, Explanation *report,
                                 llvm::raw_ostream &os, bool &isRefused) {
  const GPUTarget &target = *options.compile.device;
  if (options.emit == Emit::LLVM) {
    llvm::LLVMContext context;
    std::unique_ptr<llvm::Module> translated = translateDevice(module, context, target, libdevice(options));
    if ((isRefused = !translated))
      return llvm::Error::success();
    printLLVM(*translated, os);
    return llvm::Error::success();
  }
  mlir::FailureOr<std::string> ptx = emitPTX(module, target, libdevice(options));
  if ((isRefused = failed(ptx)))
    return llvm::Error::success();
  if (options.emit == Emit::PTX) {
    os << *ptx;
    return llvm::Error::success();
  }
  llvm::Expected<Cubin> cubin = assemble(*ptx, target, options.assembler);
  if (!cubin)
    return cubin.takeError();
  os << cubin->bytes;
  for (const std::string &warning : cubin->warnings)
    llvm::errs() << tool << ": warning: " << warning << '\n';
  if (report)
    report->addResources(cubin->kernels);
  return llvm::Error::success();
}

llvm::Error saccade::produce(mlir::ModuleOp module, const Options &options, Explanation *report,
                             llvm::SmallVectorImpl<char> &into, bool &isRefused) {
  llvm::raw_svector_ostream os(into);
  if (options.emit == Emit::MLIR) {
    printProgram(module, os);
    return llvm::Error::success();
  }
  if (options.compile.device)
    return produceDevice(module, options, report, os, isRefused);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> translated = translate(module, context, *options.compile.target);
  if (!translated)
    return llvm::createStringError("the program could not be translated to LLVM IR");
  if (options.emit == Emit::LLVM) {
    printLLVM(*translated, os);
    return llvm::Error::success();
  }
  if (options.emit == Emit::Assembly)
    return emitAssembly(*translated, *options.compile.target, os);
  assert(options.emit == Emit::Object && "compileLibrary makes libraries");
  return emitObject(*translated, *options.compile.target, os);
}
