//===- FragmentSoftmax.cpp - The online softmax of one thread's scores --------===//
//
// Scale, score region, mask, maximum, exponential, sum: on registers, with absolute positions. Tiles that every row sees
// take a way without any mask.
//
//===----------------------------------------------------------------------===//
#include "FragmentSoftmax.h"
#include "Exponential.h"
#include <limits>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

FragmentSoftmax::FragmentSoftmax(Emitter &e, AccumulateOp op, Fragment fragment, Value queries, Value keys)
    : op(op), fragment(std::move(fragment)), queries(queries), keys(keys),
      bounds(cast<ScoringOpInterface>(op.getOperation())) {
  Value last = e.add(queries, -1);
  reach = reachOfRows(e, e.index(0), last);
  // What a row sees is bounded by straight lines, so the first and the last row decide what all of them see.
  KeyRange ofFirst = reachOfRows(e, e.index(0), e.index(0)), ofLast = reachOfRows(e, last, last);
  common = {e.max(ofFirst.begin, ofLast.begin), e.min(ofFirst.end, ofLast.end)};

  std::optional<double> constant = getConstantScale(cast<ScoringOpInterface>(op.getOperation()));
  bool needsScores = !op.getTallyRegions().empty() || op.getRowMax();
  if (op.getScore().empty() && constant && *constant >= 0 && !needsScores) {
    // 2^(s · c − m): one rounding, of a small difference. A factor of zero would turn the −∞ of a masked key into NaN;
    // the smallest normal number does as well.
    double smallest = e.type.isF64() ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
    toBase2 = e.scalar(std::max(*constant * std::numbers::log2e, smallest));
    return;
  }
  scale = constant ? e.scalar(*constant) : op.getScaleValue();
  toBase2 = e.scalar(std::numbers::log2e);
}

Value FragmentSoftmax::at(Emitter &e, unsigned i) { return op.getAt().empty() ? e.index(0) : Value(op.getAt()[i]); }

KeyRange FragmentSoftmax::reachAbsolute(Emitter &e, Value firstQuery, Value lastQuery) {
  KeyRange all = {at(e, 3), e.add(at(e, 3), keys)};
  if (op.getMask().empty())
    return all;
  RegionArguments args = getRegionArguments(op.getMask(), /*isScore=*/false);
  IRMapping values;
  values.map(args.batch, at(e, 0));
  values.map(args.head, at(e, 1));
  values.map(args.captures, op.getCaptures());
  return bounds.reach(e.b, e.loc, values, op.getQLen(), op.getKvLen(), firstQuery, lastQuery, all);
}

KeyRange FragmentSoftmax::reachOfRows(Emitter &e, Value firstRow, Value lastRow) {
  KeyRange absolute = reachAbsolute(e, e.add(at(e, 2), firstRow), e.add(at(e, 2), lastRow));
  // Whatever the positions are, nothing outside of the op's keys is touched, and those fit into 32 bits.
  auto relative = [&](Value key) {
    return e.toI32(e.max(e.min(e.sub(key, at(e, 3)), keys), e.index(0)));
  };
  return {relative(absolute.begin), relative(absolute.end)};
}

KeyRange FragmentSoftmax::getTiles(Emitter &e, int64_t width) {
  Value first = e.add(at(e, 3), e.toIndex(reach.begin));
  Value begin = e.sub(e.mul(e.floorDiv(first, width), width), at(e, 3));
  return {e.toI32(begin), reach.end};
}

Value FragmentSoftmax::isFull(Emitter &e, Value first, int64_t width) {
  if (!bounds.isExact())
    return arith::ConstantIntOp::create(e.b, e.loc, 0, 1);
  return e.both(e.isAtMost(common.begin, first), e.isAtMost(e.add(first, width), common.end));
}

SmallVector<Value> FragmentSoftmax::rowsHere(Emitter &e) {
  Value row = e.pin(fragment.row);
  return llvm::map_to_vector(fragment.rows, [&](int64_t offset) { return e.toIndex(e.add(row, offset)); });
}

SmallVector<Value> FragmentSoftmax::columnsHere(Emitter &e) {
  Value column = e.pin(fragment.column);
  return llvm::map_to_vector(fragment.columns, [&](int64_t offset) { return e.add(column, offset); });
}

void FragmentSoftmax::applyScoreRegion(Emitter &e, SmallVectorImpl<Value> &scores, Value first) {
  if (scale)
    for (Value &score : scores)
      score = e.mulf(score, scale);
  PositionRegion region(op, op.getScore());
  if (region.isEmpty())
    return;
  SmallVector<Value> rows = rowsHere(e), columns = columnsHere(e);
  Value begin = e.add(at(e, 3), e.toIndex(first));
  for (auto [score, column, r] : llvm::zip_equal(scores, columns, fragment.rowOf))
    score = region.evaluate(e, score, e.add(at(e, 2), rows[r]), e.add(begin, e.toIndex(column)));
}

