//===- MergeTasks.cpp - Merge equal tasks -------------------------------------===//
//
// Merges tasks with equal bodies, so that they are compiled once. Runs after canonicalization, so that equal tasks have
// equal IR.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/Support/Debug.h"

namespace saccade {
#define GEN_PASS_DEF_MERGETASKS
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

static bool isSame(func::FuncOp x, func::FuncOp y) {
  return x.getFunctionType() == y.getFunctionType() &&
         OperationEquivalence::isRegionEquivalentTo(&x.getBody(), &y.getBody(), OperationEquivalence::IgnoreLocations);
}

namespace {

struct MergeTasks : saccade::impl::MergeTasksBase<MergeTasks> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> kept;
    llvm::StringMap<StringRef> replacements;
    for (auto task : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      if (!task->hasAttr("attn.task"))
        continue;
      auto *same = llvm::find_if(kept, [&](func::FuncOp other) { return isSame(other, task); });
      if (same == kept.end()) {
        kept.push_back(task);
        continue;
      }
      replacements[task.getName()] = same->getName();
      task.erase();
    }
    DEBUG_WITH_TYPE("attn-merge-tasks", llvm::dbgs() << "merged " << replacements.size() << " tasks into others, "
                                                     << kept.size() << " remain\n");
    getOperation().walk([&](attn::LaunchOp launch) {
      if (auto found = replacements.find(launch.getTask()); found != replacements.end())
        launch.setTask(found->second);
    });
  }
};

} // namespace
