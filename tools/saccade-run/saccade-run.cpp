//===- saccade-run.cpp - Compiles and runs a program --------------------------===//
#include "Arguments.h"
#include "Guarded.h"
#include "OnGPU.h"
#include "Profile.h"
#include "Remote.h"
#include "Report.h"
#include "Simulate.h"
#include "Values.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "saccade/JIT/DiskCache.h"
#include "saccade/Pipeline/PipelineOptions.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Pipeline/Source.h"
#include "saccade/Pipeline/StageMark.h"
#include "saccade/Runtime/BulkTensor.h"
#include "saccade/Runtime/Runtime.h"
#include "saccade/Support/Kernels.h"
#include "saccade/Support/Npy.h"
#include "saccade/Support/OutputFile.h"
#include "saccade/Support/Progress.h"
#include "saccade/Support/ToolMain.h"
#include "saccade/Target/Target.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace saccade;
using namespace saccade::run;

static constexpr llvm::StringLiteral tool = "saccade-run";

namespace {

struct Options {
  std::string input, entry, target = "host", device = "cpu", kernels, runner, cacheDirectory;
  std::vector<std::string> arguments, outputs;
  bool time = false, check = false, checkFull = false, explain = false, globalRaces = false;
  bool stats = false, statsOfFused = false, findNaN = false, profile = false;
  std::string profileFile;
  std::optional<int64_t> multiprocessors;
  int32_t threads = 0;
  std::optional<Guard> guard;
  std::optional<Arithmetic> arithmetic;
  PipelineOptions pipeline;
  CompileOptions compile; ///< without the target
};

} // namespace

