//===- CompiledProgram.cpp - From a program to an object ----------------------===//
//
// Runs the pipeline and the code generators of the host and of the GPU. Nothing here depends on this process, so that
// the result can be stored.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/CompiledProgram.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/Target.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MemoryBuffer.h"
#include <chrono>

using namespace mlir;
using namespace saccade;

namespace {

/// Measures consecutive phases; lap() returns the seconds since the last call.
class StopWatch {
public:
  double lap() {
    Clock::time_point now = Clock::now();
    double seconds = std::chrono::duration<double>(now - start).count();
    start = now;
    return seconds;
  }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
};

} // namespace

llvm::Expected<CompiledProgram> saccade::compileProgram(ModuleOp module, const CompileOptions &requested) {
  CompileOptions options = requested;
  CompiledProgram program;
  StopWatch watch;
  // Import determines the types of results.
  if (failed(importProgram(module, options)))
    return llvm::createStringError("the program was refused");
  auto findEntries = [&]() -> llvm::Error {
    llvm::Expected<std::vector<Entry>> entries = getEntries(module);
    if (entries)
      program.entries = std::move(*entries);
    return entries.takeError();
  };
  if (llvm::Error error = findEntries())
    return error;
  if (failed(runPipeline(module, options, &program.times.stages)))
    return llvm::createStringError("the program was refused");
  if (options.prepack)
    if (llvm::Error error = findEntries())
      return error;
  program.times.pipeline = watch.lap();

  std::string ptx;
  if (options.device) {
    program.kernels = listKernels(module);
    FailureOr<std::string> emitted = emitPTX(module, *options.device);
    if (failed(emitted))
      return llvm::createStringError("the kernels could not be translated to PTX");
    ptx = std::move(*emitted);
    eraseDevice(module);
  }
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> translated = translate(module, context, *options.target);
  if (!translated)
    return llvm::createStringError("the program could not be translated to LLVM IR");
  if (options.device)
    addKernels(*translated, *options.device, ptx, "");
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream os(object);
  if (llvm::Error error = emitObject(*translated, *options.target, os))
    return error;
  program.object.assign(object.data(), object.size());
  program.times.codegen = watch.lap();
  return program;
}

llvm::Expected<CompiledProgram> saccade::compileText(llvm::StringRef text, llvm::StringRef name,
                                                     const CompileOptions &options, DiagnosticSink sink) {
  Diagnostics diagnostics;
  auto record = [&](mlir::DiagnosticSeverity severity, llvm::StringRef text) {
    diagnostics.emplace_back(severity, text.str());
    sink(severity, text);
  };
  Source source;
  if (failed(source.parse(llvm::MemoryBuffer::getMemBufferCopy(text, name), record)))
    return llvm::createStringError("the program could not be parsed");
  llvm::Expected<CompiledProgram> program = compileProgram(source.module(), options);
  if (program)
    program->diagnostics = std::move(diagnostics);
  return program;
}
