//===- ParseProgram.h - From text or bytecode to a module ---------*- C++ -*-===//
#ifndef SACCADE_PIPELINE_PARSEPROGRAM_H
#define SACCADE_PIPELINE_PARSEPROGRAM_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/SourceMgr.h"

namespace saccade {

/// Parses the main file of `sources`, MLIR text or bytecode; null after a diagnostic. For text, the location of every
/// function argument is a `mlir::NameLoc` with its name. Text may have unregistered ops in generic form if their names
/// start with one of `frontendPrefixes`; other unregistered ops are errors.
mlir::OwningOpRef<mlir::ModuleOp> parseProgram(const llvm::SourceMgr &sources, mlir::MLIRContext *context);

} // namespace saccade

#endif // SACCADE_PIPELINE_PARSEPROGRAM_H