static std::optional<ExitCode> parseOptions(llvm::ArrayRef<const char *> arguments, Options &options) {
  CommandLine line(tool, "IN --arg=... [options]", "compiles a program with attention and runs it");
  line.positional(options.input);
  line.value("entry", "NAME", "The function to run; optional if the program has only one", options.entry);
  line.value("arg", "TEXT",
             "The next argument: FILE.npy[:TYPE], SHAPE:TYPE[:SEED] for random numbers, SHAPE:TYPE:=VALUE, "
             "or a number for a scalar",
             options.arguments);
  line.value("out", "FILE.npy", "The file for the next result", options.outputs);
  line.optionalValue("check", "full",
                     "Compare with the float64 reference, on 256 sampled rows above 1 GFLOP or in full",
                     [&](llvm::StringRef text) {
                       options.check = true;
                       options.checkFull |= text == "full";
                       return text.empty() || text == "full";
                     });
  line.flag("explain",
            "Report why a softmax was not raised to attention and, with --device=ptxsim, the kernels that ran",
            options.explain);
  line.optionalValue(
      "stats", "transforms",
      "Print mean, deviation, extremes, NaN and infinities of every tensor that the program computes, as "
      "it is written or after the stage 'transforms', which fuses ops",
      [&](llvm::StringRef text) {
        options.stats = true;
        options.statsOfFused = text == "transforms";
        return text.empty() || text == "transforms";
      },
      "transforms");
  line.flag("find-nan", "Print the op that makes the first NaN or infinity, and what it read", options.findNaN);
  line.flag("time", "Print latency, throughput, memory and compile time", options.time);
  line.optionalValue("profile", "FILE",
                     "Print what --time prints with percentiles of latency, the time of each stage of the compilation "
                     "and that of each task; and write the numbers to FILE as JSON, or the calls and tasks to "
                     "FILE.trace.json as a trace for Perfetto",
                     [&](llvm::StringRef text) {
                       options.profile = options.time = true;
                       options.profileFile = text.str();
                       return true;
                     });
  line.value("target", "NAME", "CPU target: " + cpuTargetNames().str() + "; or GPU: " + gpuTargetNames().str(),
             options.target);
  line.value("device", "NAME",
             "The device: cpu; cuda (the first NVIDIA GPU; --target is sm_80 by default); or ptxsim (a simulator that "
             "checks every memory access of the kernels)",
             options.device);
  line.value("runner", "COMMAND",
             "Run the code by this command, for a target of another architecture: an emulator and the program "
             "saccade-call of that architecture",
             options.runner);
  line.value("kernels", "FILE.ptx", "With --device=ptxsim: PTX to run instead of the compiled kernels",
             options.kernels);
  line.value(
      "arithmetic", "NAME",
      "With --device=ptxsim: rounded (correctly rounded instructions, the default) or hardware (accumulation and "
      "errors of approximate instructions as the target may have them)",
      [&](llvm::StringRef text) {
        options.arithmetic = text == "hardware" ? Arithmetic::Hardware : Arithmetic::Rounded;
        return text == "hardware" || text == "rounded";
      },
      "rounded or hardware");
  line.flag("global-races", "With --device=ptxsim: check that CTAs do not race in global memory, slowly",
            options.globalRaces);
  line.value(
      "multiprocessors", "N",
      "With --device=ptxsim: multiprocessors of the GPU (default 2), which limit the CTAs of kernels that take "
      "work items from a counter",
      [&](llvm::StringRef text) {
        options.multiprocessors.emplace();
        return !text.getAsInteger(10, *options.multiprocessors) && *options.multiprocessors > 0;
      },
      "a number of at least 1");
  line.value("cache-dir", "DIR", "Keep compiled programs in files of this folder, and take them from there",
             options.cacheDirectory);
  addPipelineOptions(line, tool, options.pipeline, options.compile);
  line.value(
      "threads", "N", "The number of threads; 0 for all processors",
      [&](llvm::StringRef text) { return !text.getAsInteger(10, options.threads) && options.threads >= 0; },
      "a number of at least 0");
  bool isGuardGiven = false;
  auto setGuard = [&](llvm::StringRef text) {
    isGuardGiven = true;
    options.guard = text == "begin" ? Guard::Begin : Guard::End;
    if (text == "off")
      options.guard.reset();
    return text.empty() || text == "end" || text == "begin" || text == "off";
  };
  line.optionalValue("guard", "begin|off",
                     "Run on memory that ends (or begins) at a page without access, and on scratch memory that is NaN; "
                     "the variable SACCADE_RUN_GUARD sets the default",
                     setGuard, "end, begin or off");
  if (std::optional<ExitCode> code = line.parse(arguments))
    return code;
  if (std::optional<ExitCode> code = applyPipelineOptions(line, tool, options.pipeline, options.compile))
    return code;
  // Guarded copies of the tensors are no part of the memory that --time measures.
  const char *guardVariable = isGuardGiven || options.time ? nullptr : std::getenv("SACCADE_RUN_GUARD");
  if (guardVariable && !setGuard(guardVariable))
    return line.usageError("unknown SACCADE_RUN_GUARD '" + llvm::Twine(guardVariable) +
                           "', expected end, begin or off");
  bool isSimulated = options.device == "ptxsim", hasKernels = isSimulated || options.device == "cuda";
  if (!hasKernels && options.device != "cpu")
    return line.usageError("unknown device '" + options.device + "', expected cpu, cuda or ptxsim");
  if (hasKernels && options.target == "host")
    options.target = "sm_80";
  if (llvm::StringRef(options.target).contains(','))
    return line.usageError("a call runs the code of one target, got --target=" + options.target);
  bool isForGPU = lookupGPUTarget(options.target) != nullptr;
  if (hasKernels ? !isForGPU && lookupCPUTarget(options.target) : isForGPU)
    return line.usageError("--device=" + options.device + " cannot run code for --target=" + options.target +
                           (hasKernels ? "" : ", use --device=ptxsim or --device=cuda"));
  if (!isSimulated && !options.kernels.empty())
    return line.usageError("--kernels goes with --device=ptxsim only");
  if (!isSimulated && options.arithmetic)
    return line.usageError("--arithmetic goes with --device=ptxsim only");
  if (!isSimulated && options.globalRaces)
    return line.usageError("--global-races goes with --device=ptxsim only");
  if (!isSimulated && options.multiprocessors)
    return line.usageError("--multiprocessors goes with --device=ptxsim only");
  std::string timing = options.profile ? "--profile" : "--time";
  if (hasKernels && options.time)
    return line.usageError(timing + " goes with --device=cpu only");
  if (!options.runner.empty() && (hasKernels || options.time))
    return line.usageError("--runner goes with --device=cpu and without " + timing);
  if ((options.stats || options.findNaN) && (options.check || options.time))
    return line.usageError("--stats and --find-nan go without --check and " + timing +
                           ": the program returns more values");
  llvm::SmallVector<llvm::StringRef> inputs = {options.input, options.kernels};
  for (const std::string &argument : options.arguments)
    inputs.push_back(getArgumentPath(argument));
  llvm::SmallVector<llvm::StringRef> outputs(options.outputs.begin(), options.outputs.end());
  outputs.push_back(options.profileFile);
  for (llvm::StringRef output : outputs)
    for (llvm::StringRef input : inputs)
      if (isSameFile(input, output))
        return line.usageError("output '" + output + "' and input '" + input + "' are the same file");
  return std::nullopt;
}

