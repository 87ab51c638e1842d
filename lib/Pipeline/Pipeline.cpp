//===- Pipeline.cpp - The compiler on one page --------------------------------===//
#include "saccade/Pipeline/Pipeline.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

llvm::ArrayRef<llvm::StringRef> saccade::stageNames() {
  static const llvm::StringRef names[] = {"import",    "transforms", "schedule", "tiling",
                                          "bufferize", "codegen",    "target"};
  return names;
}

LogicalResult saccade::buildCompilePipeline(OpPassManager &pm, const CompileOptions &options,
                                            llvm::function_ref<void(const llvm::Twine &)> emitError) {
  return success();
}

void saccade::registerPasses() { registerTransformsPasses(); }
