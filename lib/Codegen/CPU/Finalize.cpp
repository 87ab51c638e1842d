//===- Finalize.cpp - From the state of rows to their results -----------------===//
//
// A quotient a row, rounded to the type of the result; zeros for a row without keys.
//
//===----------------------------------------------------------------------===//
#include "Finalize.h"
#include "../Common/OnlineSoftmax.h"
#include "Pack.h"
#include "Prefetch.h"
#include "mlir/Transforms/RegionUtils.h"

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
  auto forRows = [&](function_ref<void(Value row, const RowResult &)> body) {
    e.loop(begin, end, 1, [&](Value r) { body(r, finalizeRow(e, e.load(op.getSum(), r))); });
  };
  auto forVectors = [&](function_ref<void(Value column)> body) {
    std::optional<int64_t> known = getConstantIntValue(vectorEnd);
    if (!known || *known > unrolledVectors * e.lanes())
      return e.loop(e.index(0), vectorEnd, e.lanes(), body);
    for (int64_t column = 0; column < *known; column += e.lanes())
      body(e.index(column));
  };
  auto storeScalars = [&](Value r, Value from, const RowResult &result) {
    e.loop(from, columns, 1, [&](Value c) {
      e.store(emitFromCompute(e, normalize(e, result, e.load(op.getAcc(), {r, c})), element), output, {r, c});
    });
  };
  emitByInnerStride(
      e, output,
      [&](Value unit) {
        forRows([&](Value r, const RowResult &result) {
          forVectors([&](Value c) {
            Value x = normalize(e, result, e.loadVector(op.getAcc(), {r, c}));
            e.storeVector(emitFromCompute(e, x, element), unit, {r, c});
          });
          storeScalars(r, vectorEnd, result);
        });
      },
      [&] { forRows([&](Value r, const RowResult &result) { storeScalars(r, e.index(0), result); }); });
  for (auto [from, to] : llvm::zip_equal(op.getOthers(), op.getOtherOutputs())) {
    if (cast<ShapedType>(from.getType()).getRank() == 2) {
      forRows([&, from = from, to = to](Value r, const RowResult &result) {
        e.loop(e.index(0), e.size(from, 1), 1,
               [&](Value bin) { e.store(normalize(e, result, e.load(from, {r, bin})), to, {r, bin}); });
      });
    } else {
      e.loop(begin, end, 1, [&, from = from, to = to](Value r) { e.store(e.load(from, r), to, r); });
    }
  }
  if (!op.getLse())
    return;
  e.loop(begin, end, 1, [&](Value r) {
    Value max = e.load(op.getMax(), r), sum = e.load(op.getSum(), r);
    if (!op.getNaturalMax())
      return e.store(emitLogSumExp(e, max, sum), op.getLse(), r);
    LogSumExp result = emitNaturalLogSumExp(e, max, e.log(sum));
    e.store(result.lse, op.getLse(), r);
    if (op.getLseLow())
      e.store(result.low, op.getLseLow(), r);
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
  IRRewriter b(finalize, e.b.getListener());
  Emitter after{b, e.loc, e.target, e.type};
  Value hasSteps = after.isLess(tiles.getLowerBound(), tiles.getUpperBound());
  Value done = after.select(hasSteps, after.size(query, rowsOfQuery), after.index(0));
  Value rows = after.size(finalize.getOutput(), *finalize.getOutputDims().position(Dim::Seq));
  // Without steps the sum may still be that of a sink, so the accumulator must be filled.
  after.ifElse(hasSteps, [] {}, [&] { after.b.clone(*fill); });
  emitFinalizeRows(after, finalize, done, rows);
  b.eraseOp(finalize);
  b.eraseOp(fill);
}
