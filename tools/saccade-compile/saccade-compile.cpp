//===- saccade-compile.cpp - From a program to code ---------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Pipeline/Explain.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Pipeline/Source.h"
#include "saccade/Support/OutputFile.h"
#include "saccade/Support/Progress.h"
#include "saccade/Support/ToolMain.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/SharedLibrary.h"
#include "saccade/Target/Target.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace saccade;

static constexpr llvm::StringLiteral tool = "saccade-compile";

namespace {

enum class Emit { MLIR, LLVM, Assembly, Object, SharedLibrary, Header, PTX, Cubin };

constexpr llvm::StringLiteral kinds = "mlir, llvm, asm, obj, so, header, ptx or cubin";

struct Options {
  std::string input, output, header, assembler, target = "host";
  std::optional<Emit> emit; ///< nothing where only the report of --explain is wanted
  bool explain = false;
  std::vector<GivenSize> sizes;
  std::vector<std::string> plugins;
  std::vector<const GPUTarget *> architectures; ///< of a program for GPUs
  CompileOptions compile;
};

} // namespace

/// STAGE:PASS, for --insert-after.
static bool parseInsertion(llvm::StringRef text, CompileOptions &into) {
  auto [stage, pipeline] = text.split(':');
  if (stage.empty() || pipeline.empty())
    return false;
  into.insertAfter.emplace_back(stage.str(), pipeline.str());
  return true;
}

/// [FUNCTION:]NAME=NUMBER,..., for --explain-size.
static bool parseSizes(llvm::StringRef text, Options &options) {
  options.explain = true;
  llvm::Expected<std::vector<GivenSize>> sizes = parseGivenSizes(text);
  if (!sizes || sizes->empty()) {
    // The usage error says what is wanted.
    if (!sizes)
      llvm::consumeError(sizes.takeError());
    return false;
  }
  llvm::append_range(options.sizes, *sizes);
  return true;
}

/// dir/attend.so -> dir/attend.h; nothing beside a device or a pipe.
static std::string headerBeside(llvm::StringRef library) {
  if (llvm::sys::fs::exists(library) && !llvm::sys::fs::is_regular_file(library))
    return "";
  llvm::SmallString<128> header(library);
  llvm::sys::path::replace_extension(header, "h");
  return header.str().str();
}

