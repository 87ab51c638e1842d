//===- FragmentSoftmax.cpp - The online softmax of one thread's scores --------===//
//
// Scale, score region, mask, maximum, exponential, sum: on registers, with absolute positions. Tiles that every row sees
// take a way without any mask.
//
//===----------------------------------------------------------------------===//
#include "FragmentSoftmax.h"
#include "Exponential.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <limits>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

FragmentSoftmax::FragmentSoftmax(Emitter &e, AccumulateOp op, Fragment fragment, Value queries, Value keys, Value heads)
    : op(op), fragment(std::move(fragment)), queries(queries), keys(keys), heads(heads),
      bounds(cast<ScoringOpInterface>(op.getOperation())) {
  Value head = at(e, 1), first = at(e, 2);
  Value count = heads ? e.b.createOrFold<arith::DivUIOp>(e.loc, queries, heads) : queries;
  Value last = e.add(first, e.add(count, -1));
  if (heads && masksPerHead()) {
    reach = {e.i32(0), e.toI32(keys)};
    common = {reach.end, reach.begin};
  } else {
    reach = visibleKeys(e, head, first, last);
    // What a row sees is bounded by straight lines, so the first and the last query decide what all of them see.
    KeyRange ofFirst = visibleKeys(e, head, first, first), ofLast = visibleKeys(e, head, last, last);
    common = {e.max(ofFirst.begin, ofLast.begin), e.min(ofFirst.end, ofLast.end)};
  }

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

bool FragmentSoftmax::masksPerHead() {
  return !op.getMask().empty() && !getRegionArguments(op.getMask(), /*isScore=*/false).head.use_empty();
}

RowPosition FragmentSoftmax::positionOf(Emitter &e, Value row) {
  if (!heads)
    return {at(e, 1), e.add(at(e, 2), row)};
  Value number = e.toI32(row), count = e.toI32(heads);
  Value query = e.b.createOrFold<arith::DivUIOp>(e.loc, number, count);
  Value head = e.b.createOrFold<arith::RemUIOp>(e.loc, number, count);
  return {e.add(at(e, 1), e.toIndex(head)), e.add(at(e, 2), e.toIndex(query))};
}

KeyRange FragmentSoftmax::visibleKeysAbsolute(Emitter &e, Value head, Value firstQuery, Value lastQuery) {
  KeyRange all = {at(e, 3), e.add(at(e, 3), keys)};
  if (op.getMask().empty())
    return all;
  RegionArguments args = getRegionArguments(op.getMask(), /*isScore=*/false);
  IRMapping values;
  values.map(args.batch, at(e, 0));
  values.map(args.head, head);
  values.map(args.captures, op.getCaptures());
  return bounds.computeKeyRange(e.b, e.loc, values, op.getQLen(), op.getKvLen(), firstQuery, lastQuery, all);
}

KeyRange FragmentSoftmax::visibleKeys(Emitter &e, Value head, Value firstQuery, Value lastQuery) {
  KeyRange absolute = visibleKeysAbsolute(e, head, firstQuery, lastQuery);
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

SmallVector<Value> FragmentSoftmax::emitRows(Emitter &e) {
  Value row = e.optimizationBarrier(fragment.row);
  return llvm::map_to_vector(fragment.rows, [&](int64_t offset) { return e.toIndex(e.add(row, offset)); });
}

SmallVector<RowPosition> FragmentSoftmax::emitRowPositions(Emitter &e) {
  return llvm::map_to_vector(emitRows(e), [&](Value row) { return positionOf(e, row); });
}

SmallVector<Value> FragmentSoftmax::emitColumns(Emitter &e) {
  Value column = e.optimizationBarrier(fragment.column);
  return llvm::map_to_vector(fragment.columns, [&](int64_t offset) { return e.add(column, offset); });
}

void FragmentSoftmax::applyScoreRegion(Emitter &e, SmallVectorImpl<Value> &scores, Value first) {
  if (scale)
    for (Value &score : scores)
      score = e.mulf(score, scale);
  PositionRegion region(op, op.getScore());
  if (region.isEmpty())
    return;
  SmallVector<RowPosition> rows = emitRowPositions(e);
  SmallVector<Value> columns = emitColumns(e);
  Value begin = e.add(at(e, 3), e.toIndex(first));
  for (auto [score, column, r] : llvm::zip_equal(scores, columns, fragment.rowOf))
    score = region.evaluate(e, score, rows[r], e.add(begin, e.toIndex(column)));
}

/// −∞ for what a row does not see.
SmallVector<Value> FragmentSoftmax::mask(Emitter &e, ArrayRef<Value> scores, Value first) {
  PositionRegion region(op, op.getMask());
  SmallVector<RowPosition> rows = emitRowPositions(e);
  SmallVector<Value> columns = emitColumns(e);
  SmallVector<KeyRange> seen;
  for (RowPosition row : rows) {
    KeyRange own = visibleKeys(e, row.head, row.query, row.query);
    seen.push_back({e.sub(own.begin, first), e.sub(own.end, first)});
  }
  Value begin = e.add(at(e, 3), e.toIndex(first));
  SmallVector<Value> masked;
  for (auto [score, column, r] : llvm::zip_equal(scores, columns, fragment.rowOf)) {
    Value isVisible = e.both(e.isAtMost(seen[r].begin, column), e.isLess(column, seen[r].end));
    if (!bounds.isExact()) {
      Value key = e.add(begin, e.toIndex(column));
      isVisible = e.both(isVisible, region.evaluate(e, /*score=*/nullptr, rows[r], key));
    }
    masked.push_back(e.select(isVisible, score, e.minusInfinity()));
  }
  return masked;
}

SmallVector<Value> FragmentSoftmax::apply(Emitter &e, SmallVectorImpl<Value> &scores, Value first, Value isFull,
                                          const PrivateState &state, RowReduce join) {
  applyScoreRegion(e, scores, first);
  SmallVector<Type> types(scores.size(), e.type);
  scores = e.choose(
      isFull, types, [&] { return SmallVector<Value>(scores.begin(), scores.end()); }, [&] { return mask(e, scores, first); });

  if (op.getFinal())
    return applyFinal(e, scores, first, state, join);
  updateArgmax(e, scores, first, state);
  SmallVector<Value> tileMax = largestOfRows(e, scores, join), maxima, factors, sums(fragment.rows.size());
  for (auto [r, max] : llvm::enumerate(tileMax)) {
    Value before = e.load(state.max, r);
    maxima.push_back(e.maxf(e.mulf(max, toBase2), before));
    e.store(maxima.back(), state.max, r);
    factors.push_back(exp2(e, e.subf(before, e.zeroIfMinusInfinity(maxima.back()))));
  }
  scaleTallies(e, factors, state);
  SmallVector<Value> exponents = exponentsOf(e, scores, tileMax, maxima);
  for (unsigned i = 0; i < scores.size(); ++i) {
    unsigned r = fragment.rowOf[i];
    Value weight = exp2(e, exponents[i]);
    sums[r] = sums[r] ? e.addf(sums[r], weight) : weight;
    addToTallies(e, i, scores[i], weight, first, state);
    scores[i] = weight;
  }
  for (auto [r, sum] : llvm::enumerate(sums))
    e.store(e.fma(e.load(state.sum, r), factors[r], sum), state.sum, r);
  applyWeightRegion(e, scores, first);
  return factors;
}

SmallVector<Value> FragmentSoftmax::largestOfRows(Emitter &e, ArrayRef<Value> scores, RowReduce join) {
  SmallVector<Value> largest(fragment.rows.size());
  for (auto [score, r] : llvm::zip_equal(scores, fragment.rowOf))
    largest[r] = largest[r] ? e.maxf(largest[r], score) : score;
  for (Value &max : largest)
    max = join(max, [&](Value x, Value y) { return e.maxf(x, y); });
  return largest;
}

SmallVector<Value> FragmentSoftmax::exponentsOf(Emitter &e, ArrayRef<Value> scores, ArrayRef<Value> tileMax,
                                                ArrayRef<Value> maxima) {
  // exponent = (s − shift) · c + rest, with shift 0 and rest −base. The rounding of the base cancels: weights and sum are
  // taken relative to the same one. Only a base so large that its rounding is a factor of two or more is taken off before
  // the product, in a branch that is hardly ever taken.
  SmallVector<Value> shifts, rests;
  Value isAnyShifted;
  for (auto [largest, max] : llvm::zip_equal(tileMax, maxima)) {
    Value base = e.zeroIfMinusInfinity(max), scaled = e.mulf(largest, toBase2);
    Value isShifted =
        arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, math::AbsFOp::create(e.b, e.loc, base),
                              e.scalar(e.type.isF64() ? 0x1p53 : 0x1p24));
    Value isNewest = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGE, scaled, max);
    Value distance = e.select(isNewest, e.scalar(0.0), e.subf(scaled, max));
    shifts.push_back(e.select(isShifted, e.zeroIfMinusInfinity(largest), e.scalar(0.0)));
    rests.push_back(e.select(isShifted, distance, arith::NegFOp::create(e.b, e.loc, base)));
    isAnyShifted = isAnyShifted ? arith::OrIOp::create(e.b, e.loc, isAnyShifted, isShifted).getResult() : isShifted;
  }
  SmallVector<Value> shifted = e.choose(
      isAnyShifted, SmallVector<Type>(scores.size(), e.type),
      [&] {
        SmallVector<Value> differences;
        for (auto [score, r] : llvm::zip_equal(scores, fragment.rowOf))
          differences.push_back(e.subf(score, shifts[r]));
        return differences;
      },
      [&] { return SmallVector<Value>(scores); });
  for (auto [score, r] : llvm::zip_equal(shifted, fragment.rowOf))
    score = e.fma(score, toBase2, rests[r]);
  return shifted;
}

