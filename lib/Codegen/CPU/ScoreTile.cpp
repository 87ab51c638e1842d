//===- ScoreTile.cpp - Online softmax of a group of rows ----------------------===//
//
// Makes two sweeps over a row in the L1 cache: regions, mask and maximum, then exponential and sum. Masks that are
// column ranges are applied by the caller in place of the first sweep. Per-row values are computed for one row per
// lane.
//
//===----------------------------------------------------------------------===//
#include "ScoreTile.h"
#include "Pack.h"
#include "VectorizeRegion.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>
#include <limits>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

static constexpr double minusInfinity = -std::numeric_limits<double>::infinity();

SplitScale cpu::emitSplitScale(Emitter &e, ScoringOpInterface op, unsigned kPackElements) {
  // The sign bits of all elements of a k-pack.
  unsigned bits = e.type.getWidth();
  auto constant = [&](const APInt &value) -> Value {
    return arith::ConstantOp::create(e.b, e.loc, e.b.getIntegerAttr(e.b.getIntegerType(bits), value));
  };
  APInt signs = APInt::getSplat(bits, APInt::getSignMask(bits / kPackElements));
  if (std::optional<double> scale = getConstantScale(op))
    return {*scale < 0 ? constant(signs) : Value(), e.scalar(std::abs(*scale))};
  Value isNegative = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, op.getScaleValue(), e.scalar(0.0));
  Value signMask = e.select(isNegative, constant(signs), constant(APInt::getZero(bits)));
  return {signMask, math::AbsFOp::create(e.b, e.loc, op.getScaleValue())};
}

/// `factor`, or the smallest normal number in place of a smaller one: zero would turn the −inf of a masked key into
/// NaN.
static Value nonzero(Emitter &e, Value factor) {
  double smallest = e.type.isF64() ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  Value isTiny = e.b.createOrFold<arith::CmpFOp>(e.loc, arith::CmpFPredicate::OLT, factor, e.scalar(smallest));
  return e.b.createOrFold<arith::SelectOp>(e.loc, isTiny, e.scalar(smallest), factor);
}

ScoreTile::ScoreTile(Emitter &e, AccumulateOp op, Value scores, Value scale, const Product &product, Exp2Error error,
                     Value keys)
    : e(e), op(op), scores(scores), weights(scores), product(product), error(error),
      bounds(cast<ScoringOpInterface>(op.getOperation())), keys(keys), toNatural(!op.getScore().empty() ? Value()
                                                                                 : !op.hasSoftmax() ? nonzero(e, scale)
                                                                                                    : scale),
      regions(e, op, toNatural, keys, cast<MemRefType>(scores.getType()).getDimSize(1), error) {
  if (!op.getMask().empty() && !bounds.isExact())
    panels.emplace(e, op, keys, cast<MemRefType>(scores.getType()).getDimSize(1));
  at = emitPosition(e.b, e.loc, op);
  if (!op.getScore().empty()) {
    regionScale = scale;
    toBase2 = e.scalar(std::numbers::log2e);
    return;
  }
  // Without a score region the scale is applied in the exponent, 2^(s · c − m), with one rounding of a small
  // difference.
  toBase2 = nonzero(e, e.b.createOrFold<arith::MulFOp>(e.loc, scale, e.scalar(std::numbers::log2e)));
  if (op.getNaturalMax())
    naturalScale = nonzero(e, scale);
}

void ScoreTile::setOrigin(Value head, Value query) {
  Position start = emitPosition(e.b, e.loc, op);
  at.head = e.add(start.head, head), at.query = e.add(start.query, query);
}

KeyRange ScoreTile::visibleKeysAbsolute(Value firstQuery, Value lastQuery) {
  return bounds.computeKeyRange(e.b, e.loc, at.batch, at.head, op.getQLen(), op.getKvLen(), firstQuery, lastQuery,
                                {at.key, e.add(at.key, keys)});
}

ColumnRuns ScoreTile::visibleKeys(Value firstRow, Value rows) {
  Value first = e.add(at.query, firstRow), last = e.sub(e.add(first, rows), e.index(1));
  KeyRange absolute = visibleKeysAbsolute(first, last);
  // Clamp to the tile: positions may be arbitrary.
  KeyRange columns = {e.max(e.sub(absolute.begin, at.key), e.index(0)), e.min(e.sub(absolute.end, at.key), keys)};
  return panels ? panels->find(e, at.head, first, last, columns) : columns;
}