static std::optional<ExitCode> parseOptions(llvm::ArrayRef<const char *> arguments, Options &options) {
  CommandLine line(tool, "IN -o OUT [options]", "compiles a program with attention to code for the CPU or a GPU");
  line.positional(options.input);
  line.value("o", "FILE", "Where to write; '-' is standard output, the default for text", options.output);
  line.value("target", "NAME",
             "ISA level: " + cpuTargetNames().str() + "; or GPU: " + gpuTargetNames().str() +
                 ", several with --emit=so: sm_75,sm_80",
             options.target);
  std::string kind;
  line.value(
      "emit", "KIND",
      "What to write: mlir, llvm, asm, obj (the default), so (a shared library that needs libc only, and its C "
      "header) or header (only that); for a GPU mlir, llvm, ptx (the default), cubin (by NVIDIA's ptxas), so or header",
      kind);
  line.value("header", "FILE", "Where --emit=so writes the C header; beside the library, ending in .h, by default",
             options.header);
  line.value("stop-after", "STAGE", "Stop after a stage and write its MLIR: " + llvm::join(stageNames(), ", "),
             options.compile.stopAfter);
  line.value("insert-after", "STAGE:PASS", "Run a pass pipeline after a stage; may be given several times",
             [&](llvm::StringRef text) { return parseInsertion(text, options.compile); });
  line.value("dump-stages", "DIR", "Write the module after every stage into a folder", options.compile.dumpStages);
  line.value("ptxas", "FILE", "NVIDIA's assembler for --emit=cubin and so; else it is looked for on the PATH",
             options.assembler);
  line.flag("explain",
            "Say of each attention which kernels it became and what is proved of its mask and softmax, of GPU "
            "kernels with --emit=cubin what they need; with no -o and no --emit nothing else is written",
            options.explain);
  line.value("explain-size", "[FUNCTION:]NAME=NUMBER,...",
             "Sizes for the report, which then counts tiles and work and draws the mask: b, h, q and k where they are "
             "dynamic, and integer arguments by their names; may be given several times",
             [&](llvm::StringRef text) { return parseSizes(text, options); });
  line.flag("lint", "Warn about likely mistakes: a wrong scale, mask or alignment", options.compile.lint);
  line.value("load-pass-plugin", "FILE", "Load a shared library with passes", options.plugins);
  if (std::optional<ExitCode> code = line.parse(arguments))
    return code;

  llvm::SmallVector<llvm::StringRef> targets;
  llvm::StringRef(options.target).split(targets, ',');
  for (llvm::StringRef name : targets)
    if (const GPUTarget *architecture = lookupGPUTarget(name))
      options.architectures.push_back(architecture);
    else if (targets.size() > 1)
      return line.usageError("--target takes several GPUs only, and '" + name + "' is none of " + gpuTargetNames());
  bool hasKernels = !options.architectures.empty();
  auto isStage = [](llvm::StringRef name) { return llvm::is_contained(stageNames(), name); };
  std::string stages = llvm::join(stageNames(), ", ");
  if (!options.compile.stopAfter.empty() && !isStage(options.compile.stopAfter))
    return line.usageError("unknown stage '" + options.compile.stopAfter + "', expected one of " + stages);
  for (const auto &[stage, pipeline] : options.compile.insertAfter)
    if (!isStage(stage))
      return line.usageError("unknown stage '" + stage + "', expected one of " + stages);
  bool stopsEarly = !options.compile.stopAfter.empty();
  if (options.explain && kind.empty() && !stopsEarly && options.output.empty() && options.header.empty())
    return std::nullopt;
  options.emit = llvm::StringSwitch<std::optional<Emit>>(kind)
                     .Case("", stopsEarly   ? Emit::MLIR
                               : hasKernels ? Emit::PTX
                                            : Emit::Object)
                     .Case("mlir", Emit::MLIR)
                     .Case("llvm", Emit::LLVM)
                     .Case("asm", Emit::Assembly)
                     .Case("obj", Emit::Object)
                     .Case("so", Emit::SharedLibrary)
                     .Case("header", Emit::Header)
                     .Case("ptx", Emit::PTX)
                     .Case("cubin", Emit::Cubin)
                     .Default(std::nullopt);
  if (!options.emit)
    return line.usageError("unknown kind of output '" + kind + "', expected " + kinds);
  bool isForGPU = options.emit == Emit::PTX || options.emit == Emit::Cubin;
  bool isLibrary = options.emit == Emit::SharedLibrary || options.emit == Emit::Header;
  bool isForBoth = options.emit == Emit::MLIR || options.emit == Emit::LLVM || isLibrary;
  if ((!isForBoth && isForGPU != hasKernels) || (!isLibrary && targets.size() > 1))
    return line.usageError("--emit=" + kind + " does not go with --target=" + options.target);
  if (stopsEarly && options.emit != Emit::MLIR)
    return line.usageError("--stop-after leaves MLIR; it cannot go with --emit=" + kind);
  if (options.emit == Emit::SharedLibrary) {
    if (options.output.empty() || options.output == "-")
      return line.usageError("a shared library needs a file: -o FILE");
    if (options.header.empty())
      options.header = headerBeside(options.output);
    if (options.header == options.output)
      return line.usageError("library and header cannot both be '" + options.output + "'");
  } else if (!options.header.empty()) {
    return line.usageError("--header goes with --emit=so only");
  }
  if (options.output.empty()) {
    if (options.emit == Emit::Object || options.emit == Emit::Cubin)
      return line.usageError((options.emit == Emit::Object ? "an object" : "a cubin") +
                             llvm::StringRef(" needs a file: -o FILE"));
    options.output = "-";
  }
  return std::nullopt;
}

