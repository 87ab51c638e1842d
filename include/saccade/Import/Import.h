//===- Import.h - The import stage ---------------------------------*- C++ -*-===//
//
// Graphs of other projects become `attn` and `linalg` on tensors. A graph comes as text or bytecode in generic form,
// with ops named `onnx.*` and the like, which nobody registers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_IMPORT_H
#define SACCADE_IMPORT_IMPORT_H

#include "mlir/Pass/PassManager.h"

namespace saccade {

/// The prefixes of ops that this stage translates, each with its dot.
llvm::ArrayRef<llvm::StringRef> frontendPrefixes();

struct ImportOptions {};

/// Afterwards no op of a frontend is left. A program without any is not changed.
void buildImportPipeline(mlir::OpPassManager &pm, const ImportOptions &options = {});

} // namespace saccade

#endif // SACCADE_IMPORT_IMPORT_H
