//===- ReleaseTemporaries.cpp - Free buffers after their last use -------------===//
//
// Inserts the deallocations of entries. Runs after outlining, so that a launch is one op, which uses its captures until
// it returns.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "saccade/Bufferize/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_RELEASETEMPORARIES
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;

/// The last op of the block of `alloc` that uses the buffer or a view of it. Emits a diagnostic and returns null if the
/// buffer leaves the block.
static Operation *findLastUser(memref::AllocOp alloc) {
  Block *block = alloc->getBlock();
  Operation *last = alloc;
  SmallVector<Value> worklist = {alloc.getResult()};
  llvm::SmallPtrSet<Operation *, 8> seen;
  while (!worklist.empty()) {
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      Operation *ancestor = block->findAncestorOpInBlock(*user);
      if (ancestor == block->getTerminator()) {
        user->emitOpError("forwards memory that is allocated here, expected it to stay in its block");
        return nullptr;
      }
      if (last->isBeforeInBlock(ancestor))
        last = ancestor;
      if (!seen.insert(user).second)
        continue;
      // An op with a buffer result may forward its operand; a yield forwards it to the results of its parent.
      Operation *source = user->hasTrait<OpTrait::IsTerminator>() ? user->getParentOp() : user;
      for (Value result : source->getResults())
        if (isa<BaseMemRefType>(result.getType()))
          worklist.push_back(result);
      for (Region &region : source->getRegions())
        for (Value argument : region.getArguments())
          if (isa<BaseMemRefType>(argument.getType()))
            worklist.push_back(argument);
    }
  }
  return last;
}

namespace {

struct ReleaseTemporaries : saccade::impl::ReleaseTemporariesBase<ReleaseTemporaries> {
  void runOnOperation() override {
    if (getOperation()->hasAttr("attn.task"))
      return;
    WalkResult result = getOperation().walk([](memref::AllocOp alloc) {
      Operation *last = findLastUser(alloc);
      if (!last)
        return WalkResult::interrupt();
      if (isa<memref::DeallocOp>(last))
        return WalkResult::advance();
      OpBuilder builder(alloc.getContext());
      builder.setInsertionPointAfter(last);
      memref::DeallocOp::create(builder, alloc.getLoc(), alloc);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
