//===- LowerStateSIMT.cpp - Merge and finalize states in memory ---------------===//
//
// Split-KV tasks store their states in global memory; their elements are distributed over the threads of a CTA. The
// states of all chunks are merged in one loop, with the merged state in registers. The pass runs after the attention
// lowerings, which finalize thread-private states themselves.
//
//===----------------------------------------------------------------------===//
#include "../AttentionState.h"
#include "../GlobalMatrix.h"
#include "../OutputEpilogue.h"
#include "MergeLoop.h"
#include "saccade/Codegen/GPU/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERSTATESIMT
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Calls `body` with row and column (index) of each element of `rows` × `columns`, distributed over the threads.
static void forElements(Emitter &e, Value rows, int64_t columns, function_ref<void(Value, Value)> body) {
  e.loop(e.thread(), e.toI32(e.mul(rows, columns)), threadsPerCTA,
         [&](Value i) { body(e.toIndex(e.div(i, columns)), e.toIndex(e.rem(i, columns))); });
}

static void lowerMerge(Emitter &e, MergeOp op) {
  State state = op.getState(), other = op.getOtherState();
  Value rows = e.size(state.acc, 0);
  auto mergedRow = [&](Value row) {
    return mergeRow(e, e.load(state.max, {row}), e.load(state.sum, {row}), e.load(other.max, {row}),
                    e.load(other.sum, {row}), op.getNaturalMax());
  };
  auto mergeElements = [&](Value into, Value from) {
    forElements(e, rows, cast<MemRefType>(into.getType()).getDimSize(1), [&](Value row, Value column) {
      MergedRow merged = mergedRow(row);
      Value sum = e.mulf(e.load(into, {row, column}), merged.stateFactor);
      Value otherSum = e.mulf(e.load(from, {row, column}), merged.otherFactor);
      e.storeShared(e.addf(sum, otherSum), into, {row, column});
    });
  };
  e.barrier();
  mergeElements(state.acc, other.acc);
  for (auto [into, from] : llvm::zip_equal(state.tallies, other.tallies))
    mergeElements(into, from);
  // All threads have read the old maxima and sums.
  e.barrier();
  forElements(e, rows, 1, [&](Value row, Value) {
    MergedRow merged = mergedRow(row);
    e.storeShared(merged.max, state.max, {row});
    e.storeShared(merged.sum, state.sum, {row});
    if (state.rowMax)
      mergeRowMax(e, state, row, e.load(other.rowMax, {row}), state.argmax ? e.load(other.argmax, {row}) : Value());
  });
  e.barrier();
}

static void lowerFinalize(Emitter &e, FinalizeOp op) {
  OutputEpilogue epilogue(op);
  GlobalMatrix output(e, op.getOutput(), op.getOutputDims());
  auto normalized = [&](Value row, Value x) { return normalize(e, finalizeRow(e, e.load(op.getSum(), {row})), x); };
  forElements(e, output.rows, output.columns, [&](Value row, Value column) {
    Value x = epilogue.apply(e, row, column, normalized(row, e.load(op.getAcc(), {row, column})));
    LLVM::StoreOp::create(e.b, e.loc, e.truncate(x, output.element), output.address(e, row, column));
  });
  epilogue.erase();
  for (auto [from, to] : llvm::zip_equal(op.getOthers(), op.getOtherOutputs())) {
    GlobalMatrix part(e, to);
    bool isTally = cast<MemRefType>(from.getType()).getRank() == 2;
    forElements(e, output.rows, isTally ? part.columns : 1, [&, from = from](Value row, Value column) {
      Value x = isTally ? normalized(row, e.load(from, {row, column})) : e.load(from, {row});
      LLVM::StoreOp::create(e.b, e.loc, x, part.address(e, row, column));
    });
  }
  if (!op.getLse())
    return;
  LseResults lse(e, op);
  forElements(e, output.rows, 1, [&](Value row, Value) {
    lse.store(e, row, e.load(op.getMax(), {row}), e.load(op.getSum(), {row}), /*isRounded=*/false);
  });
}

namespace {

struct LowerStateSIMT : saccade::impl::LowerStateSIMTBase<LowerStateSIMT> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<MergeOp, FinalizeOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      if (auto merge = dyn_cast<MergeOp>(op); merge && lowerMergeLoop(merge))
        continue;
      if (auto end = dyn_cast<FinalizeOp>(op))
        OutputEpilogue::join(end);
      OpBuilder b(op);
      Emitter e{b, op->getLoc(), cast<FloatType>(getElementTypeOrSelf(op->getOperand(0)))};
      if (auto merge = dyn_cast<MergeOp>(op))
        lowerMerge(e, merge);
      else
        lowerFinalize(e, cast<FinalizeOp>(op));
      op->erase();
    }
    if (!ops.empty() && !getOperation()->hasAttr(familyAttr))
      getOperation()->setAttr(familyAttr, StringAttr::get(&getContext(), "simt, states merged"));
  }
};

} // namespace
