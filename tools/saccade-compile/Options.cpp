//===- Options.cpp - Command line of saccade-compile -------------------------===//
#include "Options.h"
#include "saccade/Pipeline/Source.h"
#include "saccade/Support/OutputFile.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace saccade;

static constexpr llvm::StringLiteral kinds = "mlir, llvm, asm, obj, so, header, ptx or cubin";

/// [FUNCTION:]NAME=NUMBER,..., for --explain-size.
static bool parseSizes(llvm::StringRef text, Options &options) {
  if (!options.explain)
    options.explain = ExplainForm::Text;
  llvm::Expected<std::vector<GivenSize>> sizes = parseGivenSizes(text);
  if (!sizes || sizes->empty()) {
    // The usage error describes the expected format.
    if (!sizes)
      llvm::consumeError(sizes.takeError());
    return false;
  }
  llvm::append_range(options.sizes, *sizes);
  return true;
}

/// dir/attend.so -> dir/attend.h; empty if the library is written to a device or a pipe.
static std::string defaultHeaderPath(llvm::StringRef library) {
  if (llvm::sys::fs::exists(library) && !llvm::sys::fs::is_regular_file(library))
    return "";
  llvm::SmallString<128> header(library);
  llvm::sys::path::replace_extension(header, "h");
  return header.str().str();
}

CompileOptions saccade::compileOptionsFor(const CompileOptions &options, const LibraryTarget &target) {
  CompileOptions result = options;
  result.target = target.cpu;
  result.device = target.gpu;
  return result;
}

/// Reads --target into `options`, in the order in which a call tries them. Returns an exit code after an error.
static ExitCode readTargets(llvm::ArrayRef<llvm::StringRef> names, Options &options, std::string &usageError) {
  for (llvm::StringRef name : names) {
    LibraryTarget target{nullptr, lookupGPUTarget(name)};
    if (!target.gpu) {
      CompileOptions chosen;
      if (ExitCode code = chooseTarget(tool, name, chosen))
        return code;
      target.cpu = chosen.target;
    }
    for (const LibraryTarget &other : options.targets) {
      auto refuse = [&](const llvm::Twine &what) {
        usageError = ("--target names two targets " + what + ": " + other.name() + " and " + target.name()).str();
        return ExitUsage;
      };
      if (other.gpu == target.gpu && (target.gpu || other.cpu->runsOn == target.cpu->runsOn))
        return refuse("for the same processors");
      if (!other.gpu && !target.gpu && !isSameArchitecture(*other.cpu, *target.cpu))
        return refuse("of different architectures");
    }
    options.targets.push_back(target);
  }
  // The host code of kernels runs on every CPU of the architecture.
  auto cpu = llvm::find_if(options.targets, [](const LibraryTarget &target) { return target.cpu; });
  const CPUTarget &baseline = baselineCPUTarget(cpu == options.targets.end() ? runtime::hostProcessor().architecture
                                                                             : cpu->cpu->processor().architecture);
  for (LibraryTarget &target : options.targets)
    if (target.gpu)
      target.cpu = &baseline;
  llvm::stable_sort(options.targets, [](const LibraryTarget &a, const LibraryTarget &b) {
    if (a.gpu || b.gpu)
      return !a.gpu && b.gpu;
    return std::pair(a.cpu->processor().rank(), a.cpu->runsOn) > std::pair(b.cpu->processor().rank(), b.cpu->runsOn);
  });
  return ExitSuccess;
}

