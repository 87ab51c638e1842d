//===- saccade-opt.cpp - Runs passes and pipelines on a module ----------------===//
#include "../Common/TakeOptions.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Raise/Passes.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/PipelineOptions.h"
#include "saccade/Pipeline/Plugins.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Support/DebugTypes.h"
#include "saccade/Support/OutputFile.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"

static constexpr llvm::StringLiteral tool = "saccade-opt";

using namespace saccade;

/// Parses the values of --insert-after or --insert-before; fails after an error message.
static bool addInsertions(llvm::ArrayRef<std::string> values, bool isBefore, std::vector<Insertion> &into) {
  llvm::StringRef option = isBefore ? "--insert-before" : "--insert-after";
  for (const std::string &value : values) {
    std::optional<Insertion> insertion = parseInsertion(value, isBefore);
    std::optional<std::string> mistake = insertion ? findMistake(*insertion) : "'" + value + "' is not POINT:PASSES";
    if (mistake) {
      llvm::errs() << tool << ": error: " << option << ": " << *mistake << '\n';
      return false;
    }
    into.push_back(std::move(*insertion));
  }
  return true;
}

/// Parses the values of --transform-script; fails after an error message.
static bool addScripts(llvm::ArrayRef<std::string> values, std::vector<Insertion> &into) {
  for (const std::string &value : values) {
    into.push_back(parseScript(value));
    if (std::optional<std::string> mistake = findMistake(into.back())) {
      llvm::errs() << tool << ": error: --transform-script: " << *mistake << '\n';
      return false;
    }
  }
  return true;
}

/// Like MlirOptMain of MLIR, with reports of passes that fail, and without its signal handlers.
static mlir::LogicalResult processFile(llvm::StringRef input, llvm::StringRef output, mlir::DialectRegistry &registry,
                                       llvm::ArrayRef<Insertion> insertions) {
  auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  auto reporting = config;
  reporting.setPassPipelineSetupFn([&](mlir::PassManager &pm) {
    addPassReport(pm, insertions);
    return config.setupPassPipeline(pm);
  });
  if (isSameFile(input, output)) {
    llvm::errs() << tool << ": error: output '" << output << "' and input '" << input << "' are the same file\n";
    return mlir::failure();
  }
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> text = mlir::openInputFile(input, &message);
  std::unique_ptr<llvm::ToolOutputFile> file = text ? mlir::openOutputFile(output, &message) : nullptr;
  if (!file) {
    llvm::errs() << message << '\n';
    return mlir::failure();
  }
  setReproducerInput(text->getBuffer());
  if (failed(mlir::MlirOptMain(file->os(), std::move(text), registry, reporting)))
    return mlir::failure();
  file->keep();
  return mlir::success();
}

static int run(int argc, char **argv) {
  std::vector<char *> arguments(argv, argv + argc);
  std::vector<std::string> passPlugins, dialectPlugins, after, before, scripts;
  if (ExitCode code = takeOptions(tool, arguments,
                                  {{"load-pass-plugin", &passPlugins},
                                   {"load-dialect-plugin", &dialectPlugins},
                                   {"insert-after", &after},
                                   {"insert-before", &before},
                                   {"transform-script", &scripts}}))
    return code;
  CompileOptions options;
  registerPasses();
  for (auto [kind, paths] : {std::pair(PluginKind::Pass, &passPlugins), {PluginKind::Dialect, &dialectPlugins}})
    if (ExitCode code = loadPlugins(tool, kind, *paths, options))
      return code;
  if (!addInsertions(after, /*isBefore=*/false, options.insertions) ||
      !addInsertions(before, /*isBefore=*/true, options.insertions) || !addScripts(scripts, options.insertions))
    return ExitUsage;
  registerPasses(&options.insertions);
  bool hasPipeline =
      llvm::any_of(arguments, [](llvm::StringRef argument) { return argument.drop_front().contains("saccade-"); });
  if (!options.insertions.empty() && !hasPipeline) {
    llvm::errs()
        << tool
        << ": error: --insert-after, --insert-before and --transform-script go with a pipeline of stages only, such as "
        << "--saccade-pipeline\n";
    return ExitUsage;
  }
  mlir::DialectRegistry registry;
  registerDialects(registry);
  registerPluginDialects(registry);
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << "saccade-opt: " << versionLine() << '\n'; });
  mlir::PassPipelineRegistration<> lint("lint",
                                        "Warn about likely mistakes; writes the module, with attention raised, only to "
                                        "the file of -o",
                                        [](mlir::OpPassManager &pm) {
                                          pm.addNestedPass<mlir::func::FuncOp>(
                                              createRaiseAttention({/*remarks=*/false, /*lint=*/true}));
                                          pm.addPass(attn::createLint());
                                        });
  llvm::cl::opt<std::string> debugTypes("debug-only", llvm::cl::value_desc("FLAG,..."),
                                        llvm::cl::desc("Print the debug output of these passes, by their flags"));
  // Listed by --help; takeOptions has read them.
  llvm::cl::list<std::string> insertAfter(
      "insert-after", llvm::cl::value_desc("POINT:PASSES"),
      llvm::cl::desc("Run passes after a stage (tiling) or a step (transforms.raise) of --saccade-pipeline"));
  llvm::cl::list<std::string> insertBefore("insert-before", llvm::cl::value_desc("POINT:PASSES"),
                                           llvm::cl::desc("Run passes before a stage or step"));
  llvm::cl::list<std::string> transformScript(
      "transform-script", llvm::cl::value_desc("[POINT:]FILE"),
      llvm::cl::desc("Run a script of the transform dialect before a stage or step, 'tiling' by default"));
  argc = static_cast<int>(arguments.size());
  auto [input, output] = mlir::registerAndParseCLIOptions(argc, arguments.data(),
                                                          "Saccade: runs passes and pipelines on a module\n", registry);
  // As in the other tools: passes on a kernel add globals to the module of all kernels.
  static_cast<llvm::cl::opt<bool> *>(llvm::cl::getRegisteredOptions().lookup("mlir-disable-threading"))->setValue(true);
  if (!debugTypes.empty() && !setDebugTypes(debugTypes))
    llvm::errs() << "saccade-opt: warning: this build has no debug output\n";
  bool lints =
      llvm::any_of(arguments, [](llvm::StringRef argument) { return argument == "--lint" || argument == "-lint"; });
  if (lints && output == "-")
    output = "/dev/null";
  auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses())
    return mlir::asMainReturnCode(mlir::MlirOptMain(argc, arguments.data(), input, output, registry));
  return mlir::asMainReturnCode(processFile(input, output, registry, options.insertions));
}

extern "C" int saccade_opt_main(int argc, char **argv) {
  return runTool({argv, static_cast<size_t>(argc)}, [&] {
    printStackOnFault();
    return run(argc, argv);
  });
}
