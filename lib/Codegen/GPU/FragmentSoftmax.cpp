//===- FragmentSoftmax.cpp - Online softmax on a register fragment ------------===//
//
// Applies scale, score region, mask, maximum, exponential and sum to scores in registers, at absolute positions. Tiles
// that are visible to every row skip the mask.
//
//===----------------------------------------------------------------------===//
#include "FragmentSoftmax.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <limits>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// The exponent by which scores may exceed the maximum of a row before it is updated. Weights are at most 2^8 then,
/// which f16 represents.
static constexpr double lazyGrowth = 8;

FragmentSoftmax::FragmentSoftmax(Emitter &e, AccumulateOp op, Fragment fragment, Value queries, Value keys, Value heads)
    : op(op), at(emitPosition(e.b, e.loc, op)), fragment(std::move(fragment)), queries(queries), keys(keys),
      heads(heads), bounds(cast<ScoringOpInterface>(op.getOperation())) {
  // Opaque to LLVM, which would compute bounds before an outer loop over parts of the keys and keep them in registers.
  Value head = at.head, first = e.add(at.query, e.toIndex(e.optimizationBarrier(e.i32(0))));
  Value count = heads ? e.b.createOrFold<arith::DivUIOp>(e.loc, queries, heads) : queries;
  Value last = e.add(first, e.add(count, -1));
  if (heads && masksPerHead()) {
    visibleToAny = {e.i32(0), e.toI32(keys)};
    visibleToAll = {visibleToAny.end, visibleToAny.begin};
  } else {
    visibleToAny = visibleKeys(e, head, first, last);
    // The bounds are affine in the query, so those of the first and the last query give those of all queries.
    KeyRange ofFirst = visibleKeys(e, head, first, first), ofLast = visibleKeys(e, head, last, last);
    visibleToAll = {e.max(ofFirst.begin, ofLast.begin), e.min(ofFirst.end, ofLast.end)};
  }

  std::optional<double> constant = getConstantScale(cast<ScoringOpInterface>(op.getOperation()));
  needsScores = !op.getTallyRegions().empty() || op.getRowMax();
  Type element = getElementTypeOrSelf(op.getQuery());
  tanh = needsScores || !(element.isF16() || element.isBF16()) ? TanhMethod::Exact : TanhMethod::Quotient;
  // The region is applied to weights before they are rounded to f16.
  maxGrowth = element.isF16() && !op.getWeight().empty() ? 0 : lazyGrowth;
  // The products of a natural maximum with a factor are rounded. With accumulators of f32 that counts, and with score
  // regions, whose scores may be large.
  keepsFactors = op.getNaturalMax();
  bool isRounded = keepsFactors && !(element.isF16() || element.isBF16());
  if (op.getScore().empty() && constant && *constant >= 0 && !needsScores && !isRounded) {
    // 2^(s · c − m) with an fma: one rounding, of a small difference. A factor of zero would turn the −∞ of a masked
    // key into NaN, so the smallest normal number is used instead.
    double smallest = e.type.isF64() ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
    toBase2 = e.scalar(std::max(*constant * std::numbers::log2e, smallest));
    toNatural = std::max(*constant, smallest);
    return;
  }
  scale = constant ? e.scalar(*constant) : op.getScaleValue();
  toBase2 = e.scalar(std::numbers::log2e);
}

/// A step takes a part of the key tile, which may hide all keys of a row, even if the whole tile does not.
static MaxRange maxRangeOfPart(AccumulateOp op) {
  MaxRange range = getMaxRange(op);
  return range == MaxRange::Finite ? MaxRange::Any : range;
}

/// The maximum over the threads that share a row.
static Value maxOfRow(Emitter &e, Value x, FragmentSoftmax::RowReduce reduce) {
  return reduce(x, [&](Value x, Value y) { return e.maxf(x, y); });
}

bool FragmentSoftmax::masksPerHead() {
  return !op.getMask().empty() && !getRegionArguments(op.getMask(), /*numbers=*/0).head.use_empty();
}