Value ScoreTile::applyRegion(Region &region, Value score, Value query, Value column, Value active) {
  RegionArguments args = getRegionArguments(region, /*numbers=*/score ? 1 : 0);
  RegionVectorizer lanes(e.b, e.loc, e.lanes());
  if (score) {
    lanes.bindProduct(args.score, score, regionScale, e.target.hasFMA);
    if (error != Exp2Error::Unit)
      lanes.setLogistic([&](Value x) { return emitApproxLogistic(e, x); });
  }
  bindRegion(lanes, op, args, {at.batch, at.head, query, e.add(at.key, column)});
  lanes.setActive(active);
  if (::mlir::failed(lanes.run(region.front()))) {
    failed = true;
    return score ? score : active;
  }
  return lanes.getVector(cast<YieldOp>(region.front().getTerminator()).getOperand());
}

Value saccade::cpu::lanesBelow(Emitter &e, Value limit) {
  Value clamped = e.max(e.min(limit, e.index(e.lanes())), e.index(0));
  return vector::CreateMaskOp::create(e.b, e.loc, VectorType::get({e.lanes()}, e.b.getI1Type()), clamped);
}

/// The first sweep over `count` columns. With `within`, other columns are masked, and so are those that the mask region
/// rejects if the bounds are not exact. `isScored`: the score region has been applied. Returns the running maximum.
Value ScoreTile::scoreColumns(Value row, Value column, int64_t count, Value query, const KeyRange *within,
                              bool isScored, Value max) {
  isScored |= op.getScore().empty();
  for (int64_t offset = 0; offset < count; offset += e.lanes()) {
    Value first = e.add(column, offset);
    Value score = e.loadVector(scores, {row, first});
    Value active;
    if (within) {
      Value below = lanesBelow(e, e.sub(within->end, first));
      Value before = lanesBelow(e, e.sub(within->begin, first));
      Value allTrue =
          arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(cast<VectorType>(below.getType()), true));
      active = arith::AndIOp::create(e.b, e.loc, below, arith::XOrIOp::create(e.b, e.loc, before, allTrue));
      if (!bounds.isExact()) {
        Value visible = applyRegion(op.getMask(), /*score=*/nullptr, query, first, active);
        active = arith::AndIOp::create(e.b, e.loc, active, visible);
      }
    }
    if (!isScored)
      score = applyRegion(op.getScore(), score, query, first, active);
    if (active)
      score = e.select(active, score, e.splat(minusInfinity));
    if (active || !isScored)
      e.storeVector(score, scores, {row, first});
    max = e.maxf(score, max);
  }
  return max;
}

Value saccade::cpu::emitReduceVectors(Emitter &e, ArrayRef<Value> vectors, function_ref<Value(Value, Value)> combine) {
  SmallVector<Value> values(vectors);
  int64_t lanes = values.size();
  // Each round exchanges halves between pairs of vectors and combines them, which halves the number of vectors. With
  // SVE it interleaves them (emitTranspose).
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2) {
    if (e.target.hasSVE) {
      for (int64_t i = 0; i < distance; ++i) {
        auto [lower, upper] = emitInterleave(e, values[i], values[i + distance]);
        values[i] = combine(lower, upper);
      }
      continue;
    }
    SmallVector<int64_t> upper, lower;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      bool fromSecond = lane & distance;
      upper.push_back(fromSecond ? lanes + lane - distance : lane);
      lower.push_back(fromSecond ? lanes + lane : lane + distance);
    }
    for (int64_t i = 0; i < distance; ++i) {
      Value first = values[i], second = values[i + distance];
      values[i] = combine(vector::ShuffleOp::create(e.b, e.loc, first, second, upper),
                          vector::ShuffleOp::create(e.b, e.loc, first, second, lower));
    }
  }
  return values[0];
}

KeyRange ScoreTile::visibleKeysOfRow(Value tileRow, KeyRange group) {
  if (op.getMask().empty())
    return group;
  Value query = e.add(at.query, tileRow);
  KeyRange absolute = visibleKeysAbsolute(query, query);
  return {e.max(group.begin, e.sub(absolute.begin, at.key)), e.min(group.end, e.sub(absolute.end, at.key))};
}

