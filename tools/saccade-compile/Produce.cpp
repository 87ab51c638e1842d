//===- Produce.cpp - Output of saccade-compile -------------------------------===//
#include "Produce.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Pipeline/StageMark.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/SharedLibrary.h"
#include "saccade/Target/Target.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace saccade;

/// Generates an object from host code and links it into a shared library.
static llvm::Error link(llvm::Module &host, const Options &options, llvm::ArrayRef<std::string> entries,
                        llvm::SmallVectorImpl<char> &into) {
  auto names = llvm::map_to_vector(options.targets, [](const LibraryTarget &target) { return target.name(); });
  addLibraryNote(host, names, entries);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream os(object);
  // The target attributes of each function, not this target, select its instructions.
  if (llvm::Error error = emitObject(host, *options.compile.target, os))
    return error;
  llvm::Expected<llvm::SmallVector<char, 0>> library = linkSharedLibrary(
      llvm::StringRef(object.data(), object.size()), entries, *options.compile.target, options.hasGPU());
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
    printProgram(module, os);
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
  return link(*translated, options, entries, into);
}

namespace {
/// The kernels of a program for one architecture.
struct Device {
  std::string ptx;
  Cubin cubin; ///< empty without an assembler
};
} // namespace

/// Compiles the device module of a compiled program.
static llvm::Error compileDevice(mlir::ModuleOp module, const GPUTarget &target, const Options &options, Device &into,
                                 bool &isRefused) {
  mlir::FailureOr<std::string> ptx = emitPTX(module, target, libdevice(options));
  if ((isRefused = failed(ptx)))
    return llvm::Error::success();
  into.ptx = std::move(*ptx);
  if (options.assembler.empty())
    return llvm::Error::success();
  llvm::Expected<Cubin> assembled = assemble(into.ptx, target, options.assembler);
  if (!assembled)
    return assembled.takeError();
  into.cubin = std::move(*assembled);
  return llvm::Error::success();
}

llvm::Error saccade::compileLibrary(mlir::ModuleOp program, const Options &options, llvm::ArrayRef<std::string> entries,
                                    llvm::SmallVectorImpl<char> &into,
                                    llvm::function_ref<void(mlir::ModuleOp, const CompileOptions &)> explain,
                                    bool &isRefused) {
  llvm::LLVMContext context;
  std::vector<std::unique_ptr<llvm::Module>> hosts;
  for (const LibraryTarget &target : options.targets) {
    mlir::OwningOpRef<mlir::ModuleOp> module = program.clone();
    CompileOptions compile = compileOptionsFor(options.compile, target);
    // Warnings about the program are the same for every target.
    compile.lint &= hosts.empty();
    if ((isRefused = failed(runPipeline(*module, compile))))
      return llvm::Error::success();
    explain(*module, compile);
    Device device;
    if (target.gpu) {
      if (llvm::Error error = compileDevice(*module, *target.gpu, options, device, isRefused))
        return error;
      if (isRefused)
        return llvm::Error::success();
      eraseDevice(*module);
    }
    std::unique_ptr<llvm::Module> host = translate(*module, context, *compile.target);
    if (!host)
      return llvm::createStringError("the program could not be translated to LLVM IR");
    if (target.gpu)
      addKernels(*host, *target.gpu, device.ptx, device.cubin.bytes);
    hosts.push_back(std::move(host));
  }
  std::unique_ptr<llvm::Module> joined = std::move(hosts.front());
  hosts.erase(hosts.begin());
  if (llvm::Error error = joinTargets(*joined, std::move(hosts), options.firstGPU(), entries))
    return error;
  return link(*joined, options, entries, into);
}
