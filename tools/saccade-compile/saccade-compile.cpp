//===- saccade-compile.cpp - Ahead-of-time compiler ---------------------------===//
#include "OutputCache.h"
#include "Produce.h"
#include "View.h"
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Pipeline/Source.h"
#include "saccade/Support/OutputFile.h"
#include "saccade/Support/Progress.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/SharedLibrary.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace saccade;

/// Resolves the path of ptxas. If it is not found, prints a warning if PTX suffices; else, and if the program is
/// another one, prints an error and returns false.
static bool findAssembler(std::string &path, bool isNeeded) {
  llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName(path.empty() ? "ptxas" : path);
  bool isThere = found && llvm::sys::fs::can_execute(*found);
  if (isThere) {
    path = *found;
    if (llvm::Error error = checkAssembler(path)) {
      llvm::errs() << tool << ": error: " << llvm::toString(std::move(error)) << '\n';
      return false;
    }
  } else if (path.empty() && !isNeeded)
    llvm::errs() << tool
                 << ": warning: cannot find 'ptxas', NVIDIA's assembler: the library contains PTX only, which the "
                    "driver compiles at the first call\n";
  else
    llvm::errs() << tool << ": error: cannot find '" << (path.empty() ? "ptxas" : path)
                 << "', NVIDIA's assembler; install it (PyPI: nvidia-cuda-nvcc), name it with --ptxas, or write PTX\n";
  return isThere || (path.empty() && !isNeeded);
}

using Reports = std::vector<std::unique_ptr<Explanation>>;

/// Adds the report of --explain for a program compiled with `compile`; `source` is a copy of the program before the
/// pipeline. Returns false after a diagnostic.
static bool report(mlir::ModuleOp source, mlir::ModuleOp compiled, const CompileOptions &compile,
                   const Options &options, Reports &reports) {
  std::unique_ptr<Explanation> explanation = Explanation::create(source, compile, options.sizes);
  if (!explanation)
    return false;
  explanation->addKernels(compiled);
  for (const std::string &name : explanation->unusedSizes())
    llvm::errs() << tool << ": warning: no attention uses '" << name << "' of --explain-size\n";
  reports.push_back(std::move(explanation));
  return true;
}

/// The interface of a shared library or header, empty for other outputs; nullopt after a diagnostic.
static std::optional<LibraryInterface> findInterface(mlir::ModuleOp program, const Options &options) {
  if (options.emit != Emit::SharedLibrary && options.emit != Emit::Header)
    return LibraryInterface();
  llvm::SmallString<64> name(options.emit == Emit::SharedLibrary ? options.header : options.output);
  if (name.empty() || name == "-") {
    name = options.input;
    llvm::sys::path::replace_extension(name, "h");
  }
  return getLibraryInterface(program, llvm::sys::path::filename(name), options.targets);
}

/// Compiles the program and generates the output. Sets `isRefused` after a diagnostic for the program. `interface` is
/// that of the source program, and is replaced if --prepack adds functions.
static llvm::Error compile(mlir::ModuleOp program, const Options &options, LibraryInterface &interface,
                           Reports &reports, llvm::SmallVectorImpl<char> &into, bool &isRefused) {
  mlir::OwningOpRef<mlir::ModuleOp> source = options.explain ? program.clone() : nullptr;
  auto onCompiled = [&](mlir::ModuleOp compiled, const CompileOptions &compile) {
    if (source && !report(*source, compiled, compile, options, reports))
      return false;
    if (!compile.prepack || !compile.stopAfter.empty())
      return true;
    std::optional<LibraryInterface> found = findInterface(compiled, options);
    if (found)
      interface = std::move(*found);
    return found.has_value();
  };
  if (options.emit == Emit::SharedLibrary)
    return compileLibrary(program, options, interface, into, onCompiled, isRefused);
  // With several targets and no library, only the reports are printed.
  if (options.targets.size() > 1) {
    for (const LibraryTarget &target : options.targets) {
      mlir::OwningOpRef<mlir::ModuleOp> copy = program.clone();
      CompileOptions compile = compileOptionsFor(options.compile, target);
      if ((isRefused = failed(runPipeline(*copy, compile)) || !onCompiled(*copy, compile)))
        break;
    }
    return llvm::Error::success();
  }
  isRefused = failed(runPipeline(program, options.compile)) || !onCompiled(program, options.compile);
  // A header requires that the program compiles, but none of its code.
  if (isRefused || !options.emit || options.emit == Emit::Header)
    return llvm::Error::success();
  return produce(program, options, reports.empty() ? nullptr : reports.front().get(), into, isRefused);
}

