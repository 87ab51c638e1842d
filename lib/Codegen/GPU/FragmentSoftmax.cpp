//===- FragmentSoftmax.cpp - Online softmax on a register fragment ------------===//
//
// Maximum, exponential, sum and weight region of scores in registers.
//
//===----------------------------------------------------------------------===//
#include "FragmentSoftmax.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// The exponent by which scores may exceed the maximum of a row before it is updated. Weights are at most 2^8 then,
/// which f16 represents.
static constexpr double lazyGrowth = 8;

/// A step takes a part of the key tile, which may hide all keys of a row, even if the whole tile does not.
static MaxRange maxRangeOfPart(AccumulateOp op) {
  MaxRange range = getMaxRange(op);
  return range == MaxRange::Finite ? MaxRange::Any : range;
}

FragmentSoftmax::FragmentSoftmax(Emitter &e, FragmentScores &scoring, const PrivateState &state, int64_t lanes,
                                 Rescale rescale)
    : scoring(scoring), e(e), op(scoring.op), fragment(scoring.fragment), state(state), lanes(lanes),
      rescale(std::move(rescale)) {
  // The region is applied to weights before they are rounded to f16.
  maxGrowth = getElementTypeOrSelf(op.getQuery()).isF16() && !op.getWeight().empty() ? 0 : lazyGrowth;
}

SmallVector<Value> FragmentSoftmax::apply(SmallVectorImpl<Value> &scores, Value first) {
  if (op.getPointwise())
    return normalize(scores, first);
  if (op.getFinal())
    return applyFinal(scores, first);
  updateArgmax(scores, first);
  SmallVector<Value> tileMax = rowMaxima(threadMaxima(scores)), factors;
  SmallVector<RowMax> maxima = updateMaxima(tileMax);
  for (const RowMax &max : maxima)
    factors.push_back(max.factor);
  scaleTallies(factors);
  SmallVector<Value> sums = computeWeights(scores, exponentsOf(shift(scores, tileMax, maxima)), first);
  for (auto [r, sum] : llvm::enumerate(sums))
    e.store(e.fma(e.load(state.sum, r), factors[r], sum), state.sum, r);
  return factors;
}

Value FragmentSoftmax::applyLazily(SmallVectorImpl<Value> &scores, Value first) {
  if (op.getFinal() || op.getPointwise()) {
    apply(scores, first);
    return arith::ConstantIntOp::create(e.b, e.loc, 0, 1);
  }
  updateArgmax(scores, first);
  LazyUpdate lazy = updateLazily(scores);
  SmallVector<Value> sums = computeWeights(scores, exponentsOf(lazy.scores), first);
  for (auto [r, sum] : llvm::enumerate(sums))
    e.store(e.addf(e.load(state.sum, r), sum), state.sum, r);
  return lazy.updates;
}

FragmentSoftmax::ShiftedScores FragmentSoftmax::chooseScores(Value condition, function_ref<ShiftedScores()> whenTrue,
                                                             function_ref<ShiftedScores()> whenFalse) {
  auto flatten = [](ShiftedScores x) {
    llvm::append_range(x.scores, x.bases);
    return x.scores;
  };
  SmallVector<Value> all =
      e.choose(condition, [&] { return flatten(whenTrue()); }, [&] { return flatten(whenFalse()); });
  size_t rows = fragment.rows.size();
  return {SmallVector<Value>(ArrayRef(all).drop_back(rows)), SmallVector<Value>(ArrayRef(all).take_back(rows))};
}

FragmentSoftmax::ShiftedScores FragmentSoftmax::unshifted(ArrayRef<Value> scores) {
  ShiftedScores result{SmallVector<Value>(scores), {}};
  for (size_t r = 0; r < fragment.rows.size(); ++r)
    result.bases.push_back(exponentOfMax(e.load(state.max, r)));
  return result;
}