/// −∞ for what a row does not see.
SmallVector<Value> FragmentSoftmax::mask(Emitter &e, ArrayRef<Value> scores, Value first) {
  PositionRegion region(op, op.getMask());
  SmallVector<Value> rows = rowsHere(e), columns = columnsHere(e);
  SmallVector<KeyRange> seen;
  for (Value row : rows) {
    KeyRange own = reachOfRows(e, row, row);
    seen.push_back({e.sub(own.begin, first), e.sub(own.end, first)});
  }
  Value begin = e.add(at(e, 3), e.toIndex(first));
  SmallVector<Value> masked;
  for (auto [score, column, r] : llvm::zip_equal(scores, columns, fragment.rowOf)) {
    Value isSeen = e.both(e.isAtMost(seen[r].begin, column), e.isLess(column, seen[r].end));
    if (!bounds.isExact()) {
      Value query = e.add(at(e, 2), rows[r]), key = e.add(begin, e.toIndex(column));
      isSeen = e.both(isSeen, region.evaluate(e, /*score=*/nullptr, query, key));
    }
    masked.push_back(e.select(isSeen, score, e.minusInfinity()));
  }
  return masked;
}

SmallVector<Value> FragmentSoftmax::apply(Emitter &e, SmallVectorImpl<Value> &scores, Value first, Value isFull,
                                          const PrivateState &state, JoinMax joinMax) {
  applyScoreRegion(e, scores, first);
  SmallVector<Type> types(scores.size(), e.type);
  scores = e.choose(
      isFull, types, [&] { return SmallVector<Value>(scores.begin(), scores.end()); }, [&] { return mask(e, scores, first); });

  if (op.getFinal())
    return applyFinal(e, scores, first, state);
  updateLargest(e, scores, first, state);
  SmallVector<Value> seen(scores.begin(), scores.end());
  SmallVector<Value> tileMax(fragment.rows.size()), factors, shifts, sums(fragment.rows.size());
  for (auto [score, r] : llvm::zip_equal(scores, fragment.rowOf))
    tileMax[r] = tileMax[r] ? e.maxf(tileMax[r], score) : score;
  for (auto [r, max] : llvm::enumerate(tileMax)) {
    Value before = e.load(state.max, r);
    Value after = e.maxf(e.mulf(joinMax(max), toBase2), before);
    e.store(after, state.max, r);
    Value base = e.zeroIfMinusInfinity(after);
    factors.push_back(exp2(e, e.subf(before, base)));
    shifts.push_back(arith::NegFOp::create(e.b, e.loc, base));
  }
  for (auto [score, r] : llvm::zip_equal(scores, fragment.rowOf)) {
    score = exp2(e, e.fma(score, toBase2, shifts[r]));
    sums[r] = sums[r] ? e.addf(sums[r], score) : score;
  }
  for (auto [r, sum] : llvm::enumerate(sums))
    e.store(e.fma(e.load(state.sum, r), factors[r], sum), state.sum, r);
  updateTallies(e, seen, scores, factors[0], first, state);
  applyWeightRegion(e, scores, first);
  return factors;
}

/// Columns come in ascending order, so that the first key of the largest score is found.
void FragmentSoftmax::updateLargest(Emitter &e, ArrayRef<Value> scores, Value first, const PrivateState &state) {
  if (!state.rowMax)
    return;
  Value largest = e.load(state.rowMax, 0), position = state.argmax ? e.load(state.argmax, 0) : Value();
  Value begin = e.add(at(e, 3), e.toIndex(first));
  for (auto [score, column] : llvm::zip_equal(scores, columnsHere(e))) {
    Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, score, largest);
    largest = e.select(isLarger, score, largest);
    if (!position)
      continue;
    Value key = arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), e.add(begin, e.toIndex(column)));
    position = e.select(isLarger, key, position);
  }
  e.store(largest, state.rowMax, 0);
  if (position)
    e.store(position, state.argmax, 0);
}