static ExitCode reportFileError(llvm::StringRef path, llvm::Error error) {
  llvm::errs() << tool << ": error: cannot write '" << path << "': " << llvm::toString(std::move(error)) << '\n';
  return ExitFile;
}

static ExitCode write(
    const std::string &path, llvm::StringRef output,
    llvm::function_ref<llvm::Error()> last = [] { return llvm::Error::success(); }) {
  auto put = [&](llvm::raw_ostream &os) {
    os << output;
    return llvm::Error::success();
  };
  if (llvm::Error error = writeOutput(path, put, last))
    return reportFileError(path, std::move(error));
  return ExitSuccess;
}

/// Writes both files or neither: the library is renamed after the header is complete and before the header is renamed.
static ExitCode writeLibraryAndHeader(const Options &options, llvm::StringRef library, llvm::StringRef header) {
  if (options.header.empty())
    return write(options.output, library);
  return write(options.header, header, [&] {
    return write(options.output, library) ? llvm::createStringError("the library could not be written")
                                          : llvm::Error::success();
  });
}

static int run(llvm::ArrayRef<const char *> arguments) {
  Options options;
  if (std::optional<ExitCode> code = parseOptions(arguments, options))
    return *code;
  bool isLibrary = options.emit == Emit::SharedLibrary;
  bool hasKernels = options.hasGPU();
  if (hasKernels && (isLibrary || options.emit == Emit::Cubin) && !findAssembler(options.assembler, !isLibrary))
    return ExitUnsupported;
  Source source;
  if (ExitCode code = source.load(tool, options.input))
    return code;

  if (!options.view.empty()) {
    if (!options.compile.stopAfter.empty() && failed(runPipeline(source.module(), options.compile)))
      return ExitInvalidInput;
    return writeView(source.module(), options);
  }
  // Gradient functions are entries, too.
  std::optional<LibraryInterface> interface;
  if (succeeded(addGradientFunctions(source.module(), options.compile)))
    interface = findInterface(source.module(), options);
  if (!interface)
    return ExitInvalidInput;
  if (attn::getSignatures(source.module()).empty())
    llvm::errs() << tool << ": warning: '" << options.input << "' has no public function to call\n";

  llvm::SmallString<0> output;
  OutputCache cache(source.module(), *interface, options);
  if (!cache.load(*interface, output)) {
    Progress progress("compiling " + options.input);
    bool isRefused = false, isSilent = true;
    mlir::ScopedDiagnosticHandler watch(&source.context(), [&](mlir::Diagnostic &) {
      isSilent = false;
      return mlir::failure(); // passes it on
    });
    Reports reports;
    llvm::Error error = compile(source.module(), options, *interface, reports, output, isRefused);
    if (!reports.empty())
      Explanation::print(reports, *options.explain, reportStream(options));
    if (isRefused)
      return ExitInvalidInput;
    if (error) {
      if (error.isA<llvm::FileError>()) {
        llvm::errs() << tool << ": error: linking needs temporary files: " << llvm::toString(std::move(error)) << '\n';
        return ExitFile;
      }
      reportInternalError(llvm::toString(std::move(error)));
    }
    if (isSilent)
      cache.store(*interface, output);
  }
  if (!options.emit)
    return ExitSuccess;
  if (options.emit == Emit::Header)
    return write(options.output, interface->header);
  if (options.emit == Emit::SharedLibrary)
    return writeLibraryAndHeader(options, output, interface->header);
  return write(options.output, output);
}

extern "C" int saccade_compile_main(int argc, char **argv) {
  llvm::ArrayRef<const char *> arguments(argv, argc);
  return runTool(arguments, [&] { return run(arguments.drop_front()); });
}
