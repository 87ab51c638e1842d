//===- Pipeline.cpp - The import stage ----------------------------------------===//
#include "saccade/Import/Import.h"
#include "saccade/Import/Passes.h"

using namespace mlir;

ArrayRef<StringRef> saccade::doorPrefixes() {
  static const StringRef prefixes[] = {"onnx.", "torch."};
  return prefixes;
}

void saccade::buildImportPipeline(OpPassManager &pm, const ImportOptions &) {
  pm.addPass(createImportOnnx());
  pm.addPass(createImportTorch());
}
