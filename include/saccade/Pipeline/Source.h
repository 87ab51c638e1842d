//===- Source.h - A parsed program --------------------------------*- C++ -*-===//
//
// Owns the MLIR context, the text or bytecode, the parsed module and the handler of diagnostics.
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

/// Receives every diagnostic as text: location, source line with a caret, and notes.
using DiagnosticSink = std::function<void(mlir::DiagnosticSeverity severity, llvm::StringRef text)>;

class Source {
public:
  Source();
  ~Source();

  /// Parses MLIR text or bytecode. Diagnostics name the buffer identifier of `text`. `sink` receives all diagnostics of
  /// the context from then on, including those of a failure to parse.
  llvm::LogicalResult parse(std::unique_ptr<llvm::MemoryBuffer> text, DiagnosticSink sink);

  /// Reads and parses a file ("-": standard input), MLIR text or bytecode. Reports errors on stderr, prefixed by
  /// `tool`.
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

/// Looks up a CPU target for a tool; null after an error on stderr.
const CPUTarget *requireTarget(llvm::StringRef tool, llvm::StringRef name);

/// Looks up a CPU or GPU target and sets `options.target` or `options.device`. Returns ExitUnsupported after an error
/// on stderr.
ExitCode chooseTarget(llvm::StringRef tool, llvm::StringRef name, CompileOptions &options);

} // namespace saccade

#endif // SACCADE_PIPELINE_SOURCE_H