/// Fills in where ptxas is; false after an explanation, which is a warning where PTX will do.
static bool findAssembler(std::string &path, bool isNeeded) {
  llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName(path.empty() ? "ptxas" : path);
  bool isThere = found && llvm::sys::fs::can_execute(*found);
  if (isThere)
    path = *found;
  else if (path.empty() && !isNeeded)
    llvm::errs() << tool
                 << ": warning: cannot find 'ptxas', NVIDIA's assembler: the library holds PTX only, which the "
                    "driver compiles at the first call\n";
  else
    llvm::errs() << tool << ": error: cannot find '" << (path.empty() ? "ptxas" : path)
                 << "', NVIDIA's assembler; install it (PyPI: nvidia-cuda-nvcc), name it with --ptxas, or write PTX\n";
  return isThere || (path.empty() && !isNeeded);
}

/// Where reports go: where the output itself does not.
static llvm::raw_ostream &reportStream(const Options &options) {
  return options.emit && options.output == "-" ? llvm::errs() : llvm::outs();
}

/// Makes the output for a GPU.
static llvm::Error produceDevice(mlir::ModuleOp module, const Options &options, llvm::raw_ostream &os) {
  llvm::LLVMContext context;
  const GPUTarget &target = *options.compile.device;
  std::unique_ptr<llvm::Module> translated = translateDevice(module, context, target);
  if (!translated)
    return llvm::createStringError("the kernels could not be translated to LLVM IR");
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

/// Makes the output in memory, so that nothing is written where anything fails.
static llvm::Error produce(mlir::ModuleOp module, const Options &options, llvm::ArrayRef<std::string> entries,
                           llvm::SmallVectorImpl<char> &into) {
  llvm::raw_svector_ostream os(into);
  if (options.emit == Emit::MLIR) {
    module.print(os);
    return llvm::Error::success();
  }
  if (options.compile.device)
    return produceDevice(module, options, os);
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
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream objectStream(object);
  if (llvm::Error error = emitObject(*translated, *options.compile.target, objectStream))
    return error;
  llvm::Expected<llvm::SmallVector<char, 0>> library =
      linkSharedLibrary(llvm::StringRef(object.data(), object.size()), entries);
  if (!library)
    return library.takeError();
  into.append(library->begin(), library->end());
  return llvm::Error::success();
}

/// Links the host code of one program, compiled for each architecture, with kernels for all of them.
static llvm::Error compileLibrary(mlir::ModuleOp program, const Options &options, llvm::ArrayRef<std::string> entries,
                                  llvm::SmallVectorImpl<char> &into, bool &isRefused) {
  llvm::LLVMContext context;
  std::vector<std::unique_ptr<llvm::Module>> hosts;
  for (const GPUTarget *architecture : options.architectures) {
    mlir::OwningOpRef<mlir::ModuleOp> module = program.clone();
    CompileOptions compile = options.compile;
    compile.device = architecture;
    if ((isRefused = failed(runPipeline(*module, compile))))
      return llvm::Error::success();
    llvm::LLVMContext deviceContext;
    std::unique_ptr<llvm::Module> device = translateDevice(*module, deviceContext, *architecture);
    if (!device)
      return llvm::createStringError("the kernels could not be translated to LLVM IR");
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
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream os(object);
  if (llvm::Error error = emitObject(*joined, *options.compile.target, os))
    return error;
  llvm::Expected<llvm::SmallVector<char, 0>> library =
      linkSharedLibrary(llvm::StringRef(object.data(), object.size()), entries, /*hasKernels=*/true);
  if (!library)
    return library.takeError();
  into.append(library->begin(), library->end());
  return llvm::Error::success();
}

/// Prints what --explain says of a compiled program.
static void report(Explanation &explanation, mlir::ModuleOp compiled, const Options &options) {
  explanation.addKernels(compiled);
  explanation.print(reportStream(options));
  for (const std::string &name : explanation.unusedSizes())
    llvm::errs() << tool << ": warning: no attention has a use for '" << name << "' of --explain-size\n";
}

/// Compiles and makes the output; nothing where the program `isRefused`.
static llvm::Error compile(mlir::ModuleOp program, const Options &options, llvm::ArrayRef<std::string> entries,
                           llvm::SmallVectorImpl<char> &into, Explanation *explanation, bool &isRefused) {
  if (options.emit == Emit::SharedLibrary && !options.architectures.empty())
    return compileLibrary(program, options, entries, into, isRefused);
  isRefused = failed(runPipeline(program, options.compile));
  if (!isRefused && explanation)
    report(*explanation, program, options);
  // A header is written of programs only that compile.
  if (isRefused || !options.emit || options.emit == Emit::Header)
    return llvm::Error::success();
  return produce(program, options, entries, into);
}

static ExitCode explainFile(llvm::StringRef path, llvm::Error error) {
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
    return explainFile(path, std::move(error));
  return ExitDone;
}

/// Writes both or none: the library comes to its place while the header is complete but not yet in its own.
static ExitCode writeBoth(const Options &options, llvm::StringRef library, llvm::StringRef header) {
  if (options.header.empty())
    return write(options.output, library);
  return write(options.header, header, [&] {
    return write(options.output, library) ? llvm::createStringError("there is no library to go with it")
                                          : llvm::Error::success();
  });
}

static int run(llvm::ArrayRef<const char *> arguments) {
  Options options;
  registerPasses();
  if (std::optional<ExitCode> code = parseOptions(arguments, options))
    return *code;
  if (!options.architectures.empty())
    options.compile.device = options.architectures.front();
  else if (ExitCode code = chooseTarget(tool, options.target, options.compile))
    return code;
  bool isLibrary = options.emit == Emit::SharedLibrary;
  bool hasKernels = !options.architectures.empty();
  if (hasKernels && (isLibrary || options.emit == Emit::Cubin) && !findAssembler(options.assembler, !isLibrary))
    return ExitUnsupported;
  for (const std::string &plugin : options.plugins)
    if (ExitCode code = loadPassPlugin(tool, plugin))
      return code;
  Source source;
  if (ExitCode code = source.load(tool, options.input))
    return code;

  LibraryInterface interface;
  if (options.emit == Emit::SharedLibrary || options.emit == Emit::Header) {
    llvm::SmallString<64> name(options.emit == Emit::SharedLibrary ? options.header : options.output);
    if (name.empty() || name == "-") {
      name = options.input;
      llvm::sys::path::replace_extension(name, "h");
    }
    std::optional<LibraryInterface> found =
        getLibraryInterface(source.module(), llvm::sys::path::filename(name), hasKernels);
    if (!found)
      return ExitRefused;
    interface = std::move(*found);
  }
  auto functions = source.module().getOps<mlir::func::FuncOp>();
  if (llvm::none_of(functions, [](mlir::func::FuncOp function) { return function.isPublic(); }))
    llvm::errs() << tool << ": warning: '" << options.input
                 << "' has no public function: nothing of it can be called\n";

  std::unique_ptr<Explanation> explanation;
  if (options.explain && !(explanation = Explanation::create(source.module(), options.compile, options.sizes)))
    return ExitRefused;
  llvm::SmallString<0> output;
  {
    Progress progress("compiling " + options.input);
    bool isRefused = false;
    llvm::Error error = compile(source.module(), options, interface.entries, output, explanation.get(), isRefused);
    if (isRefused)
      return ExitRefused;
    if (error) {
      if (error.isA<llvm::FileError>()) {
        llvm::errs() << tool << ": error: linking needs temporary files: " << llvm::toString(std::move(error)) << '\n';
        return ExitFile;
      }
      reportInternalError(llvm::toString(std::move(error)));
    }
  }
  if (!options.emit)
    return ExitDone;
  if (options.emit == Emit::Header)
    return write(options.output, interface.header);
  if (options.emit == Emit::SharedLibrary)
    return writeBoth(options, output, interface.header);
  return write(options.output, output);
}

int main(int argc, char **argv) {
  llvm::ArrayRef<const char *> arguments(argv, argc);
  return runTool(arguments, [&] { return run(arguments.drop_front()); });
}