RowPosition FragmentSoftmax::positionOf(Emitter &e, Value row) {
  if (!heads)
    return {at.head, e.add(at.query, row)};
  Value row32 = e.toI32(row), count = e.toI32(heads);
  Value query = e.b.createOrFold<arith::DivUIOp>(e.loc, row32, count);
  Value head = e.b.createOrFold<arith::RemUIOp>(e.loc, row32, count);
  return {e.add(at.head, e.toIndex(head)), e.add(at.query, e.toIndex(query))};
}

KeyRange FragmentSoftmax::visibleKeys(Emitter &e, Value head, Value firstQuery, Value lastQuery) {
  KeyRange absolute = bounds.computeKeyRange(e.b, e.loc, at.batch, head, op.getQLen(), op.getKvLen(), firstQuery,
                                             lastQuery, {at.key, e.add(at.key, keys)});
  // Clamp to the op's keys, which fit into 32 bits.
  auto relative = [&](Value key) { return e.toI32(e.max(e.min(e.sub(key, at.key), keys), e.index(0))); };
  return {relative(absolute.begin), relative(absolute.end)};
}

SmallVector<KeyRange> FragmentSoftmax::visibleColumns(Emitter &e, Value first, ArrayRef<Value> rows) {
  // Opaque to LLVM, which would compute bounds before the loop over tiles and keep them in registers.
  Value zero = e.toIndex(e.optimizationBarrier(e.i32(0)));
  std::optional<SmallVector<KeyBound>> ofFirst;
  if (!heads || !masksPerHead())
    ofFirst =
        bounds.computeKeyBounds(e.b, e.loc, at.batch, at.head, op.getQLen(), op.getKvLen(), e.add(at.query, zero));
  SmallVector<KeyRange> ranges;
  if (!ofFirst) {
    for (Value row : rows) {
      RowPosition position = positionOf(e, row);
      KeyRange range = visibleKeys(e, position.head, position.query, position.query);
      ranges.push_back({e.sub(range.begin, first), e.sub(range.end, first)});
    }
    return ranges;
  }
  // In 32 bits from the first query on, since slopes times rows have fewer bits than the limit. Opaque to LLVM, which
  // would compute bounds in tiles that need no mask, too.
  first = e.optimizationBarrier(first);
  Value start = e.add(at.key, e.toIndex(first));
  constexpr int64_t limit = int64_t(1) << 30;
  for (KeyBound &bound : *ofFirst) {
    Value offset = e.sub(bound.position, start);
    bound.position = e.toI32(e.max(e.min(offset, e.index(limit)), e.index(-limit)));
  }
  Value begin = e.sub(e.i32(0), first), end = e.sub(e.toI32(keys), first);
  for (Value row : rows) {
    KeyRange range{begin, end};
    Value query = heads ? e.b.createOrFold<arith::DivUIOp>(e.loc, e.toI32(row), e.toI32(heads)) : e.toI32(row);
    for (const KeyBound &bound : *ofFirst) {
      Value position = e.add(bound.position, e.mul(query, bound.slope));
      (bound.isEnd ? range.end : range.begin) = bound.isEnd ? e.min(range.end, position) : e.max(range.begin, position);
    }
    ranges.push_back(range);
  }
  return ranges;
}

KeyRange FragmentSoftmax::getTiles(Emitter &e, int64_t width) {
  Value first = e.add(at.key, e.toIndex(visibleToAny.begin));
  Value begin = e.sub(e.mul(e.floorDiv(first, width), width), at.key);
  return {e.toI32(begin), visibleToAny.end};
}

Value FragmentSoftmax::isFull(Emitter &e, Value first, int64_t width) const {
  assert(!testsTiles() && "bounds are only a part of the mask");
  return e.andi(e.isAtMost(visibleToAll.begin, first), e.isAtMost(e.add(first, width), visibleToAll.end));
}

/// The rows (index) of a fragment, rematerialized at each use.
static SmallVector<Value> emitRowsOf(Emitter &e, const Fragment &fragment) {
  Value row = fragment.emit ? fragment.emit(e).first : e.optimizationBarrier(fragment.row);
  return llvm::map_to_vector(fragment.rows, [&](int64_t offset) { return e.toIndex(e.add(row, offset)); });
}

SmallVector<Value> FragmentSoftmax::emitRows(Emitter &e) { return emitRowsOf(e, fragment); }

