//===- Stages.h - The table of stages -------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PIPELINE_STAGES_H
#define SACCADE_LIB_PIPELINE_STAGES_H

#include "mlir/Pass/PassManager.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "saccade/Support/PipelineStep.h"

namespace saccade {

struct Stage {
  llvm::StringRef name;
  /// What it does, for the description of its pipeline.
  llvm::StringRef summary;
  /// Its steps in order; a pipeline may leave some out.
  llvm::ArrayRef<llvm::StringRef> steps;
  void (*build)(mlir::OpPassManager &pm, const CompileOptions &options, StepListener onStep);
  /// Adds the passes that derive again what the stage derived from the program, and that verify its result. They run
  /// after passes of the user at the end of the stage. Null for none.
  void (*restore)(mlir::OpPassManager &pm, const CompileOptions &options);
};

/// The stages in order.
llvm::ArrayRef<Stage> getStages();

/// The number of the stage `name`, or of stages if there is none.
size_t findStage(llvm::StringRef name);

/// The name of the target in marks: the GPU, or else the CPU target.
std::string targetName(const CompileOptions &options);

/// Adds textual passes to a pass manager of modules. A pass on another op is nested on that op. Fails with a message.
llvm::LogicalResult parsePasses(llvm::StringRef passes, mlir::OpPassManager &pm, std::string &message);

/// Adds the passes of an insertion, or the pass that runs its script for `target`.
llvm::LogicalResult addInsertion(const Insertion &insertion, llvm::StringRef target, mlir::OpPassManager &pm,
                                 std::string &message);

} // namespace saccade

#endif // SACCADE_LIB_PIPELINE_STAGES_H
