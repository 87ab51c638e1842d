//===- Import.h - The import stage ------------------------------*- C++ -*-===//
//
// Translates models of other frameworks to `attn` and `linalg` on tensors. A model is text or bytecode with
// unregistered ops such as `onnx.*` in generic form.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_IMPORT_H
#define SACCADE_IMPORT_IMPORT_H

#include "mlir/Pass/PassManager.h"

namespace saccade {

/// The op name prefixes that this stage translates, each with its dot.
llvm::ArrayRef<llvm::StringRef> frontendPrefixes();

struct ImportOptions {};

/// Adds the importers. Afterwards no op of a frontend is left; programs without such ops are unchanged.
void buildImportPipeline(mlir::OpPassManager &pm, const ImportOptions &options = {});

} // namespace saccade

#endif // SACCADE_IMPORT_IMPORT_H