SmallVector<RowPosition> FragmentSoftmax::emitRowPositions(Emitter &e) {
  return llvm::map_to_vector(emitRows(e), [&](Value row) { return positionOf(e, row); });
}

SmallVector<Value> FragmentSoftmax::emitColumns(Emitter &e) {
  Value column = fragment.emit ? fragment.emit(e).second : e.optimizationBarrier(fragment.column);
  return llvm::map_to_vector(fragment.columns, [&](int64_t offset) { return e.add(column, offset); });
}

void FragmentSoftmax::applyScoreRegion(Emitter &e, SmallVectorImpl<Value> &scores, Value first) {
  if (bias)
    return;
  if (scale)
    for (Value &score : scores)
      score = permitFusion(e.mulf(score, scale));
  PositionRegion region(op, op.getScore(), tanh);
  if (region.isEmpty())
    return;
  SmallVector<RowPosition> rows = emitRowPositions(e);
  SmallVector<Value> columns = emitColumns(e);
  Value begin = e.add(at.key, e.toIndex(first));
  for (auto [score, column, r] : llvm::zip_equal(scores, columns, fragment.rowOf))
    score = region.evaluate(e, score, rows[r], e.add(begin, e.toIndex(column)));
  if (needsScores || keepsFactors)
    return;
  toBase2 = e.scalar(takeCommonFactor(scores) * std::numbers::log2e);
}

void FragmentSoftmax::forEachVisibility(Emitter &e, Value first, ArrayRef<Value> rows, ArrayRef<Value> isRow,
                                        function_ref<void(unsigned, Value)> use) {
  PositionRegion region(op, op.getMask());
  Value column = fragment.emit ? fragment.emit(e).second : e.optimizationBarrier(fragment.column);
  SmallVector<KeyRange> ranges = visibleColumns(e, first, rows);
  for (auto [range, exists] : llvm::zip(ranges, isRow))
    range.end = e.select(exists, range.end, range.begin);
  // From the column of the thread on, so that offsets of elements are constants.
  for (KeyRange &range : ranges)
    range = {e.sub(range.begin, column), e.sub(range.end, column)};
  SmallVector<RowPosition> positions;
  Value firstKey;
  if (!bounds.isExact()) {
    positions = llvm::map_to_vector(rows, [&](Value row) { return positionOf(e, row); });
    firstKey = e.add(at.key, e.toIndex(e.add(first, column)));
  }
  for (auto [i, offset] : llvm::enumerate(fragment.columns)) {
    unsigned r = fragment.rowOf[i];
    Value isVisible = e.andi(e.isAtMost(ranges[r].begin, e.i32(offset)), e.isLess(e.i32(offset), ranges[r].end));
    if (firstKey)
      isVisible = e.andi(isVisible, region.evaluate(e, /*score=*/nullptr, positions[r], e.add(firstKey, offset)));
    use(i, isVisible);
  }
}

SmallVector<Value> FragmentSoftmax::evaluateMask(Emitter &e, Value first) {
  SmallVector<Value> rows = emitRows(e);
  auto isRow = llvm::map_to_vector(rows, [&](Value row) { return e.isLess(row, queries); });
  SmallVector<Value> words(maskWords(), e.i32(0));
  forEachVisibility(e, first, rows, isRow, [&](unsigned i, Value isVisible) {
    Value bit = e.select(isVisible, e.i32(static_cast<int32_t>(1u << i % 32)), e.i32(0));
    words[i / 32] = e.b.createOrFold<arith::OrIOp>(e.loc, words[i / 32], bit);
  });
  // Opaque, because LLVM would keep the conditions, which take more registers.
  for (Value &word : words)
    word = e.optimizationBarrier(word);
  return words;
}

/// Replaces the scores of masked pairs by −∞.
SmallVector<Value> FragmentSoftmax::mask(Emitter &e, ArrayRef<Value> scores, Value first, ArrayRef<Value> visible) {
  SmallVector<Value> masked;
  auto keep = [&](unsigned i, Value isVisible) { masked.push_back(e.select(isVisible, scores[i], e.minusInfinity())); };
  if (visible.empty()) {
    forEachVisibility(e, first, emitRows(e), /*isRow=*/{}, keep);
    return masked;
  }
  for (unsigned i = 0; i < scores.size(); ++i) {
    Value bit = e.andi(visible[i / 32], e.i32(static_cast<int32_t>(1u << i % 32)));
    keep(i, e.compare(arith::CmpIPredicate::ne, bit, e.i32(0)));
  }
  return masked;
}