void FragmentSoftmax::updateTallies(Emitter &e, ArrayRef<Value> scores, ArrayRef<Value> weights, Value factor,
                                    Value first, const PrivateState &state) {
  for (auto [region, bins] : llvm::zip_equal(op.getTallyRegions(), state.tallies)) {
    Value count = e.index(cast<MemRefType>(bins.getType()).getDimSize(0));
    e.loop(e.index(0), count, 1, [&](Value bin) { e.store(e.mulf(e.load(bins, {bin}), factor), bins, {bin}); });
    SmallVector<Value> rows = rowsHere(e), columns = columnsHere(e);
    Value begin = e.add(at(e, 3), e.toIndex(first));
    for (auto [score, weight, column, r] : llvm::zip_equal(scores, weights, columns, fragment.rowOf)) {
      SmallVector<Value> yielded = PositionRegion(op, region).evaluateAll(
          e, score, e.add(at(e, 2), rows[r]), e.add(begin, e.toIndex(column)));
      Value bin = yielded[0], amount = e.mulf(weight, yielded[1]);
      // What a region says of a key that has no weight does not count, nor does a bin that is none.
      Value counts = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, weight, e.scalar(0.0));
      Value isBin = e.compare(arith::CmpIPredicate::ult, bin, count);
      e.ifElse(e.both(counts, isBin), [&] { e.store(e.addf(e.load(bins, {bin}), amount), bins, {bin}); });
    }
  }
}

SmallVector<Value> FragmentSoftmax::applyFinal(Emitter &e, SmallVectorImpl<Value> &scores, Value first,
                                               const PrivateState &state) {
  PositionRegion region(op, op.getWeight());
  SmallVector<Value> rows = rowsHere(e), columns = columnsHere(e), inverses, sums, shifts;
  for (int64_t r = 0, n = fragment.rows.size(); r < n; ++r) {
    sums.push_back(e.load(state.sum, r));
    inverses.push_back(arith::DivFOp::create(e.b, e.loc, e.scalar(1.0), sums.back()));
    shifts.push_back(arith::NegFOp::create(e.b, e.loc, e.zeroIfMinusInfinity(e.load(state.max, r))));
  }
  Value begin = e.add(at(e, 3), e.toIndex(first));
  for (auto [score, column, r] : llvm::zip_equal(scores, columns, fragment.rowOf)) {
    Value weight = e.mulf(exp2(e, e.fma(score, toBase2, shifts[r])), inverses[r]);
    Value changed = region.evaluate(e, weight, e.add(at(e, 2), rows[r]), e.add(begin, e.toIndex(column)));
    Value isSeen = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, score, e.minusInfinity());
    score = e.select(isSeen, e.mulf(changed, sums[r]), e.scalar(0.0));
  }
  return SmallVector<Value>(fragment.rows.size(), e.scalar(1.0));
}

/// The region may be asked about weights whose sum is not known yet, for it is proportional to them. A key that has no
/// weight gets none.
void FragmentSoftmax::applyWeightRegion(Emitter &e, SmallVectorImpl<Value> &weights, Value first) {
  PositionRegion region(op, op.getWeight());
  if (region.isEmpty())
    return;
  SmallVector<Value> rows = rowsHere(e), columns = columnsHere(e);
  Value begin = e.add(at(e, 3), e.toIndex(first));
  for (auto [weight, column, r] : llvm::zip_equal(weights, columns, fragment.rowOf)) {
    Value changed = region.evaluate(e, weight, e.add(at(e, 2), rows[r]), e.add(begin, e.toIndex(column)));
    Value isNone = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, weight, e.scalar(0.0));
    weight = e.select(isNone, weight, changed);
  }
}

void FragmentSoftmax::clearRows(Emitter &e, const PrivateState &state) {
  for (auto [r, row] : llvm::enumerate(rowsHere(e))) {
    Value isRow = e.isLess(row, queries);
    e.store(e.select(isRow, e.load(state.max, r), e.minusInfinity()), state.max, r);
    e.store(e.select(isRow, e.load(state.sum, r), e.scalar(0.0)), state.sum, r);
    if (state.rowMax)
      e.store(e.select(isRow, e.load(state.rowMax, r), e.minusInfinity()), state.rowMax, r);
    if (state.argmax)
      e.store(e.select(isRow, e.load(state.argmax, r), arith::ConstantIntOp::create(e.b, e.loc, -1, 64)), state.argmax, r);
  }
}

RowResult device::finishRow(Emitter &e, Value max, Value sum) {
  RowResult result;
  result.isEmpty = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, sum, e.scalar(0.0));
  result.inverse = arith::DivFOp::create(e.b, e.loc, e.scalar(1.0), sum);
  // log2(0) = −∞ is the answer for a row without keys, whatever its maximum.
  Value log = e.addf(e.zeroIfMinusInfinity(max), log2(e, sum));
  result.lse = e.mulf(log, e.scalar(std::numbers::ln2));
  return result;
}
