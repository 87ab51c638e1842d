//===- LowerState.cpp - Merging and finalizing states -------------------------===//
//
// Lowers attn.merge and attn.finalize on buffers to loops over rows. The states come from LowerAccumulate and
// LowerUnpackedAccumulate.
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

/// max' = max(max, other); accumulators and sums are scaled by 2^(max − max') and 2^(other − max') and added.
static void lowerMerge(Emitter &e, MergeOp op) {
  Value rows = e.size(op.getAcc(), 0), columns = e.size(op.getAcc(), 1);
  e.loop(e.index(0), rows, 1, [&](Value r) {
    Value max = e.broadcast(e.load(op.getMax(), r)), otherMax = e.broadcast(e.load(op.getOtherMax(), r));
    Value newMax = e.maxf(max, otherMax);
    Value base = e.zeroIfMinusInfinity(newMax);
    Value factor = emitExp2(e, e.subf(max, base)), otherFactor = emitExp2(e, e.subf(otherMax, base));
    auto scalarOf = [&](Value vector) -> Value {
      return vector::ExtractOp::create(e.b, e.loc, vector, ArrayRef<int64_t>{0});
    };
    Value factorScalar = scalarOf(factor), otherFactorScalar = scalarOf(otherFactor);
    e.store(scalarOf(newMax), op.getMax(), r);
    e.store(
        e.addf(e.mulf(e.load(op.getSum(), r), factorScalar), e.mulf(e.load(op.getOtherSum(), r), otherFactorScalar)),
        op.getSum(), r);
    auto vectors = [&](Value c) {
      Value acc = e.mulf(e.loadVector(op.getAcc(), {r, c}), factor);
      Value otherAcc = e.mulf(e.loadVector(op.getOtherAcc(), {r, c}), otherFactor);
      e.storeVector(e.addf(acc, otherAcc), op.getAcc(), {r, c});
    };
    auto scalars = [&](Value c) {
      Value acc = e.mulf(e.load(op.getAcc(), {r, c}), factorScalar);
      Value otherAcc = e.mulf(e.load(op.getOtherAcc(), {r, c}), otherFactorScalar);
      e.store(e.addf(acc, otherAcc), op.getAcc(), {r, c});
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
