//===- Source.h - A program as a tool reads it --------------------*- C++ -*-===//
//
// A context with our dialects, the file, and diagnostics that point into it.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_SOURCE_H
#define SACCADE_PIPELINE_SOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/CommandLine.h"
#include "llvm/Support/SourceMgr.h"
#include <memory>

namespace saccade {

class Source {
public:
  Source();

  /// Reads and parses the file ("-": standard input), MLIR text or bytecode. Anything but ExitDone has been explained
  /// on stderr under the name of `tool`.
  ExitCode load(llvm::StringRef tool, llvm::StringRef path);

  mlir::ModuleOp module() { return *parsed; }
  mlir::MLIRContext &context() { return mlir; }

private:
  mlir::MLIRContext mlir;
  llvm::SourceMgr files;
  std::unique_ptr<mlir::SourceMgrDiagnosticHandler> handler;
  mlir::OwningOpRef<mlir::ModuleOp> parsed;
};

/// Loads a plugin with passes; ExitFile after an explanation on stderr where that does not work.
ExitCode loadPassPlugin(llvm::StringRef tool, llvm::StringRef path);

/// Looks a target up for a tool; null after an explanation.
const CPUTarget *requireTarget(llvm::StringRef tool, llvm::StringRef name);

} // namespace saccade

#endif // SACCADE_PIPELINE_SOURCE_H
