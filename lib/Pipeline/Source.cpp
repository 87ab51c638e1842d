//===- Source.cpp - A parsed program ------------------------------------------===//
//
// Every program has a context without a thread pool: compiling a kernel takes less time than starting the pool.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/Source.h"
#include "saccade/Pipeline/ParseProgram.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/Plugins.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace saccade;

static DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registerDialects(registry);
  registerPluginDialects(registry);
  return registry;
}

/// Renders every diagnostic with MLIR's handler and passes the text to the sink.
class Source::Renderer : public SourceMgrDiagnosticHandler {
public:
  Renderer(llvm::SourceMgr &files, MLIRContext *context, DiagnosticSink sink)
      : SourceMgrDiagnosticHandler(files, context, os), sink(std::move(sink)) {
    setHandler([this](Diagnostic &diagnostic) {
      text.clear();
      emitDiagnostic(diagnostic);
      this->sink(diagnostic.getSeverity(), text);
    });
  }

private:
  DiagnosticSink sink;
  std::string text;
  llvm::raw_string_ostream os{text};
};

Source::Source() : mlir(makeRegistry(), MLIRContext::Threading::DISABLED) {
  // Diagnostics show the source line instead of the op in generic form.
  mlir.printOpOnDiagnostic(false);
}
Source::~Source() = default;

LogicalResult Source::parse(std::unique_ptr<llvm::MemoryBuffer> text, DiagnosticSink sink) {
  files.AddNewSourceBuffer(std::move(text), llvm::SMLoc());
  renderer = std::make_unique<Renderer>(files, &mlir, std::move(sink));
  parsed = parseProgram(files, &mlir);
  return success(static_cast<bool>(parsed));
}

ExitCode Source::load(llvm::StringRef tool, llvm::StringRef path) {
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!file) {
    llvm::errs() << tool << ": error: cannot read '" << path << "': " << file.getError().message() << '\n';
    return ExitFile;
  }
  setReproducerInput((*file)->getBuffer());
  auto toStandardError = [](DiagnosticSeverity, llvm::StringRef text) { llvm::errs() << text; };
  return succeeded(parse(std::move(*file), toStandardError)) ? ExitSuccess : ExitInvalidInput;
}

static void explainTarget(llvm::StringRef tool, llvm::StringRef name, const llvm::Twine &known) {
  llvm::errs() << tool << ": error: target '" << name << "' is not supported, expected one of " << known << '\n';
}

const CPUTarget *saccade::requireTarget(llvm::StringRef tool, llvm::StringRef name) {
  const CPUTarget *target = lookupCPUTarget(name);
  if (!target)
    explainTarget(tool, name, cpuTargetNames());
  return target;
}

ExitCode saccade::chooseTarget(llvm::StringRef tool, llvm::StringRef name, CompileOptions &options) {
  if ((options.device = lookupGPUTarget(name)))
    return ExitSuccess;
  const CPUTarget *target = lookupCPUTarget(name);
  if (!target) {
    explainTarget(tool, name, cpuTargetNames() + ", " + gpuTargetNames());
    return ExitUnsupported;
  }
  options.target = target;
  return ExitSuccess;
}
