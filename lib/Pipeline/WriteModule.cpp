//===- WriteModule.cpp - Write the module to a file ---------------------------===//
//
// Prints the result of a stage without stopping the pipeline. Can be inserted anywhere.
//
//===----------------------------------------------------------------------===//
#include "StagePage.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/FileUtilities.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/StageMark.h"
#include "llvm/Support/ToolOutputFile.h"

namespace saccade {
#define GEN_PASS_DEF_WRITEMODULE
#include "saccade/Pipeline/Passes.h.inc"
} // namespace saccade

using namespace mlir;

namespace {
struct WriteModule : saccade::impl::WriteModuleBase<WriteModule> {
  using WriteModuleBase::WriteModuleBase;

  void runOnOperation() override {
    std::string message;
    std::unique_ptr<llvm::ToolOutputFile> output = openOutputFile(file, &message);
    if (!output) {
      getOperation().emitError(message);
      return signalPassFailure();
    }
    auto known = [&](StringRef name) {
      auto value = getOperation()->getAttrOfType<StringAttr>(name);
      return value ? value.getValue() : StringRef();
    };
    StringRef knownStage = known(saccade::stageAttr), knownTarget = known(saccade::targetAttr);
    if (!stage.empty())
      saccade::markStage(getOperation(), stage, target);
    saccade::printProgram(getOperation(), output->os());
    saccade::markStage(getOperation(), knownStage, knownTarget);
    output->keep();
    if (page.empty())
      return markAllAnalysesPreserved();
    output.reset(); // closes the file
    llvm::SmallVector<std::string> all = llvm::to_vector(files);
    all.push_back(file);
    if (llvm::Error error = saccade::writeStagePage(all, page)) {
      getOperation().emitError("cannot write '") << page << "': " << llvm::toString(std::move(error));
      return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }
};
} // namespace
