//===- RegisterPasses.cpp - Passes and pipelines for textual use --------------===//
//
// saccade-pipeline is the whole compiler; each stage is a pipeline of its own, saccade-import and so on.
//
//===----------------------------------------------------------------------===//
#include "Stages.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Transform/Transforms/Passes.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Passes.h"
#include "saccade/Import/Raise/Passes.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Script/Script.h"
#include "saccade/Target/Passes.h"
#include "saccade/Tiling/Passes.h"

using namespace mlir;
using namespace saccade;

namespace {

/// The options of the pipeline of a stage.
struct StageOptions : PassPipelineOptions<StageOptions> {
  Option<std::string> target{*this, "target", llvm::cl::desc("CPU or GPU target; \"host\" by default"),
                             llvm::cl::init("host")};
  Option<bool> lint{*this, "lint", llvm::cl::desc("Warn about likely mistakes")};
  Option<std::string> scheduleTable{*this, "schedule-table",
                                    llvm::cl::desc("Take tile sizes of attention from a table")};
  Option<std::string> dumpStages{*this, "dump-stages",
                                 llvm::cl::desc("Write the module after every stage to a folder")};
  Option<bool> html{*this, "html", llvm::cl::desc("With dump-stages, also write stages.html: the stages side by side")};
  Option<bool> prepack{*this, "prepack", llvm::cl::desc("Move computations on constants to prepack functions")};
};

/// The options of the whole pipeline.
struct WholeOptions : StageOptions {
  Option<std::string> start{*this, "start", llvm::cl::desc("The first stage to run; \"import\" by default")};
  Option<std::string> stop{*this, "stop", llvm::cl::desc("The last stage to run; \"target\" by default")};
};

} // namespace

static const std::vector<Insertion> *insertionsOfPipelines = nullptr;

using ErrorHandler = llvm::function_ref<LogicalResult(const llvm::Twine &)>;

/// Adds the stages from `start` to `stop` to `pm`.
static LogicalResult build(OpPassManager &pm, const StageOptions &given, llvm::StringRef start, llvm::StringRef stop,
                           ErrorHandler emitError) {
  CompileOptions options;
  options.start = start;
  options.stopAfter = stop;
  options.scheduleTable = given.scheduleTable;
  options.dumpStages = given.dumpStages;
  options.dumpPage = given.html;
  if (options.dumpPage && options.dumpStages.empty())
    return emitError("the option 'html' goes with 'dump-stages' only");
  options.lint = given.lint;
  options.prepack = given.prepack;
  options.device = lookupGPUTarget(given.target);
  if (!options.device && !(options.target = lookupCPUTarget(given.target)))
    return emitError("target '" + given.target + "' is not supported, expected one of " + cpuTargetNames() + ", " +
                     gpuTargetNames());
  // The pipeline of a stage has only the insertions of this stage.
  if (insertionsOfPipelines)
    llvm::copy_if(*insertionsOfPipelines, std::back_inserter(options.insertions), [&](const Insertion &insertion) {
      return start != stop || start.empty() || llvm::StringRef(insertion.point).split('.').first == start;
    });
  return buildCompilePipeline(pm, options, [&](const llvm::Twine &message) { (void)emitError(message); });
}

/// Registers a textual pipeline whose `add` may fail.
template <typename Options>
static void registerPipeline(llvm::StringRef name, llvm::StringRef summary,
                             std::function<LogicalResult(OpPassManager &, const Options &, ErrorHandler)> add) {
  registerPassPipeline(
      name, summary,
      [add](OpPassManager &pm, llvm::StringRef text, ErrorHandler emitError) {
        Options options;
        std::string message;
        llvm::raw_string_ostream os(message);
        if (failed(options.parseFromString(text, os)))
          return emitError(message);
        return add(pm, options, emitError);
      },
      [](llvm::function_ref<void(const detail::PassOptions &)> visit) { visit(Options()); });
}

static void registerPipelines() {
  registerPipeline<WholeOptions>("saccade-pipeline", "The compiler: all stages, or those from start to stop",
                                 [](OpPassManager &pm, const WholeOptions &options, ErrorHandler emitError) {
                                   return build(pm, options, options.start, options.stop, emitError);
                                 });
  for (const Stage &stage : getStages())
    registerPipeline<StageOptions>(("saccade-" + stage.name).str(),
                                   ("The " + stage.name + " stage: " + stage.summary).str(),
                                   [&stage](OpPassManager &pm, const StageOptions &options, ErrorHandler emitError) {
                                     return build(pm, options, stage.name, stage.name, emitError);
                                   });
}

void saccade::registerPasses(const std::vector<Insertion> *insertions) {
  static const bool registered = [] {
    // Of MLIR, those that the pipeline uses, so that its text can be parsed, and general ones.
    registerTransformsPasses();
    transform::registerTransformPasses();
    registerConvertElementwiseToLinalgPass();
    memref::registerResolveShapedTypeResultDimsPass();
    registerSaccadeImportPasses();
    attn::registerSaccadeAttnTransformsPasses();
    registerSaccadeImportRaisePasses();
    registerSaccadePipelinePasses();
    registerSaccadeTargetPasses();
    registerSaccadeCodegenCPUPasses();
    registerSaccadeCodegenGPUPasses();
    registerSaccadeSchedulePasses();
    registerSaccadeScriptPasses();
    registerSaccadeTilingPasses();
    registerSaccadeBufferizePasses();
    registerPipelines();
    return true;
  }();
  (void)registered;
  if (insertions)
    insertionsOfPipelines = insertions;
}