/// "1 result", "2 results"
static std::string counted(int64_t count, llvm::StringRef noun) {
  return (llvm::Twine(count) + " " + noun + (count == 1 ? "" : "s")).str();
}

static int report(llvm::Error error, ExitCode code) {
  llvm::errs() << tool << ": error: " << llvm::toString(std::move(error)) << '\n';
  return code;
}

/// Selects the entry `name`, or the only entry if `name` is empty. Returns null after an error message.
static const Entry *chooseEntry(const std::vector<Entry> &entries, llvm::StringRef name) {
  auto it = llvm::find_if(entries, [&](const Entry &entry) { return entry.name == name; });
  if (it != entries.end())
    return &*it;
  if (name.empty() && entries.size() == 1)
    return &entries.front();
  llvm::errs() << tool << ": error: ";
  if (entries.empty())
    llvm::errs() << "the program has no public function to run\n";
  else if (name.empty())
    llvm::errs() << "the program has several entries; choose one with --entry:\n";
  else
    llvm::errs() << "there is no entry '" << name << "'; there are:\n";
  for (const Entry &entry : entries)
    llvm::errs() << "  " << entry.signature() << '\n';
  return nullptr;
}

static ExitCode writeResults(llvm::ArrayRef<std::string> paths, llvm::ArrayRef<HostTensor> results) {
  for (auto [path, result] : llvm::zip(paths, results)) {
    llvm::Error error =
        writeOutput(path, [&, &result = result](llvm::raw_ostream &os) { return writeNpy(result, os); });
    if (error) {
      llvm::errs() << tool << ": error: cannot write '" << path << "': " << llvm::toString(std::move(error)) << '\n';
      return ExitFile;
    }
  }
  return ExitSuccess;
}

/// The PTX to run: that of the program, or the file of --kernels.
static ExitCode getKernels(const Options &options, const Executable &executable, std::string &into) {
  into = executable.ptx().str();
  if (options.kernels.empty())
    return ExitSuccess;
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFile(options.kernels);
  if (!file) {
    llvm::errs() << tool << ": error: cannot read '" << options.kernels << "': " << file.getError().message() << '\n';
    return ExitFile;
  }
  into = (*file)->getBuffer().str();
  return ExitSuccess;
}

/// Removes all functions except `entry` and inlines its callees, so that nothing else is compiled.
static llvm::LogicalResult keepOnly(mlir::ModuleOp module, llvm::StringRef entry) {
  for (auto function : module.getOps<mlir::func::FuncOp>())
    if (function.getName() != entry)
      function.setPrivate();
  mlir::PassManager passes(module.getContext());
  // The inliner runs no canonicalization, so the compiled program stays as it was written.
  passes.addPass(mlir::createInlinerPass({}, [](mlir::OpPassManager &) {}));
  passes.addPass(mlir::createSymbolDCEPass());
  return passes.run(module);
}

