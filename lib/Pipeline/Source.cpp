//===- Source.cpp - A program as a tool reads it ------------------------------===//
//
// One context a tool, without threads of its own: a kernel compiles faster than a thread pool starts.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/Source.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace saccade;

static DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registerDialects(registry);
  return registry;
}

Source::Source() : mlir(makeRegistry(), MLIRContext::Threading::DISABLED) {}

ExitCode Source::load(llvm::StringRef tool, llvm::StringRef path) {
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!file) {
    llvm::errs() << tool << ": error: cannot read '" << path << "': " << file.getError().message() << '\n';
    return ExitFile;
  }
  setReproducerInput((*file)->getBuffer());
  files.AddNewSourceBuffer(std::move(*file), llvm::SMLoc());
  handler = std::make_unique<SourceMgrDiagnosticHandler>(files, &mlir, llvm::errs());
  parsed = parseSourceFile<ModuleOp>(files, &mlir);
  return parsed ? ExitDone : ExitRefused;
}

ExitCode saccade::loadPassPlugin(llvm::StringRef tool, llvm::StringRef path) {
  llvm::Expected<PassPlugin> plugin = PassPlugin::load(path.str());
  if (!plugin) {
    llvm::errs() << tool << ": error: cannot load the plugin '" << path << "': " << llvm::toString(plugin.takeError())
                 << '\n';
    return ExitFile;
  }
  plugin->registerPassRegistryCallbacks();
  return ExitDone;
}

const CPUTarget *saccade::requireTarget(llvm::StringRef tool, llvm::StringRef name) {
  const CPUTarget *target = lookupCPUTarget(name);
  if (!target)
    llvm::errs() << tool << ": error: target '" << name << "' is not supported, expected one of " << cpuTargetNames()
                 << '\n';
  return target;
}