/// The columns of a row come in ascending order, so that the first key of the largest score is found.
void FragmentSoftmax::updateArgmax(Emitter &e, ArrayRef<Value> scores, Value first, const PrivateState &state) {
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
  Value begin = e.add(at(e, 3), e.toIndex(e.add(first, fragment.column)));
  for (int64_t r = 0, n = fragment.rows.size(); r < n; ++r) {
    e.store(largest[r], state.rowMax, r);
    if (!state.argmax)
      continue;
    Value key = arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), e.add(begin, e.toIndex(best[r])));
    Value isNone = e.compare(arith::CmpIPredicate::eq, best[r], none);
    e.store(e.select(isNone, e.load(state.argmax, r), key), state.argmax, r);
  }
}

void FragmentSoftmax::scaleTallies(Emitter &e, ArrayRef<Value> factors, const PrivateState &state) {
  for (Value bins : state.tallies)
    for (auto [r, factor] : llvm::enumerate(factors)) {
      int64_t count = state.bins(bins), begin = static_cast<int64_t>(r) * count;
      e.loop(e.index(begin), e.index(begin + count), 1,
             [&, factor = factor](Value bin) { e.store(e.mulf(e.load(bins, {bin}), factor), bins, {bin}); });
    }
}

/// What the regions say of element `i`, whose score and weight are given.
void FragmentSoftmax::addToTallies(Emitter &e, unsigned i, Value score, Value weight, Value first,
                                   const PrivateState &state) {
  for (auto [region, bins] : llvm::zip_equal(op.getTallyRegions(), state.tallies)) {
    unsigned r = fragment.rowOf[i];
    Value row = e.toIndex(e.add(e.optimizationBarrier(fragment.row), fragment.rows[r]));
    Value column = e.toIndex(e.add(e.optimizationBarrier(fragment.column), fragment.columns[i]));
    Value key = e.add(e.add(at(e, 3), e.toIndex(first)), column);
    SmallVector<Value> yielded = PositionRegion(op, region).evaluateAll(e, score, positionOf(e, row), key);
    Value bin = yielded[0], amount = e.mulf(weight, yielded[1]);
    // What a region says of a key that has no weight does not count, nor does a bin that is none.
    Value counts = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, weight, e.scalar(0.0));
    int64_t count = state.bins(bins);
    Value isBin = e.compare(arith::CmpIPredicate::ult, bin, e.index(count));
    e.ifElse(e.both(counts, isBin), [&, bins = bins] {
      Value place = e.add(bin, r * count);
      e.store(e.addf(e.load(bins, {place}), amount), bins, {place});
    });
  }
}