FragmentSoftmax::LazyUpdate FragmentSoftmax::updateLazily(ArrayRef<Value> scores) {
  SmallVector<Value> largest = threadMaxima(scores);
  Value updates = needsUpdate(largest);
  auto update = [&] {
    SmallVector<Value> tileMax = rowMaxima(largest), factors;
    SmallVector<RowMax> maxima = updateMaxima(tileMax);
    for (auto [r, max] : llvm::enumerate(maxima)) {
      factors.push_back(max.factor);
      e.store(e.mulf(e.load(state.sum, r), max.factor), state.sum, r);
    }
    scaleTallies(factors);
    rescale(factors);
    return shift(scores, tileMax, maxima);
  };
  return {chooseScores(updates, update, [&] { return unshifted(scores); }), updates};
}

SmallVector<Value> FragmentSoftmax::exponentsOf(const ShiftedScores &shifted, Value perColumn) {
  SmallVector<Value> exponents;
  for (auto [score, r, column] : llvm::zip_equal(shifted.scores, fragment.rowOf, fragment.columns)) {
    Value offset = arith::NegFOp::create(e.b, e.loc, shifted.bases[r]);
    if (perColumn)
      offset = scoring.addColumns(offset, perColumn, r, column);
    exponents.push_back(e.fma(score, scoring.getToBase2(), offset));
  }
  return exponents;
}

/// Whether some lane of the warp has a score for which a maximum must be updated; the same in all lanes.
Value FragmentSoftmax::needsUpdate(ArrayRef<Value> largest) {
  Value any;
  auto join = [&](Value condition) {
    any = any ? arith::OrIOp::create(e.b, e.loc, any, condition).getResult() : condition;
  };
  for (auto [r, score] : llvm::enumerate(largest)) {
    Value before = exponentOfMax(e.load(state.max, r));
    // Unordered: before the first visible key, the maximum is −∞ and the growth NaN or ∞.
    Value growth = e.fma(score, scoring.getToBase2(), arith::NegFOp::create(e.b, e.loc, before));
    join(arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UGT, growth, e.scalar(maxGrowth)));
    // Scores of this size are shifted.
    Value size = math::AbsFOp::create(e.b, e.loc, before);
    join(arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, size, e.scalar(0x1p24)));
  }
  return e.anyLane(any);
}

Value FragmentSoftmax::exponentOfMax(Value max) {
  return op.getNaturalMax() ? e.mulf(max, e.scalar(std::numbers::log2e)) : max;
}

RowMax FragmentSoftmax::rowMaxAfter(Value tileMax, Value before) {
  if (!op.getNaturalMax())
    return emitRowMax(e, tileMax, before, scoring.getToBase2(), maxRangeOfPart(op));
  double natural = scoring.getToNatural();
  return emitRoundedNaturalMax(e, natural == 1 ? tileMax : e.mulf(tileMax, e.scalar(natural)), before);
}

SmallVector<RowMax> FragmentSoftmax::updateMaxima(ArrayRef<Value> tileMax) {
  SmallVector<RowMax> maxima;
  for (auto [r, max] : llvm::enumerate(tileMax)) {
    maxima.push_back(rowMaxAfter(max, e.load(state.max, r)));
    e.store(maxima.back().max, state.max, r);
  }
  return maxima;
}

SmallVector<Value> FragmentSoftmax::computeWeights(SmallVectorImpl<Value> &scores, ArrayRef<Value> exponents,
                                                   Value first) {
  SmallVector<Value> sums(fragment.rows.size());
  for (unsigned i = 0; i < scores.size(); ++i) {
    unsigned r = fragment.rowOf[i];
    Value weight = e.exp2(exponents[i]);
    sums[r] = sums[r] ? e.addf(sums[r], weight) : weight;
    addToTallies(i, scores[i], weight, first);
    scores[i] = weight;
  }
  applyWeightRegion(scores, first);
  return sums;
}

SmallVector<Value> FragmentSoftmax::threadMaxima(ArrayRef<Value> scores) {
  SmallVector<Value> largest(fragment.rows.size());
  for (auto [score, r] : llvm::zip_equal(scores, fragment.rowOf))
    largest[r] = largest[r] ? e.maxf(largest[r], score) : score;
  return largest;
}

SmallVector<Value> FragmentSoftmax::rowMaxima(ArrayRef<Value> ofThread) {
  auto max = [&](Value x, Value y) { return e.maxf(x, y); };
  return llvm::map_to_vector(ofThread, [&](Value x) { return e.reduceLanes(x, lanes, max); });
}

