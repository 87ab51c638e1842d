//===- Pipeline.cpp - The compiler on one page --------------------------------===//
//
// The stages in their order, each built by its own library. Whoever wants to know how a program
// becomes code starts reading here.
//
//===----------------------------------------------------------------------===//
#include "saccade/Bufferize/Bufferize.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Import.h"
#include "saccade/Import/Passes.h"
#include "saccade/Import/Raise/Passes.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Target/Passes.h"
#include "saccade/Tiling/Passes.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace saccade;

namespace {

/// A stage: its name on the command line and what it runs.
struct Stage {
  llvm::StringRef name;
  void (*build)(OpPassManager &pm, const CompileOptions &options);
};

const Stage stages[] = {
    // Graphs of other projects become ops that the rest knows.
    {"import", [](OpPassManager &pm, const CompileOptions &) { buildImportPipeline(pm); }},
    // What is not known is refused, calls are inlined, attention raised, shapes checked and elementwise ops fused on whole tensors.
    {"transforms",
     [](OpPassManager &pm, const CompileOptions &options) {
       buildTransformsPipeline(pm, {/*forGPU=*/options.device != nullptr, options.lint, options.remarks});
     }},
    // Tiles are chosen on whole ops, before anything is cut.
    {"schedule",
     [](OpPassManager &pm, const CompileOptions &options) {
       options.device ? buildSchedulePipeline(pm, *options.device) : buildSchedulePipeline(pm, *options.target);
     }},
    // Whole tensors become parallel tasks over tiles.
    {"tiling",
     [](OpPassManager &pm, const CompileOptions &options) {
       buildTilingPipeline(pm, /*forGPU=*/options.device != nullptr);
     }},
    // Tasks pass memory, results are the caller's.
    {"bufferize",
     [](OpPassManager &pm, const CompileOptions &options) {
       buildBufferizePipeline(pm, *options.target, /*forGPU=*/options.device != nullptr, options.prepack);
     }},
    // Tiles become register-blocked vector code, or tasks become kernels; then the LLVM dialect.
    {"codegen",
     [](OpPassManager &pm, const CompileOptions &options) {
       // What is left on the host of a program for a GPU is code for its CPU.
       if (options.device)
         buildGPUCodegenPipeline(pm, *options.device);
       buildCPUCodegenPipeline(pm, *options.target);
     }},
    // Only now is the calling convention of the entries final.
    {"target",
     [](OpPassManager &pm, const CompileOptions &options) {
       pm.addPass(createEmitEntryPoints({options.target->name.str()}));
     }},
};

} // namespace

llvm::SmallVector<llvm::StringRef> saccade::stageNames() {
  return llvm::map_to_vector(stages, [](const Stage &stage) { return stage.name; });
}

LogicalResult saccade::buildCompilePipeline(OpPassManager &pm, const CompileOptions &options,
                                            llvm::function_ref<void(const llvm::Twine &)> emitError) {
  auto isStage = [](llvm::StringRef name) {
    return llvm::any_of(stages, [&](const Stage &stage) { return stage.name == name; });
  };
  auto unknown = [&](llvm::StringRef name) {
    emitError("unknown stage '" + name + "', expected one of " + llvm::join(stageNames(), ", "));
    return failure();
  };
  if (!options.stopAfter.empty() && !isStage(options.stopAfter))
    return unknown(options.stopAfter);
  for (const auto &[stage, pipeline] : options.insertAfter)
    if (!isStage(stage))
      return unknown(stage);

  for (const Stage &stage : stages) {
    stage.build(pm, options);
    for (const auto &[after, pipeline] : options.insertAfter) {
      if (after != stage.name)
        continue;
      std::string message;
      llvm::raw_string_ostream stream(message);
      if (failed(parsePassPipeline(pipeline, pm, stream))) {
        emitError("cannot parse the pass pipeline '" + llvm::Twine(pipeline) + "': " + message);
        return failure();
      }
    }
    if (stage.name == options.stopAfter)
      break;
  }
  return success();
}

void saccade::registerPasses() {
  registerTransformsPasses();
  registerSaccadeImportPasses();
  attn::registerSaccadeAttnTransformsPasses();
  registerSaccadeImportRaisePasses();
  registerSaccadePipelinePasses();
  registerSaccadeTargetPasses();
  registerSaccadeCodegenCPUPasses();
  registerSaccadeCodegenGPUPasses();
  registerSaccadeSchedulePasses();
  registerSaccadeTilingPasses();
  registerSaccadeBufferizePasses();
  PassPipelineRegistration<>("saccade-bufferize", "The bufferize stage: from tensors to buffers and tasks",
                             [](OpPassManager &pm) { buildBufferizePipeline(pm, *lookupCPUTarget("host")); });
}
