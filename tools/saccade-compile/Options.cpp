//===- Options.cpp - What saccade-compile is asked for -----------------------===//
#include "Options.h"
#include "saccade/Pipeline/Source.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace saccade;

static constexpr llvm::StringLiteral kinds = "mlir, llvm, asm, obj, so, header, ptx or cubin";

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
static std::string defaultHeaderPath(llvm::StringRef library) {
  if (llvm::sys::fs::exists(library) && !llvm::sys::fs::is_regular_file(library))
    return "";
  llvm::SmallString<128> header(library);
  llvm::sys::path::replace_extension(header, "h");
  return header.str().str();
}

std::optional<ExitCode> saccade::parseOptions(llvm::ArrayRef<const char *> arguments, Options &options) {
  CommandLine line(tool, "IN -o OUT [options]", "compiles a program with attention to code for the CPU or a GPU");
  line.positional(options.input);
  line.value("o", "FILE", "Where to write; '-' is standard output, the default for text", options.output);
  line.value("target", "NAME",
             "CPU target: " + cpuTargetNames().str() + "; or GPU: " + gpuTargetNames().str() +
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
  line.value("libdevice", "FILE", "NVIDIA's math functions (libdevice.10.bc); else they are looked for beside ptxas",
             options.libdevice);
  line.flag("explain",
            "Say of each attention which kernels it became and what is proved of its mask and softmax, of GPU "
            "kernels with --emit=cubin what they need; with no -o and no --emit nothing else is written",
            options.explain);
  line.value("explain-size", "[FUNCTION:]NAME=NUMBER,...",
             "Sizes for the report, which then counts tiles and work and draws the mask: b, h, q and k where they are "
             "dynamic, and integer arguments by their names; may be given several times",
             [&](llvm::StringRef text) { return parseSizes(text, options); });
  line.flag("lint", "Warn about likely mistakes: a wrong scale, mask or alignment", options.compile.lint);
  line.flag("prepack",
            "Make what a function F computes of its constant arguments alone, such as packed weights, a function "
            "F__prepack, whose results F takes instead; on a CPU",
            options.compile.prepack);
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
  // That a target is not there is said before what would not go with it.
  if (options.architectures.empty())
    if (ExitCode code = chooseTarget(tool, options.target, options.compile))
      return code;
  bool hasKernels = !options.architectures.empty();
  if (hasKernels && options.compile.prepack)
    return line.usageError("--prepack does not go with --target=" + options.target);
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
  return std::nullopt;
}

llvm::raw_ostream &saccade::reportStream(const Options &options) {
  return options.emit && options.output == "-" ? llvm::errs() : llvm::outs();
}
