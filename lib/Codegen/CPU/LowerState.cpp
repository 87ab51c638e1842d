//===- LowerState.cpp - Joining and finishing states --------------------------===//
//
// attn.merge and attn.finalize on buffers become loops over rows. Stands beside LowerAccumulate, which
// computes the states.
//
//===----------------------------------------------------------------------===//
#include "Exp2.h"
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

/// The columns [0, n) of a row: `vectors` for whole registers, `rest` for what is left.
static void forColumns(Emitter &e, Value n, function_ref<void(Value)> vectors, function_ref<void(Value)> rest) {
  Value vectorEnd = e.roundDown(n, e.lanes());
  e.loop(e.index(0), vectorEnd, e.lanes(), vectors);
  e.loop(vectorEnd, n, 1, rest);
}

/// Whether the elements of a row are known to be neighbours.
static bool isContiguous(Value memref) {
  return cast<MemRefType>(memref.getType()).getStridesAndOffset().first.back() == 1;
}

/// max' = max(max, other), factors 2^(max − max') and 2^(other − max'), rows and sums scaled and added.
static void lowerMerge(Emitter &e, MergeOp op) {
  Value rows = e.size(op.getAcc(), 0), columns = e.size(op.getAcc(), 1);
  e.loop(e.index(0), rows, 1, [&](Value r) {
    Value ours = e.broadcast(e.load(op.getMax(), r)), theirs = e.broadcast(e.load(op.getOtherMax(), r));
    Value max = e.maxf(ours, theirs);
    Value base = e.zeroIfMinusInfinity(max);
    Value stateFactor = emitExp2(e, e.subf(ours, base)), otherFactor = emitExp2(e, e.subf(theirs, base));
    auto scalarOf = [&](Value vector) -> Value {
      return vector::ExtractOp::create(e.b, e.loc, vector, ArrayRef<int64_t>{0});
    };
    Value ourScalar = scalarOf(stateFactor), theirScalar = scalarOf(otherFactor);
    e.store(scalarOf(max), op.getMax(), r);
    e.store(e.addf(e.mulf(e.load(op.getSum(), r), ourScalar), e.mulf(e.load(op.getOtherSum(), r), theirScalar)),
            op.getSum(), r);
    auto vectors = [&](Value c) {
      Value left = e.mulf(e.loadVector(op.getAcc(), {r, c}), stateFactor);
      Value right = e.mulf(e.loadVector(op.getOtherAcc(), {r, c}), otherFactor);
      e.storeVector(e.addf(left, right), op.getAcc(), {r, c});
    };
    auto scalars = [&](Value c) {
      Value left = e.mulf(e.load(op.getAcc(), {r, c}), ourScalar);
      Value right = e.mulf(e.load(op.getOtherAcc(), {r, c}), theirScalar);
      e.store(e.addf(left, right), op.getAcc(), {r, c});
    };
    if (isContiguous(op.getAcc()) && isContiguous(op.getOtherAcc()))
      forColumns(e, columns, vectors, scalars);
    else
      e.loop(e.index(0), columns, 1, scalars);
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
      Value acc = isa<MergeOp>(op) ? cast<MergeOp>(op).getAcc() : cast<FinalizeOp>(op).getAcc();
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
