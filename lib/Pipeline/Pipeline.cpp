//===- Pipeline.cpp - The stages of the compiler ------------------------------===//
//
// The stages in order; each is built by its own library. This file is the entry point for reading the compiler.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/Pipeline.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "saccade/Bufferize/Bufferize.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Import.h"
#include "saccade/Import/Passes.h"
#include "saccade/Import/Raise/Passes.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Target/Passes.h"
#include "saccade/Tiling/Passes.h"

using namespace mlir;
using namespace saccade;

namespace {

/// A stage: its name on the command line and its passes.
struct Stage {
  llvm::StringRef name;
  void (*build)(OpPassManager &pm, const CompileOptions &options);
};

const Stage stages[] = {
    // Converts models of other frameworks to attn, linalg and other dialects of programs.
    {"import", [](OpPassManager &pm, const CompileOptions &) { buildImportPipeline(pm); }},
    // On whole tensors: verifies ops, inlines calls, raises attention, adds shape checks and fuses elementwise ops.
    {"transforms",
     [](OpPassManager &pm, const CompileOptions &options) {
       buildTransformsPipeline(pm, {/*forGPU=*/options.device != nullptr, options.lint, options.remarks});
     }},
    // Chooses tile sizes, before tiling.
    {"schedule",
     [](OpPassManager &pm, const CompileOptions &options) {
       options.device ? buildSchedulePipeline(pm, *options.device) : buildSchedulePipeline(pm, *options.target);
     }},
    // Tiles ops on whole tensors into parallel tasks.
    {"tiling", [](OpPassManager &pm,
                  const CompileOptions &options) { buildTilingPipeline(pm, /*forGPU=*/options.device != nullptr); }},
    // Bufferizes tasks and entries; the caller owns the results.
    {"bufferize",
     [](OpPassManager &pm, const CompileOptions &options) {
       buildBufferizePipeline(pm, *options.target, /*forGPU=*/options.device != nullptr, options.prepack);
     }},
    // Lowers tiles to register-blocked vector code or GPU kernels, then to the LLVM dialect.
    {"codegen",
     [](OpPassManager &pm, const CompileOptions &options) {
       // The host part of a GPU program is compiled for the CPU.
       if (options.device)
         buildGPUCodegenPipeline(pm, *options.device);
       buildCPUCodegenPipeline(pm, *options.target);
     }},
    // Creates the entry points, after the calling convention of entries is final.
    {"target", [](OpPassManager &pm,
                  const CompileOptions &options) { pm.addPass(createEmitEntryPoints({options.target->name.str()})); }},
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
    if (!options.verifyEach)
      pm.addPass(createVerifyIR());
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