void FragmentSoftmax::computeScores(Emitter &e, SmallVectorImpl<Value> &scores, Value first, Value isFull,
                                    ArrayRef<Value> visible, const PrivateState &state) {
  applyScoreRegion(e, scores, first);
  scores = e.choose(
      isFull, [&] { return SmallVector<Value>(scores.begin(), scores.end()); },
      [&] { return mask(e, scores, first, visible); });
  if (!op.getFinal())
    updateArgmax(e, scores, first, state);
}

SmallVector<Value> FragmentSoftmax::apply(Emitter &e, SmallVectorImpl<Value> &scores, Value first, Value isFull,
                                          ArrayRef<Value> visible, const PrivateState &state, RowReduce reduce) {
  computeScores(e, scores, first, isFull, visible, state);
  if (op.getFinal())
    return applyFinal(e, scores, first, state, reduce);
  SmallVector<Value> tileMax = rowMaxima(e, scores, reduce), factors;
  SmallVector<RowMax> maxima = updateMaxima(e, tileMax, state);
  for (const RowMax &max : maxima)
    factors.push_back(max.factor);
  scaleTallies(e, factors, state);
  SmallVector<Value> sums = computeWeights(e, scores, exponentsOf(e, shift(e, scores, tileMax, maxima)), first, state);
  for (auto [r, sum] : llvm::enumerate(sums))
    e.store(e.fma(e.load(state.sum, r), factors[r], sum), state.sum, r);
  return factors;
}

Value FragmentSoftmax::applyLazily(Emitter &e, SmallVectorImpl<Value> &scores, Value first, Value isFull,
                                   ArrayRef<Value> visible, const PrivateState &state, RowReduce reduce,
                                   function_ref<void(ArrayRef<Value>)> rescale) {
  computeScores(e, scores, first, isFull, visible, state);
  if (op.getFinal()) {
    applyFinal(e, scores, first, state, reduce);
    return arith::ConstantIntOp::create(e.b, e.loc, 0, 1);
  }
  LazyUpdate lazy = updateLazily(e, scores, state, reduce, rescale);
  SmallVector<Value> sums = computeWeights(e, scores, exponentsOf(e, lazy.scores), first, state);
  for (auto [r, sum] : llvm::enumerate(sums))
    e.store(e.addf(e.load(state.sum, r), sum), state.sum, r);
  return lazy.updates;
}