SmallVector<Value> FragmentSoftmax::applyFinal(Emitter &e, SmallVectorImpl<Value> &scores, Value first,
                                               const PrivateState &state, RowReduce join) {
  PositionRegion region(op, op.getWeight());
  SmallVector<RowPosition> rows = emitRowPositions(e);
  SmallVector<Value> columns = emitColumns(e), inverses, sums, maxima;
  for (int64_t r = 0, n = fragment.rows.size(); r < n; ++r) {
    sums.push_back(join(e.load(state.sum, r), [&](Value x, Value y) { return e.addf(x, y); }));
    inverses.push_back(arith::DivFOp::create(e.b, e.loc, e.scalar(1.0), sums.back()));
    maxima.push_back(e.load(state.max, r));
  }
  SmallVector<Value> exponents = exponentsOf(e, scores, largestOfRows(e, scores, join), maxima);
  Value begin = e.add(at(e, 3), e.toIndex(first));
  for (auto [score, exponent, column, r] : llvm::zip_equal(scores, exponents, columns, fragment.rowOf)) {
    Value weight = e.mulf(exp2(e, exponent), inverses[r]);
    Value changed = region.evaluate(e, weight, rows[r], e.add(begin, e.toIndex(column)));
    Value isVisible = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, score, e.minusInfinity());
    score = e.select(isVisible, e.mulf(changed, sums[r]), e.scalar(0.0));
  }
  return SmallVector<Value>(fragment.rows.size(), e.scalar(1.0));
}