bool ScoreTile::isShort() {
  // Math functions are excluded: they expand to polynomials.
  constexpr unsigned maxOps = 16;
  return op.getScore().empty() || (llvm::hasNItemsOrLess(op.getScore().front(), maxOps) &&
                                   llvm::none_of(op.getScore().front(), [](Operation &each) {
                                     return isa<math::MathDialect>(each.getDialect());
                                   }));
}

Value ScoreTile::score(Value dotProducts, Value tileRow, Value column) {
  return op.getScore().empty()
             ? dotProducts
             : applyRegion(op.getScore(), dotProducts, e.add(at.query, tileRow), column, /*active=*/nullptr);
}

KeyRange ScoreTile::fullyVisibleKeys(Value firstRow, Value rows, KeyRange group) {
  if (!bounds.isExact())
    return {group.end, group.end};
  // Bounds are affine in the query, so the first and the last row determine the common range.
  return visibleKeysOfRow(e.add(firstRow, e.sub(rows, e.index(1))), visibleKeysOfRow(firstRow, group));
}

Value ScoreTile::maskColumns(Value row, Value tileRow, Value column, int64_t count, const KeyRange *group,
                             bool isScored, Value max) {
  Value query = e.add(at.query, tileRow);
  if (!group)
    return scoreColumns(row, column, count, query, nullptr, isScored, max);
  KeyRange own = visibleKeysOfRow(tileRow, *group);
  return scoreColumns(row, column, count, query, &own, isScored, max);
}

KeyRange ScoreTile::columnsOf(KeyRange run) {
  return {e.roundDown(run.begin, 2 * e.lanes()), e.roundUp(run.end, e.lanes())};
}

void ScoreTile::scoreGroup(const GroupState &state, Value firstRow, Value rows, const ColumnRuns &group) {
  // The row loop is inside the column loop, so values that depend on the column only, such as lane masks, are computed
  // once per column. The mask region implies its bounds, so these are not applied per row.
  auto sweep = [&](Value begin, Value end, const KeyRange *within) {
    e.loop(begin, end, e.lanes(), [&](Value column) {
      e.loop(e.index(0), rows, 1, [&](Value row) {
        Value max = e.loadVector(state.laneValues, {row, e.index(0)});
        Value query = e.add(at.query, e.add(firstRow, row));
        max = scoreColumns(row, column, e.lanes(), query, within, /*isScored=*/false, max);
        e.storeVector(max, state.laneValues, {row, e.index(0)});
      });
    });
  };
  group.forEach(
      e, [&](KeyRange run) { sweep(run.begin, run.end, nullptr); },
      [&](KeyRange run) {
        auto [begin, end] = columnsOf(run);
        sweep(begin, end, &run);
      });
}

Value ScoreTile::scoreRow(Value row, Value tileRow, KeyRange group) {
  int64_t width = chunk(e);
  Value query = e.add(at.query, tileRow);
  Value begin = e.roundDown(group.begin, width), end = e.roundUp(group.end, width);

  // The columns visible to this row. If the bounds are exact, columns inside need no test.
  KeyRange own = visibleKeysOfRow(tileRow, group);
  Value fullBegin = end, fullEnd = end;
  if (bounds.isExact()) {
    Value first = e.min(e.roundUp(e.max(own.begin, e.index(0)), width), end);
    Value last = e.roundDown(e.max(own.end, e.index(0)), width);
    Value hasFull = e.isLess(first, last);
    fullBegin = e.select(hasFull, first, end);
    fullEnd = e.select(hasFull, last, end);
  }

  // The parts before and after the full columns share one loop body.
  Value max = e.splat(minusInfinity);
  max = e.loop(fullBegin, fullEnd, width, max, [&](Value column, ValueRange carried) -> SmallVector<Value> {
    return {scoreColumns(row, column, width, query, nullptr, /*isScored=*/false, carried[0])};
  })[0];
  return e.loop(e.index(0), e.index(2), 1, max, [&](Value part, ValueRange carried) {
    Value isFirst = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, part, e.index(0));
    Value from = e.select(isFirst, begin, fullEnd), to = e.select(isFirst, fullBegin, end);
    return e.loop(from, to, width, carried, [&](Value column, ValueRange inner) -> SmallVector<Value> {
      return {scoreColumns(row, column, width, query, &own, /*isScored=*/false, inner[0])};
    });
  })[0];
}