FragmentSoftmax::ShiftedScores FragmentSoftmax::chooseScores(Emitter &e, Value condition,
                                                             function_ref<ShiftedScores()> whenTrue,
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

FragmentSoftmax::ShiftedScores FragmentSoftmax::unshifted(Emitter &e, ArrayRef<Value> scores,
                                                          const PrivateState &state) {
  ShiftedScores result{SmallVector<Value>(scores), {}};
  for (size_t r = 0; r < fragment.rows.size(); ++r)
    result.bases.push_back(exponentOfMax(e, e.load(state.max, r)));
  return result;
}

FragmentSoftmax::LazyUpdate FragmentSoftmax::updateLazily(Emitter &e, ArrayRef<Value> scores, const PrivateState &state,
                                                          RowReduce reduce,
                                                          function_ref<void(ArrayRef<Value>)> rescale) {
  SmallVector<Value> largest = threadMaxima(e, scores);
  Value updates = needsUpdate(e, largest, state);
  auto update = [&] {
    SmallVector<Value> tileMax = llvm::map_to_vector(largest, [&](Value x) { return maxOfRow(e, x, reduce); });
    SmallVector<RowMax> maxima = updateMaxima(e, tileMax, state);
    SmallVector<Value> factors;
    for (auto [r, max] : llvm::enumerate(maxima)) {
      factors.push_back(max.factor);
      e.store(e.mulf(e.load(state.sum, r), max.factor), state.sum, r);
    }
    scaleTallies(e, factors, state);
    rescale(factors);
    return shift(e, scores, tileMax, maxima);
  };
  return {chooseScores(e, updates, update, [&] { return unshifted(e, scores, state); }), updates};
}

SmallVector<Value> FragmentSoftmax::exponentsOf(Emitter &e, const ShiftedScores &shifted, Value perColumn) {
  SmallVector<Value> exponents;
  for (auto [score, r, column] : llvm::zip_equal(shifted.scores, fragment.rowOf, fragment.columns)) {
    Value offset = arith::NegFOp::create(e.b, e.loc, shifted.bases[r]);
    if (perColumn)
      offset = addColumns(e, offset, perColumn, r, column);
    exponents.push_back(e.fma(score, toBase2, offset));
  }
  return exponents;
}

/// Whether some lane of the warp has a score for which a maximum must be updated; the same in all lanes.
Value FragmentSoftmax::needsUpdate(Emitter &e, ArrayRef<Value> largest, const PrivateState &state) {
  Value any;
  auto join = [&](Value condition) {
    any = any ? arith::OrIOp::create(e.b, e.loc, any, condition).getResult() : condition;
  };
  for (auto [r, score] : llvm::enumerate(largest)) {
    Value before = exponentOfMax(e, e.load(state.max, r));
    // Unordered: before the first visible key, the maximum is −∞ and the growth NaN or ∞.
    Value growth = e.fma(score, toBase2, arith::NegFOp::create(e.b, e.loc, before));
    join(arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UGT, growth, e.scalar(maxGrowth)));
    // Scores of this size are shifted.
    Value size = math::AbsFOp::create(e.b, e.loc, before);
    join(arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, size, e.scalar(0x1p24)));
  }
  return e.anyLane(any);
}

Value FragmentSoftmax::exponentOfMax(Emitter &e, Value max) {
  return op.getNaturalMax() ? e.mulf(max, e.scalar(std::numbers::log2e)) : max;
}

RowMax FragmentSoftmax::rowMaxAfter(Emitter &e, Value tileMax, Value before) {
  if (!op.getNaturalMax())
    return emitRowMax(e, tileMax, before, toBase2, maxRangeOfPart(op));
  return emitRoundedNaturalMax(e, toNatural == 1 ? tileMax : e.mulf(tileMax, e.scalar(toNatural)), before);
}

SmallVector<RowMax> FragmentSoftmax::updateMaxima(Emitter &e, ArrayRef<Value> tileMax, const PrivateState &state) {
  SmallVector<RowMax> maxima;
  for (auto [r, max] : llvm::enumerate(tileMax)) {
    maxima.push_back(rowMaxAfter(e, max, e.load(state.max, r)));
    e.store(maxima.back().max, state.max, r);
  }
  return maxima;
}

SmallVector<Value> FragmentSoftmax::computeWeights(Emitter &e, SmallVectorImpl<Value> &scores,
                                                   ArrayRef<Value> exponents, Value first, const PrivateState &state) {
  SmallVector<Value> sums(fragment.rows.size());
  for (unsigned i = 0; i < scores.size(); ++i) {
    unsigned r = fragment.rowOf[i];
    Value weight = e.exp2(exponents[i]);
    sums[r] = sums[r] ? e.addf(sums[r], weight) : weight;
    addToTallies(e, i, scores[i], weight, first, state);
    scores[i] = weight;
  }
  applyWeightRegion(e, scores, first);
  return sums;
}

SmallVector<Value> FragmentSoftmax::threadMaxima(Emitter &e, ArrayRef<Value> scores) {
  SmallVector<Value> largest(fragment.rows.size());
  for (auto [score, r] : llvm::zip_equal(scores, fragment.rowOf))
    largest[r] = largest[r] ? e.maxf(largest[r], score) : score;
  return largest;
}

SmallVector<Value> FragmentSoftmax::rowMaxima(Emitter &e, ArrayRef<Value> scores, RowReduce reduce) {
  return llvm::map_to_vector(threadMaxima(e, scores), [&](Value x) { return maxOfRow(e, x, reduce); });
}

