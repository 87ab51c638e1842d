//===- RunPipeline.cpp - Run the compile pipeline -----------------------------===//
#include "saccade/Pipeline/RunPipeline.h"
#include "PassReport.h"
#include "Stages.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Dialect/Attn/Derivatives/GradientFunction.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Import.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/PipelineOptions.h"
#include "saccade/Pipeline/StageMark.h"

using namespace mlir;

static bool isBeforeImport(const saccade::Insertion &insertion) {
  return insertion.isBefore && insertion.point == "import";
}

/// Runs the passes that are inserted before the first stage, which may make the program from other ops, and removes
/// them from the options.
static LogicalResult runFirstPasses(ModuleOp module, saccade::CompileOptions &options) {
  if (llvm::none_of(options.insertions, isBeforeImport) || !saccade::getStageOf(module).empty())
    return success();
  PassManager pm(module.getContext(), ModuleOp::getOperationName());
  pm.enableVerifier(options.verifyEach);
  saccade::addPassReport(pm, options.insertions);
  for (const saccade::Insertion &insertion : llvm::make_filter_range(options.insertions, isBeforeImport)) {
    std::string message;
    if (failed(addInsertion(insertion, targetName(options), pm, message)))
      return emitError(module.getLoc()) << "cannot parse the pass pipeline '" << insertion.passes << "': " << message;
  }
  llvm::erase_if(options.insertions, isBeforeImport);
  return pm.run(module);
}

void saccade::addPassReport(PassManager &pm, llvm::ArrayRef<Insertion> insertions) {
  pm.addInstrumentation(std::make_unique<PassReport>(pm.getContext(), insertions));
}

static bool hasDerivatives(ModuleOp module) {
  return llvm::any_of(module.getOps<func::FuncOp>(), [](func::FuncOp function) {
    return function->hasAttr(attn::gradientAttr) || function->hasAttr(attn::jvpAttr);
  });
}

LogicalResult saccade::importProgram(ModuleOp module, CompileOptions &options) {
  if (failed(runFirstPasses(module, options)))
    return failure();
  if (mayHaveFrontendOps(module.getContext())) {
    PassManager pm(module.getContext());
    buildImportPipeline(pm);
    if (failed(pm.run(module)))
      return failure();
  }
  if (!hasDerivatives(module))
    return success();
  PassManager pm(module.getContext());
  buildGradientFunctionsPipeline(pm);
  return pm.run(module);
}

LogicalResult saccade::addGradientFunctions(ModuleOp module, CompileOptions &options) {
  if (failed(runFirstPasses(module, options)))
    return failure();
  // A frontend may translate other ops to functions, which are entries, too.
  bool hasOthers = llvm::any_of(module.getOps(), [](Operation &op) { return !isa<func::FuncOp>(op); });
  return hasOthers || hasDerivatives(module) ? importProgram(module, options) : success();
}

namespace {
using Clock = std::chrono::steady_clock;

/// Notes the time of the stage that it ends, since the end of the last one or since `start`.
struct EndStage : PassWrapper<EndStage, OperationPass<ModuleOp>> {
  EndStage(std::vector<saccade::StageTime> &times, Clock::time_point start, llvm::StringRef stage)
      : times(times), start(start), stage(stage) {}

  void runOnOperation() override {
    Clock::time_point end = Clock::now(), begin = start;
    for (const saccade::StageTime &time : times)
      begin = time.end;
    times.push_back({stage.str(), begin, end});
    markAllAnalysesPreserved();
  }

  std::vector<saccade::StageTime> &times;
  Clock::time_point start;
  llvm::StringRef stage;
};
} // namespace

LogicalResult saccade::runPipeline(ModuleOp module, const CompileOptions &requested, std::vector<StageTime> *times) {
  CompileOptions options = requested;
  // A program that has passed a stage is continued. A mark without stage is an error of the first pass.
  size_t next = findStage(getStageOf(module)) + 1;
  if (options.start.empty() && next < getStages().size())
    options.start = getStages()[next].name;
  PassManager pm(module.getContext(), ModuleOp::getOperationName());
  pm.enableVerifier(options.verifyEach);
  auto owned = std::make_unique<PassReport>(module.getContext(), options.insertions);
  PassReport *report = owned.get();
  pm.addInstrumentation(std::move(owned));
  Clock::time_point start = Clock::now();
  auto endStage = [&](llvm::StringRef stage) {
    if (times)
      pm.addPass(std::make_unique<EndStage>(*times, start, stage));
  };
  if (failed(applyMLIROptions(pm)))
    return failure();
  if (next == getStages().size() && options.stopAfter.empty() && options.insertions.empty())
    pm.addPass(createEnterStage({/*stage=*/"", targetName(options)}));
  else if (failed(buildCompilePipeline(
               pm, options, [&](const llvm::Twine &message) { emitError(module.getLoc(), message); }, endStage)))
    return failure();
  LogicalResult result = pm.run(module);
  report->reportCrash(module.getLoc());
  return result;
}
