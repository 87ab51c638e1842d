//===- WriteModule.cpp - Write the module to a file ---------------------------===//
//
// Prints the result of a stage without stopping the pipeline. Can be inserted anywhere.
//
//===----------------------------------------------------------------------===//
#include "StagePage.h"
#include "mlir/IR/BuiltinOps.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/StageMark.h"
#include "saccade/Support/OutputFile.h"

namespace saccade {
#define GEN_PASS_DEF_WRITEMODULE
#include "saccade/Pipeline/Passes.h.inc"
} // namespace saccade

using namespace mlir;

namespace {
struct WriteModule : saccade::impl::WriteModuleBase<WriteModule> {
  using WriteModuleBase::WriteModuleBase;

  void runOnOperation() override {
    auto known = [&](StringRef name) {
      auto value = getOperation()->getAttrOfType<StringAttr>(name);
      return value ? value.getValue() : StringRef();
    };
    StringRef knownStage = known(saccade::stageAttr), knownTarget = known(saccade::targetAttr);
    if (!stage.empty())
      saccade::markStage(getOperation(), stage, target);
    // A reader of the folder finds whole files only.
    llvm::Error written = saccade::writeOutput(file, [&](llvm::raw_ostream &os) {
      saccade::printProgram(getOperation(), os);
      return llvm::Error::success();
    });
    saccade::markStage(getOperation(), knownStage, knownTarget);
    if (written) {
      getOperation().emitError("cannot write '") << file << "': " << llvm::toString(std::move(written));
      return signalPassFailure();
    }
    if (page.empty())
      return markAllAnalysesPreserved();
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
