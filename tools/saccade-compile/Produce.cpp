//===- Produce.cpp - Output of saccade-compile -------------------------------===//
#include "Produce.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/SharedLibrary.h"
#include "saccade/Target/Target.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace saccade;

/// Generates an object from host code and links it into a shared library.
static llvm::Error link(llvm::Module &host, const Options &options, llvm::ArrayRef<std::string> entries,
                        bool hasKernels, llvm::SmallVectorImpl<char> &into) {
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream os(object);
  if (llvm::Error error = emitObject(host, *options.compile.target, os))
    return error;
  llvm::Expected<llvm::SmallVector<char, 0>> library =
      linkSharedLibrary(llvm::StringRef(object.data(), object.size()), entries, hasKernels);
  if (!library)
    return library.takeError();
  into.append(library->begin(), library->end());
  return llvm::Error::success();
}

/// The path of libdevice; empty if it is not found.
static std::string libdevice(const Options &options) {
  return options.libdevice.empty() ? findLibdevice(options.assembler) : options.libdevice;
}

/// Generates LLVM IR, PTX or a cubin.
static llvm::Error produceDevice(mlir::ModuleOp module, const Options &options, llvm::raw_ostream &os,
                                 bool &isRefused) {
  llvm::LLVMContext context;
  const GPUTarget &target = *options.compile.device;
  std::unique_ptr<llvm::Module> translated = translateDevice(module, context, target, libdevice(options));
  if ((isRefused = !translated))
    return llvm::Error::success();
  if (options.emit == Emit::LLVM) {
    printLLVM(*translated, os);
    return llvm::Error::success();
  }
  llvm::Expected<std::string> ptx = emitPTX(*translated, target);
  if (!ptx)
    return ptx.takeError();
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
  if (options.explain)
    for (const KernelReport &kernel : cubin->kernels)
      reportStream(options) << kernel.name << ": " << kernel.registers << " registers, " << kernel.stack
                            << " bytes of stack, " << kernel.spillStores + kernel.spillLoads << " bytes spilled\n";
  return llvm::Error::success();
}

llvm::Error saccade::produce(mlir::ModuleOp module, const Options &options, llvm::ArrayRef<std::string> entries,
                             llvm::SmallVectorImpl<char> &into, bool &isRefused) {
  llvm::raw_svector_ostream os(into);
  if (options.emit == Emit::MLIR) {
    module.print(os);
    return llvm::Error::success();
  }
  if (options.compile.device)
    return produceDevice(module, options, os, isRefused);
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
  if (options.emit == Emit::Object)
    return emitObject(*translated, *options.compile.target, os);
  return link(*translated, options, entries, /*hasKernels=*/false, into);
}

llvm::Error saccade::compileLibrary(mlir::ModuleOp program, const Options &options, llvm::ArrayRef<std::string> entries,
                                    llvm::SmallVectorImpl<char> &into,
                                    llvm::function_ref<void(mlir::ModuleOp, const CompileOptions &)> explain,
                                    bool &isRefused) {
  llvm::LLVMContext context;
  std::vector<std::unique_ptr<llvm::Module>> hosts;
  for (const GPUTarget *architecture : options.architectures) {
    mlir::OwningOpRef<mlir::ModuleOp> module = program.clone();
    CompileOptions compile = options.compile;
    compile.device = architecture;
    if ((isRefused = failed(runPipeline(*module, compile))))
      return llvm::Error::success();
    explain(*module, compile);
    llvm::LLVMContext deviceContext;
    std::unique_ptr<llvm::Module> device = translateDevice(*module, deviceContext, *architecture, libdevice(options));
    if ((isRefused = !device))
      return llvm::Error::success();
    llvm::Expected<std::string> ptx = emitPTX(*device, *architecture);
    if (!ptx)
      return ptx.takeError();
    Cubin cubin;
    if (!options.assembler.empty()) {
      llvm::Expected<Cubin> assembled = assemble(*ptx, *architecture, options.assembler);
      if (!assembled)
        return assembled.takeError();
      cubin = std::move(*assembled);
    }
    eraseDevice(*module);
    std::unique_ptr<llvm::Module> host = translate(*module, context, *compile.target);
    if (!host)
      return llvm::createStringError("the program could not be translated to LLVM IR");
    addKernels(*host, *architecture, *ptx, cubin.bytes);
    hosts.push_back(std::move(host));
  }
  std::unique_ptr<llvm::Module> joined = std::move(hosts.front());
  hosts.erase(hosts.begin());
  if (llvm::Error error = joinArchitectures(*joined, std::move(hosts), entries))
    return error;
  return link(*joined, options, entries, /*hasKernels=*/true, into);
}