FragmentSoftmax::ShiftedScores FragmentSoftmax::shift(Emitter &e, ArrayRef<Value> scores, ArrayRef<Value> tileMax,
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
  Value begin = e.add(at.key, e.toIndex(e.add(first, fragment.column)));
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

/// Adds element `i`, with the given score and weight, to its tally bins.
void FragmentSoftmax::addToTallies(Emitter &e, unsigned i, Value score, Value weight, Value first,
                                   const PrivateState &state) {
  for (auto [region, bins] : llvm::zip_equal(op.getTallyRegions(), state.tallies)) {
    unsigned r = fragment.rowOf[i];
    Value row = e.toIndex(e.add(e.optimizationBarrier(fragment.row), fragment.rows[r]));
    Value column = e.toIndex(e.add(e.optimizationBarrier(fragment.column), fragment.columns[i]));
    Value key = e.add(e.add(at.key, e.toIndex(first)), column);
    SmallVector<Value> yielded = PositionRegion(op, region).evaluateAll(e, score, positionOf(e, row), key);
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

SmallVector<Value> FragmentSoftmax::applyFinal(Emitter &e, SmallVectorImpl<Value> &scores, Value first,
                                               const PrivateState &state, RowReduce reduce) {
  PositionRegion region(op, op.getWeight());
  SmallVector<RowPosition> rows = emitRowPositions(e);
  SmallVector<Value> tileMax = rowMaxima(e, scores, reduce), columns = emitColumns(e), inverses, sums;
  SmallVector<RowMax> maxima;
  for (auto [r, max] : llvm::enumerate(tileMax)) {
    sums.push_back(reduce(e.load(state.sum, r), [&](Value x, Value y) { return e.addf(x, y); }));
    inverses.push_back(finalizeRow(e, sums.back()).inverse);
    // The sum belongs to this maximum, which scores of the tile may exceed (`applyLazily`).
    RowMax row = rowMaxAfter(e, max, e.load(state.max, r));
    row.max = e.load(state.max, r), row.base = exponentOfMax(e, e.zeroIfMinusInfinity(row.max));
    maxima.push_back(row);
  }
  SmallVector<Value> exponents = exponentsOf(e, shift(e, scores, tileMax, maxima));
  Value begin = e.add(at.key, e.toIndex(first));
  for (auto [score, exponent, column, r] : llvm::zip_equal(scores, exponents, columns, fragment.rowOf)) {
    Value weight = e.mulf(e.exp2(exponent), inverses[r]);
    Value changed = region.evaluate(e, weight, rows[r], e.add(begin, e.toIndex(column)));
    Value isVisible = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, score, e.minusInfinity());
    score = e.select(isVisible, e.mulf(changed, sums[r]), e.scalar(0.0));
  }
  return SmallVector<Value>(fragment.rows.size(), e.scalar(1.0));
}

/// Applies a weight region that is proportional to the weight, so that it commutes with the division by the sum. A
/// weight of 0 stays 0.
void FragmentSoftmax::applyWeightRegion(Emitter &e, SmallVectorImpl<Value> &weights, Value first) {
  PositionRegion region(op, op.getWeight());
  if (region.isEmpty())
    return;
  SmallVector<RowPosition> rows = emitRowPositions(e);
  SmallVector<Value> columns = emitColumns(e);
  Value begin = e.add(at.key, e.toIndex(first));
  for (auto [weight, column, r] : llvm::zip_equal(weights, columns, fragment.rowOf)) {
    Value changed = region.evaluate(e, weight, rows[r], e.add(begin, e.toIndex(column)));
    Value isNone = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, weight, e.scalar(0.0));
    weight = e.select(isNone, weight, changed);
  }
}

void device::clearRows(Emitter &e, const Fragment &fragment, Value queries, const PrivateState &state) {
  for (auto [r, row] : llvm::enumerate(emitRowsOf(e, fragment))) {
    Value isRow = e.isLess(row, queries);
    e.store(e.select(isRow, e.load(state.max, r), e.minusInfinity()), state.max, r);
    e.store(e.select(isRow, e.load(state.sum, r), e.scalar(0.0)), state.sum, r);
    if (state.rowMax)
      e.store(e.select(isRow, e.load(state.rowMax, r), e.minusInfinity()), state.rowMax, r);
    if (state.argmax)
      e.store(e.select(isRow, e.load(state.argmax, r), arith::ConstantIntOp::create(e.b, e.loc, -1, 64)), state.argmax,
              r);
  }
}
