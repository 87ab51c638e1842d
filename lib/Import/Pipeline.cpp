//===- Pipeline.cpp - The import stage ------------------------------------===//
#include "saccade/Import/Import.h"
#include "saccade/Import/Passes.h"

using namespace mlir;

ArrayRef<StringRef> saccade::frontendPrefixes() {
  static const StringRef prefixes[] = {"onnx.", "stablehlo.", "chlo.", "torch."};
  return prefixes;
}

void saccade::buildImportPipeline(OpPassManager &pm, const ImportOptions &) {
  pm.addPass(createImportOnnx());
  pm.addPass(createImportStablehlo());
  pm.addPass(createImportTorch());
  pm.addPass(createImportTosa());
}
