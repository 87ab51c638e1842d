//===- LowerState.cpp - Joining and finishing states --------------------------===//
//
// attn.merge and attn.finalize on buffers become loops over rows. Stands beside LowerAccumulate, which
// computes the states.
//
//===----------------------------------------------------------------------===//
#include "Exp2.h"
#include "Pack.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <numbers>

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

/// max' = max(max, other), factors 2^(max − max') and 2^(other − max'), rows and sums scaled and added.
static void lowerMerge(Emitter &e, MergeOp op) {
  Value rows = e.size(op.getAcc(), 0), columns = e.size(op.getAcc(), 1);
  e.loop(e.index(0), rows, 1, [&](Value r) {
    Value ours = e.broadcast(e.load(op.getMax(), r)), theirs = e.broadcast(e.load(op.getOtherMax(), r));
    Value max = e.maxf(ours, theirs);
    Value base = e.zeroIfMinusInfinity(max);
    Value ourFactor = emitExp2(e, e.subf(ours, base)), theirFactor = emitExp2(e, e.subf(theirs, base));
    auto scalarOf = [&](Value vector) -> Value {
      return vector::ExtractOp::create(e.b, e.loc, vector, ArrayRef<int64_t>{0});
    };
    Value ourScalar = scalarOf(ourFactor), theirScalar = scalarOf(theirFactor);
    e.store(scalarOf(max), op.getMax(), r);
    e.store(e.addf(e.mulf(e.load(op.getSum(), r), ourScalar), e.mulf(e.load(op.getOtherSum(), r), theirScalar)),
            op.getSum(), r);
    e.loop(e.index(0), columns, 1, [&](Value c) {
      Value left = e.mulf(e.load(op.getAcc(), {r, c}), ourScalar);
      Value right = e.mulf(e.load(op.getOtherAcc(), {r, c}), theirScalar);
      e.store(e.addf(left, right), op.getAcc(), {r, c});
    });
  });
}

static void lowerFinalize(Emitter &e, FinalizeOp op) {
  Value output = op.getOutput();
  if (*op.getOutputDims().position(Dim::Seq) == 1)
    output = emitTransposed(e, output);
  Type element = getElementTypeOrSelf(output);
  Value columns = e.size(output, 1);
  auto forRows = [&](function_ref<void(Value row, Value isEmpty, Value inverse)> body) {
    e.loop(e.index(0), e.size(output, 0), 1, [&](Value r) {
      Value sum = e.load(op.getSum(), r);
      Value isEmpty = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, sum, e.scalar(0.0));
      body(r, isEmpty, arith::DivFOp::create(e.b, e.loc, e.scalar(1.0), sum));
    });
  };
  // An empty row may hold anything in the accumulator: it is replaced, not multiplied by zero.
  auto storeScalar = [&](Value r, Value c, Value isEmpty, Value inverse) {
    Value x = e.select(isEmpty, e.scalar(0.0), e.mulf(e.load(op.getAcc(), {r, c}), inverse));
    e.store(emitFromCompute(e, x, element), output, {r, c});
  };
  emitByInnerStride(
      e, output,
      [&](Value unit) {
        forRows([&](Value r, Value isEmpty, Value inverse) {
          Value wide = e.broadcast(inverse);
          forColumns(
              e, columns,
              [&](Value c) {
                Value x = e.select(isEmpty, e.splat(0.0), e.mulf(e.loadVector(op.getAcc(), {r, c}), wide));
                e.storeVector(emitFromCompute(e, x, element), unit, {r, c});
              },
              [&](Value c) { storeScalar(r, c, isEmpty, inverse); });
        });
      },
      [&] {
        forRows([&](Value r, Value isEmpty, Value inverse) {
          e.loop(e.index(0), columns, 1, [&](Value c) { storeScalar(r, c, isEmpty, inverse); });
        });
      });
  for (auto [from, to] : llvm::zip_equal(op.getOthers(), op.getOtherOutputs())) {
    if (cast<ShapedType>(from.getType()).getRank() == 2) {
      forRows([&, from = from, to = to](Value r, Value isEmpty, Value inverse) {
        e.loop(e.index(0), e.size(from, 1), 1, [&](Value bin) {
          Value share = e.mulf(e.load(from, {r, bin}), inverse);
          e.store(e.select(isEmpty, e.scalar(0.0), share), to, {r, bin});
        });
      });
    } else {
      e.loop(e.index(0), e.size(to, 0), 1, [&, from = from, to = to](Value r) { e.store(e.load(from, r), to, r); });
    }
  }
  if (!op.getLse())
    return;
  e.loop(e.index(0), e.size(op.getLse(), 0), 1, [&](Value r) {
    // ln(0) = −inf is the answer for a row without keys, whatever its maximum.
    Value log = math::LogOp::create(e.b, e.loc, e.load(op.getSum(), r));
    Value max = e.zeroIfMinusInfinity(e.load(op.getMax(), r));
    Value lse = e.addf(e.mulf(max, e.scalar(std::numbers::ln2)), log);
    e.store(lse, op.getLse(), r);
  });
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