std::optional<double> ScoreTile::naturalPower() {
  APFloat scale(0.0);
  if (!naturalScale || !matchPattern(naturalScale, m_ConstantFloat(&scale)) || !scale.isNormal())
    return std::nullopt;
  int exponent = 0;
  double value = scale.convertToDouble();
  bool isPower = std::frexp(value, &exponent) == 0.5 && std::abs(exponent) < 64;
  return isPower ? std::optional(value) : std::nullopt;
}

Value ScoreTile::weighRow(const WeighedRow &row, const ColumnRuns &group) {
  // One sum per register of a panel: the assignment of columns to sums must not depend on the end of the range.
  SmallVector<Value> sums(2, e.splat(0.0));
  sums.append(regions.initialSums());
  sums = group.forEach(e, sums, [&](KeyRange run, ValueRange carried) {
    KeyRange columns = columnsOf(run);
    SmallVector<Value> next(carried);
    auto weigh = [&](KeyRange some, bool isBounded) { next = weighColumns(row, some, next, isBounded); };
    std::optional<KeyRange> bounded = regions.empty() ? std::nullopt : regions.boundedColumns(columns);
    if (!bounded) {
      weigh(columns, /*isBounded=*/true);
      return next;
    }
    // Whole chunks, so that the assignment of columns to sums does not change.
    int64_t width = chunk(e);
    Value begin = e.max(e.roundDown(e.max(bounded->begin, e.index(0)), width), columns.begin);
    Value end = e.min(e.roundUp(e.max(bounded->end, e.index(0)), width), columns.end);
    begin = e.min(begin, columns.end);
    end = e.max(begin, end);
    weigh({columns.begin, begin}, /*isBounded=*/false);
    weigh({begin, end}, /*isBounded=*/true);
    weigh({end, columns.end}, /*isBounded=*/false);
    return next;
  });
  regions.endRow(ArrayRef(sums).drop_front(2));
  failed |= regions.failed;
  return e.addf(sums[0], sums[1]);
}

SmallVector<Value> ScoreTile::weighColumns(const WeighedRow &row, KeyRange columns, ArrayRef<Value> before,
                                           bool isBounded) {
  SmallVector<Value> sums(before);
  bool areWeights = op.getPointwise();
  // Scores are not scaled if the scale is a power of two, which is exact: the shift is divided by it (`softmaxGroup`).
  std::optional<double> power = naturalPower();
  bool isNatural = op.getNaturalMax(), isScaled = isNatural && naturalScale && !power;
  Value factorToBase2 = isNatural ? e.splat(std::numbers::log2e * power.value_or(1)) : e.broadcast(toBase2);
  Value from = columns.begin, natural = isScaled ? e.broadcast(naturalScale) : Value();
  int64_t maxVectors = e.target.shapes.weightVectors;
  if (!regions.empty())
    maxVectors = std::max<int64_t>(product.traits.kPackElements, regions.preferredRegisters(maxVectors));
  for (int64_t vectors : {4, 2, 1}) {
    // With bf16 pairs, a single register would fill only half of a vector, so a step of two is kept.
    if (vectors > maxVectors || (vectors == 2 && maxVectors == 4 && product.traits.kPackElements == 1))
      continue;
    Value length = e.roundDown(e.sub(columns.end, from), vectors * e.lanes());
    Value to = e.add(from, length);
    sums = e.loop(from, to, vectors * e.lanes(), sums, [&](Value column, ValueRange carried) {
      SmallVector<Value> weights, given, next(carried);
      for (int64_t u = 0; u < vectors; ++u) {
        given.push_back(e.loadVector(scores, {row.row, e.add(column, u * e.lanes())}));
        if (areWeights)
          continue;
        // A natural maximum is subtracted from scores, which must be rounded as it was.
        Value score = e.subf(isScaled ? e.mulf(given[u], natural) : given[u], row.shift);
        Value exponent = isNatural ? e.mulf(score, factorToBase2) : e.fma(score, factorToBase2, row.offset);
        weights.push_back(emitExp2(e, exponent, error, smallestWeight));
        next[u % 2] = e.addf(next[u % 2], weights[u]);
      }
      if (areWeights)
        weights = given;
      if (row.largest)
        findArgmax(row, given, column);
      if (!regions.empty())
        regions.apply(given, weights, column, MutableArrayRef(next).drop_front(2), isBounded);
      product.storeWeights(e, weights, scores, row.row, column);
      if (vectors % 2)
        std::swap(next[0], next[1]);
      return next;
    });
    from = to;
  }
  return sums;
}