FragmentSoftmax::ShiftedScores FragmentSoftmax::shift(ArrayRef<Value> scores, ArrayRef<Value> tileMax,
                                                      ArrayRef<RowMax> maxima) {
  SmallVector<Value> shifts;
  ShiftedScores results;
  Value isAnyShifted;
  for (auto [largest, row] : llvm::zip_equal(tileMax, maxima)) {
    Exponent exponent = emitExponent(e, row, largest);
    shifts.push_back(exponent.shift);
    results.bases.push_back(arith::NegFOp::create(e.b, e.loc, exponent.offset));
    isAnyShifted = isAnyShifted ? arith::OrIOp::create(e.b, e.loc, isAnyShifted, exponent.isShifted).getResult()
                                : exponent.isShifted;
  }
  results.scores = e.choose(
      isAnyShifted,
      [&] {
        SmallVector<Value> differences;
        for (auto [score, r] : llvm::zip_equal(scores, fragment.rowOf))
          differences.push_back(e.subf(score, shifts[r]));
        return differences;
      },
      [&] { return SmallVector<Value>(scores); });
  return results;
}

/// The columns of a row are in ascending order, so the first of several maximal keys is kept.
void FragmentSoftmax::updateArgmax(ArrayRef<Value> scores, Value first) {
  if (!state.rowMax)
    return;
  Value none = e.i32(-1);
  SmallVector<Value> largest, best(fragment.rows.size(), none);
  for (int64_t r = 0, n = fragment.rows.size(); r < n; ++r)
    largest.push_back(e.load(state.rowMax, r));
  for (auto [score, column, r] : llvm::zip_equal(scores, fragment.columns, fragment.rowOf)) {
    Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, score, largest[r]);
    largest[r] = e.select(isLarger, score, largest[r]);
    best[r] = e.select(isLarger, e.i32(column), best[r]);
  }
  Value begin = scoring.positionOfKey(e.add(first, fragment.column));
  for (int64_t r = 0, n = fragment.rows.size(); r < n; ++r) {
    e.store(largest[r], state.rowMax, r);
    if (!state.argmax)
      continue;
    Value key = arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), e.add(begin, e.toIndex(best[r])));
    Value isNone = e.compare(arith::CmpIPredicate::eq, best[r], none);
    e.store(e.select(isNone, e.load(state.argmax, r), key), state.argmax, r);
  }
}

void FragmentSoftmax::scaleTallies(ArrayRef<Value> factors) {
  for (Value bins : state.tallies)
    for (auto [r, factor] : llvm::enumerate(factors)) {
      int64_t count = state.bins(bins), begin = static_cast<int64_t>(r) * count;
      e.loop(e.index(begin), e.index(begin + count), 1,
             [&, factor = factor](Value bin) { e.store(e.mulf(e.load(bins, {bin}), factor), bins, {bin}); });
    }
}

/// Adds element `i`, with the given score and weight, to its tally bins.
void FragmentSoftmax::addToTallies(unsigned i, Value score, Value weight, Value first) {
  for (auto [region, bins] : llvm::zip_equal(op.getTallyRegions(), state.tallies)) {
    unsigned r = fragment.rowOf[i];
    Value row = e.toIndex(e.add(e.optimizationBarrier(fragment.row), fragment.rows[r]));
    Value column = e.toIndex(e.add(e.optimizationBarrier(fragment.column), fragment.columns[i]));
    Value key = e.add(scoring.positionOfKey(first), column);
    SmallVector<Value> yielded = PositionRegion(op, region).evaluateAll(e, score, scoring.positionOf(row), key);
    Value bin = yielded[0], amount = e.mulf(weight, yielded[1]);
    // Keys of weight 0 and bins out of range are ignored.
    Value counts = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, weight, e.scalar(0.0));
    int64_t count = state.bins(bins);
    Value isBin = e.compare(arith::CmpIPredicate::ult, bin, e.index(count));
    e.ifElse(e.andi(counts, isBin), [&, bins = bins] {
      Value place = e.add(bin, r * count);
      e.store(e.addf(e.load(bins, {place}), amount), bins, {place});
    });
  }
}

