//===- EnterStage.cpp - The start of a pipeline --------------------------------===//
//
// Refuses a program that is at another stage, or that was compiled for another target.
//
//===----------------------------------------------------------------------===//
#include "Stages.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/StageMark.h"

namespace saccade {
#define GEN_PASS_DEF_ENTERSTAGE
#include "saccade/Pipeline/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Verifies the mark of a program.
static LogicalResult verifyMark(ModuleOp program, llvm::StringRef stage, llvm::StringRef target) {
  llvm::StringRef passed = getStageOf(program);
  llvm::ArrayRef<Stage> stages = getStages();
  size_t next = findStage(passed) + 1;
  if (next > stages.size())
    return program.emitError() << "'" << stageAttr << "' is '" << passed << "', which is no stage";
  llvm::StringRef expected = next < stages.size() ? stages[next].name : "";
  if (expected.empty() && !stage.empty())
    return program.emitError() << "the program has passed all stages, so '" << stage << "' cannot run";
  if (expected != stage)
    return program.emitError() << "the program has passed the stage '" << passed << "', so it continues with '"
                               << expected << "', not with '" << stage << "'";
  auto known = program->getAttrOfType<StringAttr>(targetAttr);
  if (known && !target.empty() && known != target)
    return program.emitError() << "the stages up to '" << passed << "' have run for target '" << known.getValue()
                               << "', expected the same target instead of '" << target << "'";
  return success();
}

namespace {
struct EnterStage : saccade::impl::EnterStageBase<EnterStage> {
  using EnterStageBase::EnterStageBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (!getOperation()->hasAttr(stageAttr))
      return;
    if (failed(verifyMark(getOperation(), stage, target)))
      return signalPassFailure();
    markStage(getOperation(), "", "");
  }
};
} // namespace
