//===- LowerState.cpp - Merging and finalizing states -------------------------===//
//
// Lowers attn.merge and attn.finalize on buffers to loops over rows. The states come from LowerAccumulate and
// LowerUnpackedAccumulate.
//
//===----------------------------------------------------------------------===//
#include "../Common/OnlineSoftmax.h"
#include "Finalize.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERSTATE
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

/// Loops over the columns [0, n) of a row: `vectors` for full registers, `scalars` for the remainder.
static void forColumns(Emitter &e, Value n, function_ref<void(Value)> vectors, function_ref<void(Value)> scalars) {
  Value vectorEnd = e.roundDown(n, e.lanes());
  e.loop(e.index(0), vectorEnd, e.lanes(), vectors);
  e.loop(vectorEnd, n, 1, scalars);
}

/// Whether the elements of a row are known to be contiguous.
static bool isContiguous(Value memref) {
  return cast<MemRefType>(memref.getType()).getStridesAndOffset().first.back() == 1;
}

/// max' = max(max, other); accumulators, sums and tallies are scaled by 2^(max − max') and 2^(other − max') and added.
/// The larger row maximum and its position are kept; of equal ones, that of the state.
/// With stick_breaking the other state is that of later keys: accumulators of the state are scaled by 2^other, what
/// they leave of the stick.
static void lowerMerge(Emitter &e, MergeOp op) {
  State state = op.getState(), other = op.getOtherState();
  e.loop(e.index(0), e.size(state.acc, 0), 1, [&](Value r) {
    auto inAllLanes = [&](Value memref) { return e.broadcast(e.load(memref, r)); };
    Value max = inAllLanes(state.max), sum = inAllLanes(state.sum), otherMax = inAllLanes(other.max),
          otherSum = inAllLanes(other.sum);
    MergedRow merged = op.getStickBreaking() ? mergeSticks(e, max, sum, otherMax, otherSum)
                                             : mergeRow(e, max, sum, otherMax, otherSum, op.getNaturalMax());
    Value factor = merged.stateFactor, otherFactor = merged.otherFactor;
    auto scalarOf = [&](Value vector) -> Value {
      return vector::ExtractOp::create(e.b, e.loc, vector, ArrayRef<int64_t>{0});
    };
    Value factorScalar = scalarOf(factor), otherFactorScalar = scalarOf(otherFactor);
    e.store(scalarOf(merged.max), state.max, r);
    e.store(scalarOf(merged.sum), state.sum, r);
    auto mergeColumns = [&](Value into, Value from) {
      auto vectors = [&](Value c) {
        Value sum = e.mulf(e.loadVector(into, {r, c}), factor);
        e.storeVector(e.addf(sum, e.mulf(e.loadVector(from, {r, c}), otherFactor)), into, {r, c});
      };
      auto scalars = [&](Value c) {
        Value sum = e.mulf(e.load(into, {r, c}), factorScalar);
        e.store(e.addf(sum, e.mulf(e.load(from, {r, c}), otherFactorScalar)), into, {r, c});
      };
      Value columns = e.size(into, 1);
      if (isContiguous(into) && isContiguous(from))
        forColumns(e, columns, vectors, scalars);
      else
        e.loop(e.index(0), columns, 1, scalars);
    };
    mergeColumns(state.acc, other.acc);
    for (auto [into, from] : llvm::zip_equal(state.tallies, other.tallies))
      mergeColumns(into, from);
    if (!state.rowMax)
      return;
    Value rowMax = e.load(other.rowMax, r);
    Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, rowMax, e.load(state.rowMax, r));
    e.ifElse(isLarger, [&] {
      e.store(rowMax, state.rowMax, r);
      if (state.argmax)
        e.store(e.load(other.argmax, r), state.argmax, r);
    });
  });
}

static void lowerFinalize(Emitter &e, FinalizeOp op) {
  unsigned rows = *op.getOutputDims().position(Dim::Seq);
  emitFinalizeRows(e, op, e.index(0), e.size(op.getOutput(), rows));
}

namespace {

struct LowerState : saccade::impl::LowerStateBase<LowerState> {
  using LowerStateBase::LowerStateBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<MergeOp, FinalizeOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      OpBuilder b(op);
      Value acc = isa<MergeOp>(op) ? cast<MergeOp>(op).getState().acc : cast<FinalizeOp>(op).getAcc();
      Emitter e{b, op->getLoc(), *cpu, cast<FloatType>(getElementTypeOrSelf(acc))};
      if (auto merge = dyn_cast<MergeOp>(op))
        lowerMerge(e, merge);
      else
        lowerFinalize(e, cast<FinalizeOp>(op));
      op->erase();
    }
  }
};

} // namespace