SmallVector<Value> FragmentSoftmax::applyFinal(SmallVectorImpl<Value> &scores, Value first) {
  PositionRegion region(op, op.getWeight());
  SmallVector<RowPosition> rows = scoring.emitRowPositions();
  SmallVector<Value> tileMax = rowMaxima(threadMaxima(scores)), columns = scoring.emitColumns(), inverses, sums;
  SmallVector<RowMax> maxima;
  for (auto [r, max] : llvm::enumerate(tileMax)) {
    sums.push_back(e.reduceLanes(e.load(state.sum, r), lanes, [&](Value x, Value y) { return e.addf(x, y); }));
    inverses.push_back(finalizeRow(e, sums.back()).inverse);
    // The sum belongs to this maximum, which scores of the tile may exceed (`applyLazily`).
    RowMax row = rowMaxAfter(max, e.load(state.max, r));
    row.max = e.load(state.max, r), row.base = exponentOfMax(e.zeroIfMinusInfinity(row.max));
    maxima.push_back(row);
  }
  SmallVector<Value> exponents = exponentsOf(shift(scores, tileMax, maxima));
  Value begin = scoring.positionOfKey(first);
  for (auto [score, exponent, column, r] : llvm::zip_equal(scores, exponents, columns, fragment.rowOf)) {
    Value weight = e.mulf(e.exp2(exponent), inverses[r]);
    Value changed = region.evaluate(e, weight, rows[r], e.add(begin, e.toIndex(column)));
    Value isVisible = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, score, e.minusInfinity());
    score = e.select(isVisible, e.mulf(changed, sums[r]), e.scalar(0.0));
  }
  return SmallVector<Value>(fragment.rows.size(), e.scalar(1.0));
}

SmallVector<Value> FragmentSoftmax::normalize(SmallVectorImpl<Value> &scores, Value first) {
  PositionRegion region(op, op.getWeight());
  SmallVector<RowPosition> rows = scoring.emitRowPositions();
  SmallVector<Value> columns = scoring.emitColumns();
  Value begin = scoring.positionOfKey(first);
  double natural = scoring.getToNatural();
  for (auto [score, column, r] : llvm::zip_equal(scores, columns, fragment.rowOf)) {
    Value given = natural == 1 ? score : e.mulf(score, e.scalar(natural));
    Value weight = region.evaluate(e, given, rows[r], e.add(begin, e.toIndex(column)));
    Value isVisible = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, score, e.minusInfinity());
    score = e.select(isVisible, weight, e.scalar(0.0));
  }
  for (size_t r = 0; r < fragment.rows.size(); ++r)
    e.store(e.scalar(0.0), state.max, r);
  return SmallVector<Value>(fragment.rows.size(), e.scalar(1.0));
}

/// Applies a weight region that is proportional to the weight, so that it commutes with the division by the sum. A
/// weight of 0 stays 0.
void FragmentSoftmax::applyWeightRegion(SmallVectorImpl<Value> &weights, Value first) {
  PositionRegion region(op, op.getWeight());
  if (region.isEmpty())
    return;
  SmallVector<RowPosition> rows = scoring.emitRowPositions();
  SmallVector<Value> columns = scoring.emitColumns();
  Value begin = scoring.positionOfKey(first);
  for (auto [weight, column, r] : llvm::zip_equal(weights, columns, fragment.rowOf)) {
    Value changed = region.evaluate(e, weight, rows[r], e.add(begin, e.toIndex(column)));
    Value isNone = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, weight, e.scalar(0.0));
    weight = e.select(isNone, weight, changed);
  }
}

void device::clearRows(Emitter &e, const Fragment &fragment, Value queries, const PrivateState &state) {
  for (auto [r, row] : llvm::enumerate(fragment.emitRows(e))) {
    Value isRow = e.isLess(row, queries);
    auto keep = [&, r = r](Value part, Value otherwise) {
      if (part)
        e.store(e.select(isRow, e.load(part, r), otherwise), part, r);
    };
    keep(state.max, e.minusInfinity());
    keep(state.sum, e.scalar(0.0));
    keep(state.rowMax, e.minusInfinity());
    keep(state.argmax, arith::ConstantIntOp::create(e.b, e.loc, -1, 64));
  }
}
