//===- Stages.cpp - The stages of the compiler --------------------------------===//
//
// The stages in order; each is built by its own library. This file is the entry point for reading the compiler.
//
//===----------------------------------------------------------------------===//
#include "Stages.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Bufferize/Bufferize.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Import.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Target/Passes.h"
#include "saccade/Tiling/Passes.h"

using namespace mlir;
using namespace saccade;

static void buildSchedule(OpPassManager &pm, const CompileOptions &options) {
  if (!options.scheduleTable.empty())
    pm.addPass(createApplySchedules({options.scheduleTable, /*text=*/"", targetName(options)}));
  options.device ? buildSchedulePipeline(pm, *options.device) : buildSchedulePipeline(pm, *options.target);
}

static constexpr llvm::StringRef transformsSteps[] = {"inline", "raise", "derive", "shapes", "fuse"};
static constexpr llvm::StringRef tilingSteps[] = {"attention", "linalg"};
static constexpr llvm::StringRef bufferizeSteps[] = {"buffers", "tasks"};
// The first two are of GPUs.
static constexpr llvm::StringRef codegenSteps[] = {"kernels", "ptx", "vectors", "llvm"};

static const Stage stages[] = {
    {"import",
     "converts models of other frameworks to attn, linalg and other dialects of programs",
     {},
     [](OpPassManager &pm, const CompileOptions &, StepListener) { buildImportPipeline(pm); },
     nullptr},
    {"transforms", "on whole tensors: verifies ops, inlines calls, raises attention, adds shape checks and fuses",
     transformsSteps,
     [](OpPassManager &pm, const CompileOptions &options, StepListener onStep) {
       buildTransformsPipeline(pm, {/*forGPU=*/options.device != nullptr, options.lint, options.remarks}, onStep);
     },
     [](OpPassManager &pm, const CompileOptions &) { pm.addNestedPass<func::FuncOp>(attn::createProveStability()); }},
    {"schedule",
     "chooses tile sizes, before tiling",
     {},
     [](OpPassManager &pm, const CompileOptions &options, StepListener) { buildSchedule(pm, options); },
     [](OpPassManager &pm, const CompileOptions &options) {
       pm.addNestedPass<func::FuncOp>(attn::createProveStability());
       // Ops keep the tile sizes that they have.
       buildSchedule(pm, options);
     }},
    {"tiling", "tiles ops on whole tensors into parallel tasks", tilingSteps,
     [](OpPassManager &pm, const CompileOptions &options, StepListener onStep) {
       buildTilingPipeline(pm, /*forGPU=*/options.device != nullptr, onStep);
     },
     [](OpPassManager &pm, const CompileOptions &) { pm.addNestedPass<func::FuncOp>(createVerifyTiled()); }},
    {"bufferize", "bufferizes tasks and entries; the caller owns the results", bufferizeSteps,
     [](OpPassManager &pm, const CompileOptions &options, StepListener onStep) {
       buildBufferizePipeline(pm, *options.target, /*forGPU=*/options.device != nullptr, options.prepack, onStep);
     },
     [](OpPassManager &pm, const CompileOptions &) { pm.addPass(createVerifyBufferized()); }},
    {"codegen", "lowers tiles to register-blocked vector code or GPU kernels, then to the LLVM dialect", codegenSteps,
     [](OpPassManager &pm, const CompileOptions &options, StepListener onStep) {
       // The host part of a GPU program is compiled for the CPU.
       if (options.device)
         buildGPUCodegenPipeline(pm, *options.device, onStep);
       buildCPUCodegenPipeline(pm, *options.target, onStep);
     },
     nullptr},
    {"target",
     "creates the entry points, after the calling convention of entries is final",
     {},
     [](OpPassManager &pm, const CompileOptions &options, StepListener) {
       pm.addPass(createEmitEntryPoints({options.target->name.str()}));
     },
     nullptr},
};

llvm::ArrayRef<Stage> saccade::getStages() { return stages; }

size_t saccade::findStage(llvm::StringRef name) {
  return llvm::find_if(stages, [&](const Stage &stage) { return stage.name == name; }) - std::begin(stages);
}

std::string saccade::targetName(const CompileOptions &options) {
  return (options.device ? options.device->name : options.target->name).str();
}
