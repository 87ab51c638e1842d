//===- RunPipeline.h - Run the compiler's stages on a module ------*- C++ -*-===//
//
// What every driver does with a CompileOptions: build the pipeline, run it, dump the stages it was asked to dump.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_RUNPIPELINE_H
#define SACCADE_PIPELINE_RUNPIPELINE_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Pipeline/CompileOptions.h"

namespace saccade {

/// Runs the import stage on `module`: afterwards it is written in ops of ours. Failures have been reported as diagnostics.
llvm::LogicalResult importProgram(mlir::ModuleOp module);

/// Runs the pipeline of `options` on `module`, in place. Failures have been reported as diagnostics.
llvm::LogicalResult runPipeline(mlir::ModuleOp module, const CompileOptions &options);

} // namespace saccade

#endif // SACCADE_PIPELINE_RUNPIPELINE_H
