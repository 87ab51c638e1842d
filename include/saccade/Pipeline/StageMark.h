//===- StageMark.h - The stage that a program has passed ----------*- C++ -*-===//
//
// A dump of a stage says which stage it is of, so that every tool resumes it where it was left.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_STAGEMARK_H
#define SACCADE_PIPELINE_STAGEMARK_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Support/StageAttributes.h"

namespace saccade {

/// The stage that the program has passed; empty if it has passed none, or is not marked.
llvm::StringRef getStageOf(mlir::ModuleOp program);

/// Sets the attributes. Empty strings remove them.
void markStage(mlir::ModuleOp program, llvm::StringRef stage, llvm::StringRef target);

/// Prints the program as text that a tool can resume. Before entries have signatures, the names of arguments are those
/// of the source program; they are part of the interface.
void printProgram(mlir::ModuleOp program, llvm::raw_ostream &os);

} // namespace saccade

#endif // SACCADE_PIPELINE_STAGEMARK_H
