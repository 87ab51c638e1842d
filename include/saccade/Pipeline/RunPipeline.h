//===- RunPipeline.h - Run the compile pipeline -------------------*- C++ -*-===//
//
// Builds and runs the pipeline for a CompileOptions, including dumps of stages. Shared by all drivers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_RUNPIPELINE_H
#define SACCADE_PIPELINE_RUNPIPELINE_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Pipeline/CompileOptions.h"

namespace saccade {

/// Runs the import stage on `module`, which converts ops of frontends, and creates gradient functions. Afterwards the
/// program has its entries. Failures are reported as diagnostics.
llvm::LogicalResult importProgram(mlir::ModuleOp module);

/// Creates the gradient functions of functions with the attribute `attn.gradient`. A program that has any is imported,
/// and its calls are inlined; others are not changed. Failures are reported as diagnostics.
llvm::LogicalResult addGradientFunctions(mlir::ModuleOp module);

/// Runs the pipeline of the `requested` options on `module`, in place. Failures are reported as diagnostics.
llvm::LogicalResult runPipeline(mlir::ModuleOp module, const CompileOptions &requested);

} // namespace saccade

#endif // SACCADE_PIPELINE_RUNPIPELINE_H