Value ScoreTile::updateRowMax(Value tileRow, Value tileMax) {
  Value largest = toNatural ? e.mulf(tileMax, toNatural) : tileMax, before = e.load(op.getRowMax(), tileRow);
  Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, largest, before);
  e.store(e.select(isLarger, largest, before), op.getRowMax(), tileRow);
  if (!op.getArgmax())
    return {};
  Value none = arith::ConstantIntOp::create(e.b, e.loc, std::numeric_limits<int64_t>::max(), 64);
  e.store(e.select(isLarger, none, e.load(op.getArgmax(), tileRow)), op.getArgmax(), tileRow);
  return e.select(isLarger, largest, e.scalar(std::numeric_limits<double>::quiet_NaN()));
}

void ScoreTile::findArgmax(const WeighedRow &row, ArrayRef<Value> given, Value column) {
  SmallVector<Value> isLargest = llvm::map_to_vector(given, [&](Value scores) -> Value {
    Value natural = toNatural ? e.mulf(scores, e.broadcast(toNatural)) : scores;
    return arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, natural, e.broadcast(row.largest));
  });
  Value any = isLargest[0];
  for (Value each : ArrayRef(isLargest).drop_front())
    any = arith::OrIOp::create(e.b, e.loc, any, each);
  // Registers with the maximum are rare, so all that are given have one test.
  e.ifElse(vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::OR, any), [&] {
    auto type = VectorType::get({e.lanes()}, e.b.getI32Type());
    auto splat = [&](int32_t value) -> Value {
      return arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(type, value));
    };
    SmallVector<int32_t> lanes = llvm::to_vector(llvm::seq<int32_t>(0, e.lanes()));
    Value first = splat(std::numeric_limits<int32_t>::max());
    Value lane = arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(type, ArrayRef(lanes)));
    for (int64_t i = isLargest.size() - 1; i >= 0; --i) {
      Value place = arith::AddIOp::create(e.b, e.loc, lane, splat(i * e.lanes()));
      first = e.select(isLargest[i], place, first);
    }
    first = vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::MINUI, first);
    first = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), first);
    Value key = e.add(at.key, e.add(column, first));
    Value least = arith::MinSIOp::create(e.b, e.loc, arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), key),
                                         e.load(op.getArgmax(), row.tileRow));
    e.store(least, op.getArgmax(), row.tileRow);
  });
}

//===----------------------------------------------------------------------===//
// Groups of rows
//===----------------------------------------------------------------------===//

GroupState::GroupState(Emitter &e, int64_t rows, bool keepsMaxima) {
  rows = llvm::alignTo(rows, e.lanes());
  laneValues = e.alloc({rows, e.lanes()});
  factors = e.alloc({rows});
  shifts = e.alloc({rows});
  offsets = e.alloc({rows});
  if (keepsMaxima)
    maxima = e.alloc({rows});
}

Value saccade::cpu::reduceRows(Emitter &e, Value laneValues, int64_t first, int64_t rows, double neutral,
                               function_ref<Value(Value, Value)> combine) {
  SmallVector<Value> vectors;
  for (int64_t row = first; row < first + e.lanes(); ++row)
    vectors.push_back(row < rows ? e.loadVector(laneValues, {e.index(row), e.index(0)}) : e.splat(neutral));
  return emitReduceVectors(e, vectors, combine);
}

