//===- Library.cpp - Shared libraries for one or several targets --------------===//
//
// The stages run for one target after the other, so that diagnostics and reports come in the order of the targets. LLVM
// generates the code of each target by a task of its own, in parallel to the others and to the stages of later targets.
// The objects are linked in the order of the targets, so the library does not depend on the number of threads.
//
//===----------------------------------------------------------------------===//
#include "Produce.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/SharedLibrary.h"
#include "saccade/Target/Target.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/ThreadPool.h"

using namespace saccade;

namespace {
/// LLVM IR with a context of its own, of which a task makes an object.
struct Part {
  LibraryPart place;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> host;
  std::unique_ptr<llvm::Module> device; ///< null for CPUs
  llvm::SmallVector<char, 0> object;
  std::optional<llvm::Error> error; ///< of the task

  explicit Part(const LibraryPart &place) : place(place) {}
  ~Part() {
    if (error)
      llvm::consumeError(std::move(*error));
  }
  const LibraryTarget &target() const { return place.target(); }
};
} // namespace

/// Compiles the kernels of a part and adds them to its host code.
static llvm::Error embedKernels(Part &part, llvm::StringRef assembler, llvm::ThreadPoolInterface &threads) {
  llvm::Expected<std::string> ptx = generatePTX(*part.device, *part.target().gpu, threads);
  if (!ptx)
    return llvm::createStringError("LLVM generates no PTX: " + llvm::toString(ptx.takeError()));
  part.device.reset();
  Cubin cubin; // empty without an assembler
  if (!assembler.empty()) {
    llvm::Expected<Cubin> assembled = assemble(*ptx, *part.target().gpu, assembler);
    if (!assembled)
      return assembled.takeError();
    cubin = std::move(*assembled);
  }
  addKernels(*part.host, *part.target().gpu, *ptx, cubin.bytes);
  return llvm::Error::success();
}

/// Generates the object of a part and frees its LLVM IR.
static llvm::Error generate(Part &part, llvm::ArrayRef<std::string> entries, llvm::StringRef assembler,
                            llvm::ThreadPoolInterface &threads) {
  if (part.device)
    if (llvm::Error error = embedKernels(part, assembler, threads))
      return error;
  addToLibrary(*part.host, part.place, entries);
  if (part.place.first == 0) {
    auto names = llvm::map_to_vector(part.place.targets, [](const LibraryTarget &target) { return target.name(); });
    addLibraryNote(*part.host, names, entries);
  }
  llvm::raw_svector_ostream os(part.object);
  llvm::Error error = emitObject(*part.host, *part.target().cpu, os);
  part.host.reset();
  return error;
}

/// Translates a compiled program to the LLVM IR of a part. Sets `isRefused` after a diagnostic for the program.
static llvm::Error translateTo(Part &part, mlir::ModuleOp module, const Options &options, bool &isRefused) {
  if (part.target().gpu) {
    part.device = translateUnoptimizedDevice(module, part.context, *part.target().gpu, libdevice(options));
    if ((isRefused = !part.device))
      return llvm::Error::success();
    eraseDevice(module);
  }
  part.host = translate(module, part.context, *part.target().cpu);
  return part.host ? llvm::Error::success() : llvm::createStringError("the program could not be translated to LLVM IR");
}

llvm::Error saccade::compileLibrary(mlir::ModuleOp program, const Options &options, const LibraryInterface &interface,
                                    llvm::SmallVectorImpl<char> &into,
                                    llvm::function_ref<bool(mlir::ModuleOp, const CompileOptions &)> onCompiled,
                                    bool &isRefused) {
  std::vector<std::unique_ptr<Part>> parts;
  // One thread for each processor at most. A thread starts when there is a task for it. The destructor waits for all.
  llvm::DefaultThreadPool threads(llvm::optimal_concurrency());
  auto start = [&](mlir::ModuleOp module, const LibraryPart &place) -> llvm::Error {
    Part &part = *parts.emplace_back(std::make_unique<Part>(place));
    if (llvm::Error error = translateTo(part, module, options, isRefused))
      return error;
    if (!isRefused)
      // A copy: `onCompiled` may replace the interface while the task runs.
      threads.async([&, entries = interface.entries] {
        if (llvm::Error error = generate(part, entries, options.assembler, threads))
          part.error = std::move(error);
      });
    return llvm::Error::success();
  };
  // The last compiled program, which is started if the next target does not run the same code.
  mlir::OwningOpRef<mlir::ModuleOp> last;
  LibraryPart place = {options.targets, 0, 0};
  for (const LibraryTarget &target : options.targets) {
    mlir::OwningOpRef<mlir::ModuleOp> module = program.clone();
    CompileOptions compile = compileOptionsFor(options.compile, target);
    // Warnings about the program are the same for every target.
    compile.lint &= !last;
    if ((isRefused = failed(runPipeline(*module, compile)) || !onCompiled(*module, compile)))
      return llvm::Error::success();
    if (last && (target.gpu || !haveEqualCode(*last, *place.target().cpu, *module, *target.cpu))) {
      if (llvm::Error error = start(*last, place))
        return error;
      if (isRefused)
        return llvm::Error::success();
      place = {options.targets, place.first + place.count, 0};
    }
    ++place.count;
    last = std::move(module);
  }
  if (llvm::Error error = start(*last, place))
    return error;
  if (isRefused)
    return llvm::Error::success();
  threads.wait();
  llvm::SmallVector<llvm::StringRef> objects;
  for (const std::unique_ptr<Part> &part : parts) {
    if (part->error)
      return *std::exchange(part->error, std::nullopt);
    objects.push_back(llvm::StringRef(part->object.data(), part->object.size()));
  }
  llvm::Expected<llvm::SmallVector<char, 0>> library =
      linkSharedLibrary(objects, interface.entries, *options.compile.target, options.hasGPU());
  if (!library)
    return library.takeError();
  into.append(library->begin(), library->end());
  return llvm::Error::success();
}
