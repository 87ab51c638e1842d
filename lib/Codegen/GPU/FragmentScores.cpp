//===- FragmentScores.cpp - The scores of a register fragment -----------------===//
//
// Applies scale, score region and mask to scores in registers, at absolute positions. Tiles that are visible to every
// row skip the mask.
//
//===----------------------------------------------------------------------===//
#include "FragmentScores.h"
#include <limits>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

SmallVector<Value> Fragment::emitRows(Emitter &e) const {
  Value first = emit ? emit(e).first : e.optimizationBarrier(row);
  return llvm::map_to_vector(rows, [&](int64_t offset) { return e.toIndex(e.add(first, offset)); });
}

FragmentScores::FragmentScores(Emitter &e, AccumulateOp op, Fragment fragment, Value queries, Value keys, Value heads)
    : op(op), fragment(std::move(fragment)), e(e), at(emitPosition(e.b, e.loc, op)), queries(queries), keys(keys),
      heads(heads), bounds(cast<ScoringOpInterface>(op.getOperation())) {
  // Opaque to LLVM, which would compute bounds before an outer loop over parts of the keys and keep them in registers.
  Value head = at.head, first = e.add(at.query, e.toIndex(e.optimizationBarrier(e.i32(0))));
  Value count = heads ? e.b.createOrFold<arith::DivUIOp>(e.loc, queries, heads) : queries;
  Value last = e.add(first, e.add(count, -1));
  if (heads && masksPerHead()) {
    visibleToAny = {e.i32(0), e.toI32(keys)};
    visibleToAll = {visibleToAny.end, visibleToAny.begin};
  } else {
    visibleToAny = visibleKeys(head, first, last);
    // The bounds are affine in the query, so those of the first and the last query give those of all queries.
    KeyRange ofFirst = visibleKeys(head, first, first), ofLast = visibleKeys(head, last, last);
    visibleToAll = {e.max(ofFirst.begin, ofLast.begin), e.min(ofFirst.end, ofLast.end)};
  }

  std::optional<double> constant = getConstantScale(cast<ScoringOpInterface>(op.getOperation()));
  needsScores = !op.getTallyRegions().empty() || op.getRowMax();
  Type element = getElementTypeOrSelf(op.getQuery());
  tanh = needsScores || !(element.isF16() || element.isBF16()) ? TanhMethod::Exact : TanhMethod::Quotient;
  // The products of a natural maximum with a factor are rounded. With accumulators of f32 that counts, and with score
  // regions, whose scores may be large. A normalizer takes the scores themselves.
  keepsFactors = op.getNaturalMax() || op.getPointwise();
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

bool FragmentScores::masksPerHead() {
  return !op.getMask().empty() && !getRegionArguments(op.getMask(), /*numbers=*/0).head.use_empty();
}

RowPosition FragmentScores::positionOf(Value row) {
  if (!heads)
    return {at.head, e.add(at.query, row)};
  Value row32 = e.toI32(row), count = e.toI32(heads);
  Value query = e.b.createOrFold<arith::DivUIOp>(e.loc, row32, count);
  Value head = e.b.createOrFold<arith::RemUIOp>(e.loc, row32, count);
  return {e.add(at.head, e.toIndex(head)), e.add(at.query, e.toIndex(query))};
}

KeyRange FragmentScores::visibleKeys(Value head, Value firstQuery, Value lastQuery) {
  KeyRange absolute = bounds.computeKeyRange(e.b, e.loc, at.batch, head, op.getQLen(), op.getKvLen(), firstQuery,
                                             lastQuery, {at.key, e.add(at.key, keys)});
  // Clamp to the op's keys, which fit into 32 bits.
  auto relative = [&](Value key) { return e.toI32(e.max(e.min(e.sub(key, at.key), keys), e.index(0))); };
  return {relative(absolute.begin), relative(absolute.end)};
}

SmallVector<KeyRange> FragmentScores::visibleColumns(Value first, ArrayRef<Value> rows) {
  // Opaque to LLVM, which would compute bounds before the loop over tiles and keep them in registers.
  Value zero = e.toIndex(e.optimizationBarrier(e.i32(0)));
  std::optional<SmallVector<KeyBound>> ofFirst;
  if (!heads || !masksPerHead())
    ofFirst =
        bounds.computeKeyBounds(e.b, e.loc, at.batch, at.head, op.getQLen(), op.getKvLen(), e.add(at.query, zero));
  SmallVector<KeyRange> ranges;
  if (!ofFirst) {
    for (Value row : rows) {
      RowPosition position = positionOf(row);
      KeyRange range = visibleKeys(position.head, position.query, position.query);
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

KeyRange FragmentScores::getTiles(int64_t width) {
  Value first = e.add(at.key, e.toIndex(visibleToAny.begin));
  Value begin = e.sub(e.mul(e.floorDiv(first, width), width), at.key);
  return {e.toI32(begin), visibleToAny.end};
}

void FragmentScores::forEachTile(KeyRange tiles, int64_t width, function_ref<void(const KeyTile &)> body,
                                 function_ref<void(Value)> start) {
  TileLoop loop{queries, keys, heads, tiles, width};
  if (testsTiles())
    return forEachVisibleTile(e, op, loop, start, body);
  auto isFull = [&](Value first) {
    return e.andi(e.isAtMost(visibleToAll.begin, first), e.isAtMost(e.add(first, width), visibleToAll.end));
  };
  device::forEachTile(e, loop, start, isFull, body);
}

SmallVector<RowPosition> FragmentScores::emitRowPositions() {
  return llvm::map_to_vector(fragment.emitRows(e), [&](Value row) { return positionOf(row); });
}

SmallVector<Value> FragmentScores::emitColumns() {
  Value column = fragment.emitColumn(e);
  return llvm::map_to_vector(fragment.columns, [&](int64_t offset) { return e.add(column, offset); });
}

void FragmentScores::applyScoreRegion(SmallVectorImpl<Value> &scores, Value first) {
  if (bias)
    return;
  if (scale)
    for (Value &score : scores)
      score = permitFusion(e.mulf(score, scale));
  PositionRegion region(op, op.getScore(), tanh);
  if (region.isEmpty())
    return;
  SmallVector<RowPosition> rows = emitRowPositions();
  SmallVector<Value> columns = emitColumns();
  Value begin = positionOfKey(first);
  for (auto [score, column, r] : llvm::zip_equal(scores, columns, fragment.rowOf))
    score = region.evaluate(e, score, rows[r], e.add(begin, e.toIndex(column)));
  if (needsScores || keepsFactors)
    return;
  toBase2 = e.scalar(takeCommonFactor(scores) * std::numbers::log2e);
}

void FragmentScores::forEachVisibility(Value first, ArrayRef<Value> rows, ArrayRef<Value> isRow,
                                       function_ref<void(unsigned, Value)> use) {
  PositionRegion region(op, op.getMask());
  Value column = fragment.emitColumn(e);
  SmallVector<KeyRange> ranges = visibleColumns(first, rows);
  for (auto [range, exists] : llvm::zip(ranges, isRow))
    range.end = e.select(exists, range.end, range.begin);
  // From the column of the thread on, so that offsets of elements are constants.
  for (KeyRange &range : ranges)
    range = {e.sub(range.begin, column), e.sub(range.end, column)};
  SmallVector<RowPosition> positions;
  Value firstKey;
  if (!bounds.isExact()) {
    positions = llvm::map_to_vector(rows, [&](Value row) { return positionOf(row); });
    firstKey = positionOfKey(e.add(first, column));
  }
  for (auto [i, offset] : llvm::enumerate(fragment.columns)) {
    unsigned r = fragment.rowOf[i];
    Value isVisible = e.andi(e.isAtMost(ranges[r].begin, e.i32(offset)), e.isLess(e.i32(offset), ranges[r].end));
    if (firstKey)
      isVisible = e.andi(isVisible, region.evaluate(e, /*score=*/nullptr, positions[r], e.add(firstKey, offset)));
    use(i, isVisible);
  }
}

SmallVector<Value> FragmentScores::evaluateMask(Value first) {
  SmallVector<Value> rows = fragment.emitRows(e);
  auto isRow = llvm::map_to_vector(rows, [&](Value row) { return e.isLess(row, queries); });
  SmallVector<Value> words(maskWords(), e.i32(0));
  forEachVisibility(first, rows, isRow, [&](unsigned i, Value isVisible) {
    Value bit = e.select(isVisible, e.i32(static_cast<int32_t>(1u << i % 32)), e.i32(0));
    words[i / 32] = e.b.createOrFold<arith::OrIOp>(e.loc, words[i / 32], bit);
  });
  // Opaque, because LLVM would keep the conditions, which take more registers.
  for (Value &word : words)
    word = e.optimizationBarrier(word);
  return words;
}

/// Replaces the scores of masked pairs by −∞.
SmallVector<Value> FragmentScores::mask(ArrayRef<Value> scores, Value first, ArrayRef<Value> visible) {
  SmallVector<Value> masked;
  auto keep = [&](unsigned i, Value isVisible) { masked.push_back(e.select(isVisible, scores[i], e.minusInfinity())); };
  if (visible.empty()) {
    forEachVisibility(first, fragment.emitRows(e), /*isRow=*/{}, keep);
    return masked;
  }
  for (unsigned i = 0; i < scores.size(); ++i) {
    Value bit = e.andi(visible[i / 32], e.i32(static_cast<int32_t>(1u << i % 32)));
    keep(i, e.compare(arith::CmpIPredicate::ne, bit, e.i32(0)));
  }
  return masked;
}

void FragmentScores::evaluate(SmallVectorImpl<Value> &scores, Value first, Value isFull, ArrayRef<Value> visible) {
  applyScoreRegion(scores, first);
  scores = e.choose(
      isFull, [&] { return SmallVector<Value>(scores.begin(), scores.end()); },
      [&] { return mask(scores, first, visible); });
}
