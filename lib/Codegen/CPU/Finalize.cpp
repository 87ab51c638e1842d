//===- Finalize.cpp - From the state of rows to their results -----------------===//
//
// A quotient a row, rounded to the type of the result; zeros for a row without keys.
//
//===----------------------------------------------------------------------===//
#include "Finalize.h"
#include "Pack.h"
#include "Prefetch.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/RegionUtils.h"
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

/// Maximum number of vectors per row that are stored without a loop.
static constexpr int64_t unrolledVectors = 16;

void saccade::cpu::emitFinalizeRows(Emitter &e, FinalizeOp op, Value begin, Value end) {
  Value output = op.getOutput();
  if (*op.getOutputDims().position(Dim::Seq) == 1)
    output = emitTransposed(e, output);
  Type element = getElementTypeOrSelf(output);
  Value columns = e.size(output, 1), vectorEnd = e.roundDown(columns, e.lanes());
  auto forRows = [&](function_ref<void(Value row, Value isEmpty, Value inverse)> body) {
    e.loop(begin, end, 1, [&](Value r) {
      Value sum = e.load(op.getSum(), r);
      Value isEmpty = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, sum, e.scalar(0.0));
      body(r, isEmpty, arith::DivFOp::create(e.b, e.loc, e.scalar(1.0), sum));
    });
  };
  auto forVectors = [&](function_ref<void(Value column)> body) {
    std::optional<int64_t> known = getConstantIntValue(vectorEnd);
    if (!known || *known > unrolledVectors * e.lanes())
      return e.loop(e.index(0), vectorEnd, e.lanes(), body);
    for (int64_t column = 0; column < *known; column += e.lanes())
      body(e.index(column));
  };
  // The accumulator of an empty row may hold NaN, so the result is selected, not multiplied by zero.
  auto storeScalars = [&](Value r, Value from, Value isEmpty, Value inverse) {
    e.loop(from, columns, 1, [&](Value c) {
      Value x = e.select(isEmpty, e.scalar(0.0), e.mulf(e.load(op.getAcc(), {r, c}), inverse));
      e.store(emitFromCompute(e, x, element), output, {r, c});
    });
  };
  emitByInnerStride(
      e, output,
      [&](Value unit) {
        forRows([&](Value r, Value isEmpty, Value inverse) {
          Value wide = e.broadcast(inverse);
          forVectors([&](Value c) {
            Value x = e.select(isEmpty, e.splat(0.0), e.mulf(e.loadVector(op.getAcc(), {r, c}), wide));
            e.storeVector(emitFromCompute(e, x, element), unit, {r, c});
          });
          storeScalars(r, vectorEnd, isEmpty, inverse);
        });
      },
      [&] { forRows([&](Value r, Value isEmpty, Value inverse) { storeScalars(r, e.index(0), isEmpty, inverse); }); });
  for (auto [from, to] : llvm::zip_equal(op.getOthers(), op.getOtherOutputs())) {
    if (cast<ShapedType>(from.getType()).getRank() == 2) {
      forRows([&, from = from, to = to](Value r, Value isEmpty, Value inverse) {
        e.loop(e.index(0), e.size(from, 1), 1, [&](Value bin) {
          Value share = e.mulf(e.load(from, {r, bin}), inverse);
          e.store(e.select(isEmpty, e.scalar(0.0), share), to, {r, bin});
        });
      });
    } else {
      e.loop(begin, end, 1, [&, from = from, to = to](Value r) { e.store(e.load(from, r), to, r); });
    }
  }
  if (!op.getLse())
    return;
  e.loop(begin, end, 1, [&](Value r) {
    // A row without keys has log-sum-exp ln(0) = −inf for any maximum.
    Value log = math::LogOp::create(e.b, e.loc, e.load(op.getSum(), r));
    Value max = e.zeroIfMinusInfinity(e.load(op.getMax(), r));
    Value lse = e.addf(e.mulf(max, e.scalar(std::numbers::ln2)), log);
    e.store(lse, op.getLse(), r);
  });
}

//===----------------------------------------------------------------------===//
// States of a loop
//===----------------------------------------------------------------------===//

std::optional<LoopState> LoopState::find(AccumulateOp op) {
  auto tiles = dyn_cast<scf::ForOp>(op->getParentOp());
  if (!tiles || !tiles.isDefinedOutsideOfLoop(op.getQuery()) || !op.getAcc().getDefiningOp<memref::AllocOp>())
    return std::nullopt;
  Block *block = tiles->getBlock();
  linalg::FillOp fill;
  FinalizeOp finalize;
  for (Operation *user : op.getAcc().getUsers()) {
    if (user == op || isa<memref::DeallocOp>(user))
      continue;
    if (auto found = dyn_cast<linalg::FillOp>(user); found && !fill)
      fill = found;
    else if (auto found = dyn_cast<FinalizeOp>(user); found && !finalize)
      finalize = found;
    else
      return std::nullopt;
  }
  bool matches = fill && finalize && fill->getBlock() == block && finalize->getBlock() == block &&
                 fill->isBeforeInBlock(tiles) && tiles->isBeforeInBlock(finalize);
  if (!matches)
    return std::nullopt;
  // Maximum and sum may have initial values, but no other op may modify them from the loop on.
  for (auto [state, finished] :
       {std::pair(op.getMax(), finalize.getMax()), std::pair(op.getSum(), finalize.getSum())}) {
    bool isFinished = state == finished && llvm::all_of(state.getUsers(), [&](Operation *user) {
                        Operation *here = block->findAncestorOpInBlock(*user);
                        return user == op || user == finalize || isa<memref::DeallocOp>(user) ||
                               (here && here->isBeforeInBlock(tiles));
                      });
    if (!isFinished)
      return std::nullopt;
  }
  IRRewriter rewriter(op->getContext());
  if (failed(moveValueDefinitions(rewriter, finalize.getDpsInits(), tiles)))
    return std::nullopt;
  return LoopState(tiles, fill, finalize);
}

Value LoopState::isFirstStep(Emitter &e) {
  return e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, tiles.getInductionVar(),
                                         tiles.getLowerBound());
}

Value LoopState::isLastStep(Emitter &e) {
  Value next = e.b.createOrFold<arith::AddIOp>(e.loc, tiles.getInductionVar(), tiles.getStep());
  return e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::sge, next, tiles.getUpperBound());
}

void LoopState::prefetchRows(Emitter &e, Value begin, Value end) {
  Value output = finalize.getOutput();
  if (*finalize.getOutputDims().position(Dim::Seq) == 1)
    output = emitTransposed(e, output);
  if (getConstantIntValue(e.size(output, 1)))
    emitPrefetchRows(e, output, begin, end, /*isWrite=*/true);
}

void LoopState::removeFinalized(const Emitter &e, Value query, unsigned rowsOfQuery) {
  OpBuilder b(finalize);
  Emitter after{b, e.loc, e.target, e.type};
  Value hasSteps = after.isLess(tiles.getLowerBound(), tiles.getUpperBound());
  Value done = after.select(hasSteps, after.size(query, rowsOfQuery), after.index(0));
  Value rows = after.size(finalize.getOutput(), *finalize.getOutputDims().position(Dim::Seq));
  // Without steps the sum may still be that of a sink, so the accumulator must be filled.
  after.ifElse(hasSteps, [] {}, [&] { after.b.clone(*fill); });
  emitFinalizeRows(after, finalize, done, rows);
  finalize.erase();
  fill.erase();
}