/// Weights without a softmax: the maximum of a row becomes 0, and its accumulator and its sum are not rescaled.
void ScoreTile::normalizeGroup(const GroupState &state, Value firstRow, Value rows, const ColumnRuns &group,
                               function_ref<void(Value row)> onRow) {
  e.loop(e.index(0), rows, 1, [&](Value row) {
    onRow(row);
    Value tileRow = e.add(firstRow, row);
    e.store(e.scalar(0.0), op.getMax(), tileRow);
    e.store(e.scalar(1.0), state.factors, row);
    regions.beginRow(at, tileRow, /*factor=*/Value());
    weighRow({row, tileRow, Value(), Value(), Value()}, group);
  });
}

ColumnRuns ScoreTile::softmaxGroup(const GroupState &state, Value firstRow, Value rows, const ColumnRuns &group,
                                   function_ref<void(Value row)> onRow) {
  auto load = [&](Value of, int64_t first, Value mask) -> Value {
    return vector::MaskedLoadOp::create(e.b, e.loc, e.vectorType(), of, ValueRange{e.add(firstRow, first)}, mask,
                                        e.splat(0.0));
  };
  auto store = [&](Value value, Value to, int64_t first, Value mask) {
    vector::MaskedStoreOp::create(e.b, e.loc, to, ValueRange{e.add(firstRow, first)}, mask, value);
  };
  // Rows beyond the last query keep their initial state and are finalized like rows without keys.
  auto forLanesOfRows = [&](function_ref<void(int64_t first, Value mask)> body) {
    for (int64_t first = 0; first < groupRows(); first += e.lanes())
      body(first, lanesBelow(e, e.sub(rows, e.index(first))));
  };
  if (op.getPointwise()) {
    normalizeGroup(state, firstRow, rows, group, onRow);
    return group;
  }
  if (op.getStickBreaking())
    return breakSticks(state, firstRow, rows, group, onRow);
  forLanesOfRows([&](int64_t first, Value mask) {
    Value tileMax = reduceRows(e, state.laneValues, first, groupRows(), minusInfinity,
                               [&](Value x, Value y) { return e.maxf(x, y); });
    Value before = load(op.getMax(), first, mask);
    auto keep = [&](Value max, Value factor, Value shift, Value offset) {
      store(max, op.getMax(), first, mask);
      e.storeVector(factor, state.factors, e.index(first));
      e.storeVector(shift, state.shifts, e.index(first));
      e.storeVector(offset, state.offsets, e.index(first));
    };
    if (op.getNaturalMax()) {
      Value natural = naturalScale ? e.mulf(tileMax, e.broadcast(naturalScale)) : tileMax;
      NaturalMax max = emitNaturalMax(e, natural, before);
      std::optional<double> power = naturalPower();
      keep(max.max, max.factor, power ? e.mulf(max.base, e.splat(1 / *power)) : max.base, e.splat(0.0));
    } else {
      RowMax max = emitRowMax(e, tileMax, before, e.broadcast(toBase2), getMaxRange(op));
      Exponent exponent = emitExponent(e, max, tileMax, /*shiftsNewest=*/product.traits.kPackElements > 1);
      keep(max.max, max.factor, exponent.shift, exponent.offset);
    }
    if (state.maxima)
      e.storeVector(tileMax, state.maxima, e.index(first));
  });
  e.loop(e.index(0), rows, 1, [&](Value row) {
    onRow(row);
    Value tileRow = e.add(firstRow, row);
    Value largest = state.maxima ? updateRowMax(tileRow, e.load(state.maxima, row)) : Value();
    if (!regions.empty())
      regions.beginRow(at, tileRow, e.load(state.factors, row));
    Value shift = e.broadcast(e.load(state.shifts, row)), offset = e.broadcast(e.load(state.offsets, row));
    WeighedRow weighed{row, tileRow, shift, offset, largest};
    e.storeVector(weighRow(weighed, group), state.laneValues, {row, e.index(0)});
  });
  if (op.getFinal())
    return group;
  forLanesOfRows([&](int64_t first, Value mask) {
    Value total =
        reduceRows(e, state.laneValues, first, groupRows(), 0.0, [&](Value x, Value y) { return e.addf(x, y); });
    Value factor = e.loadVector(state.factors, e.index(first));
    store(e.addf(e.mulf(load(op.getSum(), first, mask), factor), total), op.getSum(), first, mask);
  });
  return group;
}
