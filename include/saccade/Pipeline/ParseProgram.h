//===- ParseProgram.h - From text or bytecode to a module ---------*- C++ -*-===//
#ifndef SACCADE_PIPELINE_PARSEPROGRAM_H
#define SACCADE_PIPELINE_PARSEPROGRAM_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/SourceMgr.h"

namespace saccade {

/// Parses the main file of `sources`, MLIR text or bytecode; null after a diagnostic. The location of every argument of
/// a function holds its name in the text as a `mlir::NameLoc`; bytecode has none. Text may have ops in generic form whose
/// names begin with one of `frontendPrefixes`; other ops that nobody registered are refused.
mlir::OwningOpRef<mlir::ModuleOp> parseProgram(const llvm::SourceMgr &sources, mlir::MLIRContext *context);

} // namespace saccade

#endif // SACCADE_PIPELINE_PARSEPROGRAM_H
