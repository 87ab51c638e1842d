//===- RunPipeline.h - Run the compile pipeline -------------------*- C++ -*-===//
//
// Builds and runs the pipeline for a CompileOptions, including dumps of stages. Shared by all drivers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_RUNPIPELINE_H
#define SACCADE_PIPELINE_RUNPIPELINE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Pipeline/CompileOptions.h"
#include <chrono>
#include <vector>

namespace saccade {

/// Runs the import stage on `module`, which converts ops of frontends, and creates gradient functions. Afterwards the
/// program has its entries. Passes that are inserted before the import run first, and are removed from `options`.
/// Failures are reported as diagnostics.
llvm::LogicalResult importProgram(mlir::ModuleOp module, CompileOptions &options);

/// Creates the gradient functions of functions with the attribute `attn.gradient`. A program that has any is imported,
/// and its calls are inlined. A program with other ops beside functions is imported, because a frontend may translate
/// them to functions. Others are not changed, except by passes that are inserted before the import, as in
/// `importProgram`. Failures are reported as diagnostics.
llvm::LogicalResult addGradientFunctions(mlir::ModuleOp module, CompileOptions &options);

/// Makes `pm` report a pass that fails if it is one of the user's (of a plugin, or named in `insertions`), or if it has
/// given no reason. The fault handler of the tools names the running pass.
void addPassReport(mlir::PassManager &pm, llvm::ArrayRef<Insertion> insertions);

/// When a stage ran.
struct StageTime {
  std::string name;
  std::chrono::steady_clock::time_point begin, end;
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

/// Runs the pipeline of the `requested` options on `module`, in place. A module that is marked with the stage that it
/// has passed (StageMark.h) continues with the next one. Failures are reported as diagnostics.
/// Adds the stages that have run to `times`, unless it is null.
llvm::LogicalResult runPipeline(mlir::ModuleOp module, const CompileOptions &requested,
                                std::vector<StageTime> *times = nullptr);

} // namespace saccade

#endif // SACCADE_PIPELINE_RUNPIPELINE_H
