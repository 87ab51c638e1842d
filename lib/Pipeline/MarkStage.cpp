//===- MarkStage.cpp - The stage that a program has passed --------------------===//
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/StageMark.h"

namespace saccade {
#define GEN_PASS_DEF_MARKSTAGE
#include "saccade/Pipeline/Passes.h.inc"
} // namespace saccade

using namespace mlir;

llvm::StringRef saccade::getStageOf(ModuleOp program) {
  auto stage = program->getAttrOfType<StringAttr>(stageAttr);
  return stage ? stage.getValue() : "";
}

void saccade::markStage(ModuleOp program, llvm::StringRef stage, llvm::StringRef target) {
  for (auto [name, value] : {std::pair(stageAttr, stage), {targetAttr, target}}) {
    if (value.empty())
      program->removeAttr(name);
    else
      program->setAttr(name, StringAttr::get(program.getContext(), value));
  }
}

void saccade::printProgram(ModuleOp program, llvm::raw_ostream &os) {
  program.print(os, OpPrintingFlags().printNameLocAsPrefix(getStageOf(program) == "import"));
}

namespace {
struct MarkStage : saccade::impl::MarkStageBase<MarkStage> {
  using MarkStageBase::MarkStageBase;

  void runOnOperation() override {
    saccade::markStage(getOperation(), stage, target);
    markAllAnalysesPreserved();
  }
};
} // namespace