static int runProgram(llvm::ArrayRef<const char *> commandLine) {
  Options options;
  if (std::optional<ExitCode> code = parseOptions(commandLine, options))
    return *code;
  CompileOptions &compile = options.compile;
  compile.remarks = options.explain;
  if (ExitCode code = chooseTarget(tool, options.target, compile))
    return code;
  if (options.runner.empty() && !hostRuns(*compile.target))
    return report(llvm::createStringError(explainHostRefusal(*compile.target)), ExitUnsupported);
  Source source;
  if (ExitCode code = source.load(tool, options.input))
    return code;
  llvm::StringRef passed = getStageOf(source.module());
  bool isLowered = !passed.empty() && passed != "import";
  bool areValuesShown = options.stats || options.findNaN;
  if (isLowered && (options.check || options.time || areValuesShown))
    return report(llvm::createStringError("--check, --time, --stats and --find-nan need the program itself: this one "
                                          "has passed the stage '" +
                                          passed + "'"),
                  ExitInvalidInput);
  // The reference interpreter takes the imported program as well.
  if (failed(importProgram(source.module(), compile)))
    return ExitInvalidInput;
  llvm::Expected<std::vector<Entry>> entries = getEntries(source.module());
  if (!entries)
    return report(entries.takeError(), ExitInvalidInput);
  const Entry *chosen = chooseEntry(*entries, options.entry);
  if (!chosen)
    return ExitUsage;
  llvm::SmallVector<size_t> resultPlaces = chosen->programResults();
  if (options.outputs.size() > resultPlaces.size())
    return report(llvm::createStringError(chosen->signature() + " gives " + counted(resultPlaces.size(), "result") +
                                          ", but --out is given " + counted(options.outputs.size(), "time")),
                  ExitUsage);
  std::vector<HostTensor> arguments;
  if (ExitCode code = makeArguments(*chosen, options.arguments, arguments))
    return code;

  // The pipeline rewrites the module. The reference requires the original, and countWork the inlined program.
  mlir::OwningOpRef<mlir::ModuleOp> original = source.module().clone();
  auto function = original->lookupSymbol<mlir::func::FuncOp>(chosen->name);
  if (!isLowered && failed(keepOnly(source.module(), chosen->name)))
    return ExitInvalidInput;
  if (areValuesShown) {
    std::string name = chosen->name;
    if (failed(returnIntermediates(source.module(), options.statsOfFused)))
      return ExitInvalidInput;
    entries = getEntries(source.module());
    if (!entries)
      return report(entries.takeError(), ExitInvalidInput);
    chosen = chooseEntry(*entries, name);
    resultPlaces = chosen->programResults();
  }
  mlir::OwningOpRef<mlir::ModuleOp> inlined = source.module().clone();
  using Work = std::optional<attn::Work>;
  auto show = [&](llvm::ArrayRef<HostTensor> results, llvm::function_ref<int(const Work &)> time) -> int {
    if (ExitCode code = writeResults(options.outputs, results))
      return code;
    auto program = inlined->lookupSymbol<mlir::func::FuncOp>(chosen->name);
    if (areValuesShown) {
      Values values(program, arguments, results);
      if (options.stats)
        values.printStatistics();
      return options.findNaN ? values.findNonFinite() : ExitSuccess;
    }
    Work work;
    if (options.time || options.check)
      work = countWork(program, arguments);
    if (options.time)
      if (int code = time(work))
        return code;
    if (options.check) {
      constexpr int64_t gigaflop = 1'000'000'000;
      bool full = options.checkFull || !work || work->flops <= gigaflop;
      bool onGPU = options.device == "cuda" || options.arithmetic == Arithmetic::Hardware;
      return checkResults(function, *chosen, arguments, results, full, onGPU);
    }
    if (options.outputs.empty() && !options.time)
      for (auto [i, result] : llvm::enumerate(results))
        printResult(i, result);
    return ExitSuccess;
  };
  if (!options.runner.empty()) {
    auto run = [&] {
      Progress progress("compiling and running " + options.input);
      return runRemote(source.module(), compile, *chosen, arguments, {options.runner, options.threads, options.guard});
    };
    llvm::Expected<std::vector<HostTensor>> results = run();
    if (!results)
      return report(results.takeError(), ExitInvalidInput);
    return show(*results, nullptr);
  }
  std::unique_ptr<Executable> executable;
  std::shared_ptr<DiskCache> cache = openCache(tool, options.cacheDirectory);
  {
    Progress progress("compiling " + options.input);
    llvm::Expected<std::unique_ptr<Executable>> compiled = Executable::create(source.module(), compile, cache.get());
    if (!compiled)
      return report(compiled.takeError(), ExitInvalidInput);
    executable = std::move(*compiled);
  }

  saccade_set_threads(options.threads);
  Call call{*executable, *executable->lookup(chosen->name), {}, {}, resultPlaces};
  for (auto [type, argument] : llvm::zip_equal(call.entry.arguments, arguments))
    call.inputs.push_back(toBuffer(type, argument));
  auto shapes = executable->resultShapes(call.entry, call.inputs);
  if (!shapes)
    return report(shapes.takeError(), ExitInvalidInput);
  call.outputs.resize(call.entry.results.size());
  std::vector<HostTensor> results;
  for (size_t place : resultPlaces) {
    const ValueType &type = call.entry.value(place);
    bool isArgument = place < arguments.size();
    llvm::ArrayRef<int64_t> shape = isArgument ? arguments[place].shape() : (*shapes)[place - arguments.size()];
    llvm::Expected<HostTensor> result = HostTensor::allocate(type.element, shape);
    if (!result)
      return report(llvm::createStringError("result '" + type.name + "' (" + type.str() +
                                            "): " + llvm::toString(result.takeError())),
                    ExitInvalidInput);
    // The call updates a copy of an argument: the reference evaluates the original.
    if (isArgument)
      std::memcpy(result->data(), arguments[place].data(), arguments[place].bytes());
    results.push_back(std::move(*result));
    call.buffer(place) = toBuffer(type, results.back());
  }

  std::string kernels;
  if (ExitCode code = getKernels(options, *executable, kernels))
    return code;
  int64_t before = residentMemory();
  bool canReset = resetPeak();
  Launches launches;
  {
    Progress progress("running @" + call.entry.name);
    Simulation how{options.arithmetic.value_or(Arithmetic::Rounded), options.globalRaces};
    how.multiprocessors = options.multiprocessors.value_or(how.multiprocessors);
    llvm::Error error = options.device == "ptxsim" ? simulate(call, kernels, how, arguments, results, launches)
                        : compile.device           ? runOnGPU(call, arguments, results)
                        : options.guard            ? runGuarded(call, *options.guard, arguments, results)
                                                   : executable->call(call.entry, call.inputs, call.outputs);
    if (error && error.isA<NoDevice>())
      return report(std::move(error), ExitUnsupported);
    if (error)
      return report(std::move(error), ExitInvalidInput);
  }
  if (options.explain)
    for (const KernelInfo &kernel : executable->kernels()) {
      llvm::StringRef other = kernel.name;
      if (Launched launched = launches[kernel.name]; launched.ctas)
        llvm::outs() << kernel.name << ": kernel family " << kernel.family << ", ran " << counted(launched.ctas, "CTA")
                     << ", " << launched.instructions << " instructions of warps, " << launched.matrixProducts
                     << " of them mma or wgmma" << kernel.notes << '\n';
      else if (other.consume_back(bulkKernelSuffix) && launches[other.str()].ctas)
        llvm::outs()
            << kernel.name << ": kernel family " << kernel.family
            << ", did not run: its tensor maps need contiguous rows, and addresses and strides that are multiples of "
            << runtime::BulkTensor::alignment << " bytes; pages a multiple of " << runtime::BulkTensor::swizzleRows
            << " keys\n";
    }
  int64_t memoryOfRun = canReset ? std::max<int64_t>(peakMemory() - before, 0) : -1;

  return show(results, [&](const Work &work) -> int {
    if (!options.profile) {
      llvm::Error error = reportTime(call, work, memoryOfRun);
      return error ? report(std::move(error), ExitInvalidInput) : ExitSuccess;
    }
    llvm::Expected<Profile> profile = Profile::measure(call, work, memoryOfRun);
    if (!profile)
      return report(profile.takeError(), ExitInvalidInput);
    profile->print(llvm::outs());
    if (options.profileFile.empty())
      return ExitSuccess;
    llvm::Error error = profile->write(options.profileFile);
    return error ? report(llvm::createStringError("cannot write '" + options.profileFile +
                                                  "': " + llvm::toString(std::move(error))),
                          ExitFile)
                 : ExitSuccess;
  });
}

extern "C" int saccade_run_main(int argc, char **argv) {
  llvm::ArrayRef<const char *> arguments(argv, argc);
  return runTool(arguments, [&] { return runProgram(arguments.drop_front()); });
}