std::optional<ExitCode> saccade::parseOptions(llvm::ArrayRef<const char *> arguments, Options &options) {
  CommandLine line(tool, "IN -o OUT [options]", "compiles a program with attention to code for the CPU or a GPU");
  line.positional(options.input);
  line.value("o", "FILE", "The output file; '-' is standard output, the default for text", options.output);
  line.value("target", "NAME",
             "CPU target: " + cpuTargetNames().str() + "; or GPU: " + gpuTargetNames().str() +
                 "; several with --emit=so or header: portable,v3,v4,sm_80",
             options.target);
  std::string kind;
  line.value(
      "emit", "KIND",
      "The output: mlir, llvm, asm, obj (the default), so (a shared library that depends on libc only, and its C "
      "header) or header (the C header only); for a GPU mlir, llvm, ptx (the default), cubin (by NVIDIA's ptxas), so "
      "or header",
      kind);
  line.value("header", "FILE",
             "The C header that --emit=so writes; by default the path of the library with the extension .h",
             options.header);
  line.value("stop-after", "STAGE", "Stop after a stage and write its MLIR: " + llvm::join(stageNames(), ", "),
             options.compile.stopAfter);
  line.value("ptxas", "FILE", "NVIDIA's assembler for --emit=cubin and so; by default the ptxas of the PATH",
             options.assembler);
  line.value("libdevice", "FILE", "NVIDIA's math functions (libdevice.10.bc); by default found next to ptxas",
             options.libdevice);
  line.value("cache-dir", "DIR", "Keep outputs in files of this folder, and take them from there",
             options.cacheDirectory);
  line.optionalValue(
      "explain", "json|html",
      "Print the kernels of each attention and the results of the mask and softmax analyses, and with "
      "--emit=cubin the resources of GPU kernels, as text, JSON or a page; without -o and --emit "
      "nothing else is written",
      [&](llvm::StringRef text) {
        options.explain = text == "json" ? ExplainForm::JSON : text == "html" ? ExplainForm::HTML : ExplainForm::Text;
        return text.empty() || text == "json" || text == "html";
      },
      "json or html");
  line.value("explain-size", "[FUNCTION:]NAME=NUMBER,...",
             "Sizes for the report, which then counts tiles and work and draws the mask: b, h, q and k if they are "
             "dynamic, and integer arguments by name; may be given several times",
             [&](llvm::StringRef text) { return parseSizes(text, options); });
  line.value(
      "view", "FILE",
      "Write a graph of the ops of the program, as it is or after --stop-after=STAGE, and nothing else: FILE.svg, "
      "drawn by Graphviz, or its text FILE.dot",
      options.view);
  line.flag("lint", "Warn about likely mistakes, such as a wrong scale, mask or alignment", options.compile.lint);
  line.flag("prepack",
            "Move computations of a function F on constant arguments only, such as packing weights, to a function "
            "F__prepack, whose results F takes instead; CPU only",
            options.compile.prepack);
  addPipelineOptions(line, tool, options.pipeline, options.compile);
  if (std::optional<ExitCode> code = line.parse(arguments))
    return code;

  if (std::optional<ExitCode> code = applyPipelineOptions(line, tool, options.pipeline, options.compile))
    return code;
  llvm::SmallVector<llvm::StringRef> targets;
  llvm::StringRef(options.target).split(targets, ',');
  // An unknown target is reported before invalid combinations with it.
  std::string usageError;
  if (ExitCode code = readTargets(targets, options, usageError))
    return usageError.empty() ? code : line.usageError(usageError);
  options.compile = compileOptionsFor(options.compile, options.targets.front());
  bool hasKernels = options.hasGPU();
  // Prepacked weights of one CPU target have another layout than those of another.
  if ((hasKernels || options.targets.size() > 1) && options.compile.prepack)
    return line.usageError("--prepack does not go with --target=" + options.target);
  auto isStage = [](llvm::StringRef name) { return llvm::is_contained(stageNames(), name); };
  std::string stages = llvm::join(stageNames(), ", ");
  if (!options.compile.stopAfter.empty() && !isStage(options.compile.stopAfter))
    return line.usageError("unknown stage '" + options.compile.stopAfter + "', expected one of " + stages);
  if (!options.view.empty()) {
    if (!kind.empty() || !options.output.empty() || options.explain || targets.size() > 1)
      return line.usageError("--view writes a graph only, for one target, without -o, --emit and --explain");
    if (isSameFile(options.input, options.view))
      return line.usageError("output '" + options.view + "' and input '" + options.input + "' are the same file");
    if (llvm::sys::path::extension(options.view).size() < 2)
      return line.usageError("--view needs a file with an extension, such as .svg or .dot, got '" + options.view + "'");
    return std::nullopt;
  }
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
  if (!isLibrary && targets.size() > 1)
    return line.usageError("several targets make a shared library or a header: --emit=so or --emit=header");
  if (!isForBoth && isForGPU != hasKernels)
    return line.usageError("--emit=" + kind + " does not go with --target=" + options.target);
  if (stopsEarly && options.emit != Emit::MLIR)
    return line.usageError("--stop-after requires --emit=mlir, got --emit=" + kind);
  if (options.emit == Emit::SharedLibrary) {
    if (options.output.empty() || options.output == "-")
      return line.usageError("a shared library needs a file: -o FILE");
    if (options.header.empty())
      options.header = defaultHeaderPath(options.output);
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
  for (const std::string &output : {options.output, options.header})
    if (isSameFile(options.input, output))
      return line.usageError("output '" + output + "' and input '" + options.input + "' are the same file");
  return std::nullopt;
}

llvm::raw_ostream &saccade::reportStream(const Options &options) {
  return options.emit && options.output == "-" ? llvm::errs() : llvm::outs();
}