/// The region may be asked about weights whose sum is not known yet, for it is proportional to them. A key that has no
/// weight gets none.
void FragmentSoftmax::applyWeightRegion(Emitter &e, SmallVectorImpl<Value> &weights, Value first) {
  PositionRegion region(op, op.getWeight());
  if (region.isEmpty())
    return;
  SmallVector<RowPosition> rows = emitRowPositions(e);
  SmallVector<Value> columns = emitColumns(e);
  Value begin = e.add(at(e, 3), e.toIndex(first));
  for (auto [weight, column, r] : llvm::zip_equal(weights, columns, fragment.rowOf)) {
    Value changed = region.evaluate(e, weight, rows[r], e.add(begin, e.toIndex(column)));
    Value isNone = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, weight, e.scalar(0.0));
    weight = e.select(isNone, weight, changed);
  }
}

void FragmentSoftmax::clearRows(Emitter &e, const PrivateState &state) {
  for (auto [r, row] : llvm::enumerate(emitRows(e))) {
    Value isRow = e.isLess(row, queries);
    e.store(e.select(isRow, e.load(state.max, r), e.minusInfinity()), state.max, r);
    e.store(e.select(isRow, e.load(state.sum, r), e.scalar(0.0)), state.sum, r);
    if (state.rowMax)
      e.store(e.select(isRow, e.load(state.rowMax, r), e.minusInfinity()), state.rowMax, r);
    if (state.argmax)
      e.store(e.select(isRow, e.load(state.argmax, r), arith::ConstantIntOp::create(e.b, e.loc, -1, 64)), state.argmax, r);
  }
}

RowResult device::finalizeRow(Emitter &e, Value max, Value sum) {
  RowResult result;
  result.isEmpty = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, sum, e.scalar(0.0));
  result.inverse = arith::DivFOp::create(e.b, e.loc, e.scalar(1.0), sum);
  // log2(0) = −∞ is the answer for a row without keys, whatever its maximum.
  Value log = e.addf(e.zeroIfMinusInfinity(max), log2(e, sum));
  result.lse = e.mulf(log, e.scalar(std::numbers::ln2));
  return result;
}
