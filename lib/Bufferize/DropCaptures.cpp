//===- DropCaptures.cpp - Remove unused captures of tasks ---------------------===//
//
// Removes the unused captures of every task. Runs after canonicalization of the tasks, which removes uses, and before
// MergeTasks compares them.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {
#define GEN_PASS_DEF_DROPCAPTURES
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

struct DropCaptures : saccade::impl::DropCapturesBase<DropCaptures> {
  void runOnOperation() override {
    llvm::StringMap<BitVector> unused;
    for (auto task : getOperation().getOps<func::FuncOp>()) {
      if (!task->hasAttr("attn.task"))
        continue;
      // The last three arguments are begin, end and scratch.
      BitVector dropped(task.getNumArguments());
      for (BlockArgument argument : task.getArguments().drop_back(3))
        if (argument.use_empty())
          dropped.set(argument.getArgNumber());
      if (dropped.none())
        continue;
      LogicalResult erased = task.eraseArguments(dropped);
      assert(succeeded(erased) && "tasks are plain functions");
      (void)erased;
      unused[task.getName()] = dropped;
    }
    getOperation().walk([&](attn::LaunchOp launch) {
      auto found = unused.find(launch.getTask());
      if (found == unused.end())
        return;
      SmallVector<Value> kept;
      for (auto [i, capture] : llvm::enumerate(launch.getCaptures()))
        if (!found->second[i])
          kept.push_back(capture);
      launch.getCapturesMutable().assign(kept);
    });
  }
};

} // namespace
