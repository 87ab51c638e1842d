//===- Source.h - A program as it is read -------------------------*- C++ -*-===//
//
// A context with our dialects, the text or bytecode, and diagnostics that point into it.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_SOURCE_H
#define SACCADE_PIPELINE_SOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "saccade/Pipeline/CompileOptions.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/CommandLine.h"
#include "llvm/Support/SourceMgr.h"
#include <functional>
#include <memory>

namespace saccade {

/// Gets every diagnostic as text: its place, the line of the program and a caret, then its notes.
using DiagnosticSink = std::function<void(mlir::DiagnosticSeverity severity, llvm::StringRef text)>;

class Source {
public:
  Source();
  ~Source();

  /// Parses MLIR text or bytecode; `text` is called as in diagnostics. From now on all diagnostics of the context go to
  /// `sink`, which is told of a failure too.
  llvm::LogicalResult parse(std::unique_ptr<llvm::MemoryBuffer> text, DiagnosticSink sink);

  /// Reads and parses the file ("-": standard input), MLIR text or bytecode. Anything but ExitSuccess has been explained
  /// on stderr under the name of `tool`.
  ExitCode load(llvm::StringRef tool, llvm::StringRef path);

  mlir::ModuleOp module() { return *parsed; }
  mlir::MLIRContext &context() { return mlir; }

private:
  class Renderer;

  mlir::MLIRContext mlir;
  llvm::SourceMgr files;
  std::unique_ptr<Renderer> renderer;
  mlir::OwningOpRef<mlir::ModuleOp> parsed;
};

/// Loads a plugin with passes; ExitFile after an explanation on stderr where that does not work.
ExitCode loadPassPlugin(llvm::StringRef tool, llvm::StringRef path);

/// Looks a processor's level up for a tool; null after an explanation.
const CPUTarget *requireTarget(llvm::StringRef tool, llvm::StringRef name);

/// The same with GPUs: sets the target or the device of `options`. ExitUnsupported after an explanation.
ExitCode chooseTarget(llvm::StringRef tool, llvm::StringRef name, CompileOptions &options);

} // namespace saccade

#endif // SACCADE_PIPELINE_SOURCE_H
