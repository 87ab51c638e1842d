//===- Import.h - The import stage ------------------------------*- C++ -*-===//
//
// Translates models of other frameworks to `attn` and `linalg` on tensors. A model is text or bytecode with
// unregistered ops such as `onnx.*` in generic form, or has a dialect that a plugin registers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_IMPORT_H
#define SACCADE_IMPORT_IMPORT_H

#include "mlir/Pass/PassManager.h"
#include <functional>
#include <string>

namespace saccade {

/// A dialect of models and the passes that translate it.
struct Frontend {
  std::string dialect; ///< "onnx": its ops are onnx.*
  /// Whether MLIR knows the ops. Otherwise they are parsed in generic form, as unregistered ops.
  bool isRegistered = false;
  /// Adds the passes, on modules, that translate its ops. Programs without such ops are not changed.
  std::function<void(mlir::OpPassManager &pm)> addPasses;
};

/// Adds a frontend to the import stage of this process, after those that are there. Plugins call it when they register
/// their passes or their dialect; a dialect that has a frontend keeps it.
void registerFrontend(Frontend frontend);

/// The op name prefixes of frontends whose ops are unregistered, each with its dot.
llvm::SmallVector<std::string> frontendPrefixes();

/// Whether a program that was parsed in this context may have ops of a frontend: the parser allowed unregistered ops,
/// or loaded the dialect of one.
bool mayHaveFrontendOps(mlir::MLIRContext *context);

/// Adds the passes of all frontends. Afterwards no op of a frontend is left; programs without such ops are unchanged.
void buildImportPipeline(mlir::OpPassManager &pm);

} // namespace saccade

#endif // SACCADE_IMPORT_IMPORT_H
