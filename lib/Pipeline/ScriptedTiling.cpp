//===- ScriptedTiling.cpp - What scripts do with attention --------------------===//
#include "ScriptedTiling.h"
#include "Stages.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace saccade;

ScriptedTiling::Key ScriptedTiling::keyOf(Operation *op) {
  return {op->getParentOfType<func::FuncOp>().getNameAttr(), op->getLoc()};
}

FailureOr<ScriptedTiling> ScriptedTiling::run(ModuleOp program, const CompileOptions &options) {
  PassManager pm(program.getContext(), ModuleOp::getOperationName());
  for (StringRef point : {"tiling", "tiling.attention"})
    for (const Insertion &insertion : options.insertions) {
      std::string message;
      if (insertion.isBefore && insertion.point == point &&
          failed(addInsertion(insertion, targetName(options), pm, message)))
        return emitError(program.getLoc()) << message;
    }
  ScriptedTiling result;
  if (pm.size() == 0)
    return result;
  OwningOpRef<ModuleOp> copy = program.clone();
  if (failed(pm.run(*copy)))
    return failure();
  copy->walk([&](Operation *op) {
    auto step = dyn_cast<attn::AccumulateOp>(op);
    if (!isa<attn::AttentionOp>(op) && (!step || step.getUnpacked()))
      return;
    bool isTiled = op->getParentOfType<scf::ForallOp>() != nullptr;
    result.found.try_emplace(keyOf(op), Found{op->getAttrOfType<attn::ScheduleAttr>("schedule"), isTiled});
  });
  return result;
}

bool ScriptedTiling::apply(attn::AttentionOp op) const {
  auto after = found.find(keyOf(op));
  if (after == found.end())
    return false;
  if (after->second.schedule)
    op.setScheduleAttr(after->second.schedule);
  return after->second.isTiled;
}
