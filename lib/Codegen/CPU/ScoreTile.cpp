//===- ScoreTile.cpp - The scores of a few queries, made into weights ---------===//
//
// Two sweeps over a row that lies in the first-level cache: regions, mask and maximum, then
// exponential and sum. Columns that every row sees whole take a path without any mask.
//
//===----------------------------------------------------------------------===//
#include "ScoreTile.h"
#include "VectorizeRegion.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <limits>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

static constexpr double minusInfinity = -std::numeric_limits<double>::infinity();

ScoreTile::ScoreTile(Emitter &e, AccumulateOp op, Value scores, Value scale, unsigned step, Exp2Error error)
    : e(e), op(op), scores(scores), step(step), error(error), bounds(cast<ScoringOpInterface>(op.getOperation())) {
  for (unsigned i = 0; i < 4; ++i)
    at[i] = op.getAt().empty() ? e.index(0) : Value(op.getAt()[i]);
  if (!op.getScore().empty()) {
    regionScale = e.broadcast(scale);
    toBase2 = e.scalar(std::numbers::log2e);
    return;
  }
  // Without a region the scale is left to the exponent, 2^(s · c − m): one rounding, of a small difference. It must be no
  // zero there, which would turn the −inf of a masked key into NaN; the smallest normal number does as well.
  double smallest = e.type.isF64() ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  Value factor = e.b.createOrFold<arith::MulFOp>(e.loc, scale, e.scalar(std::numbers::log2e));
  Value isTiny = e.b.createOrFold<arith::CmpFOp>(e.loc, arith::CmpFPredicate::OLT, factor, e.scalar(smallest));
  toBase2 = e.select(isTiny, e.scalar(smallest), factor);
}

KeyRange ScoreTile::reachAbsolute(Value firstQuery, Value lastQuery, Value keys) {
  KeyRange all = {at[3], e.add(at[3], keys)};
  if (op.getMask().empty())
    return all;
  RegionArguments args = getRegionArguments(op.getMask(), /*isScore=*/false);
  IRMapping values;
  values.map(args.batch, at[0]);
  values.map(args.head, at[1]);
  values.map(args.captures, op.getCaptures());
  return bounds.reach(e.b, e.loc, values, op.getQLen(), op.getKvLen(), firstQuery, lastQuery, all);
}

KeyRange ScoreTile::reach(Value firstRow, Value rows, Value keys) {
  Value first = e.add(at[2], firstRow), last = e.sub(e.add(first, rows), e.index(1));
  KeyRange absolute = reachAbsolute(first, last, keys);
  // Whatever the positions are, nothing outside of the tile is touched.
  return {e.max(e.sub(absolute.begin, at[3]), e.index(0)), e.min(e.sub(absolute.end, at[3]), keys)};
}

Value ScoreTile::applyRegion(Region &region, Value score, Value query, Value column, Value active) {
  RegionArguments args = getRegionArguments(region, /*isScore=*/score != nullptr);
  RegionVectorizer lanes(e.b, e.loc, e.lanes());
  if (score)
    lanes.bindVector(args.score, score);
  lanes.bindUniform(args.batch, at[0]);
  lanes.bindUniform(args.head, at[1]);
  lanes.bindUniform(args.query, query);
  lanes.bindContiguous(args.key, e.add(at[3], column));
  for (auto [arg, capture] : llvm::zip_equal(args.captures, op.getCaptures())) {
    if (isa<MemRefType>(capture.getType()))
      lanes.bindBuffer(arg, capture);
    else
      lanes.bindUniform(arg, capture);
  }
  if (op.getQLen())
    lanes.bindLength(Role::Query, op.getQLen());
  if (op.getKvLen())
    lanes.bindLength(Role::Key, op.getKvLen());
  lanes.setActive(active);
  if (::mlir::failed(lanes.run(region.front()))) {
    failed = true;
    return score ? score : active;
  }
  return lanes.getVector(cast<YieldOp>(region.front().getTerminator()).getOperand());
}

/// lane < limit for each lane, with a limit of any size.
static Value lanesBelow(Emitter &e, Value limit) {
  Value clamped = e.max(e.min(limit, e.index(e.lanes())), e.index(0));
  return vector::CreateMaskOp::create(e.b, e.loc, VectorType::get({e.lanes()}, e.b.getI1Type()), clamped);
}

/// One chunk of the first sweep. With `within`, only the columns in it count and the mask region is asked where it
/// says more than the bounds. Returns the running maximum.
Value ScoreTile::scoreChunk(Value row, Value column, Value query, KeyRange *within, Value max) {
  for (int64_t offset = 0; offset < chunk(e); offset += e.lanes()) {
    Value first = e.add(column, offset);
    Value score = e.loadVector(scores, {row, first});
    Value active;
    if (within) {
      Value below = lanesBelow(e, e.sub(within->end, first));
      Value before = lanesBelow(e, e.sub(within->begin, first));
      Value allTrue = arith::ConstantOp::create(
          e.b, e.loc, DenseElementsAttr::get(cast<VectorType>(below.getType()), true));
      active = arith::AndIOp::create(e.b, e.loc, below, arith::XOrIOp::create(e.b, e.loc, before, allTrue));
      if (!bounds.isExact()) {
        Value visible = applyRegion(op.getMask(), /*score=*/nullptr, query, first, active);
        active = arith::AndIOp::create(e.b, e.loc, active, visible);
      }
    }
    if (!op.getScore().empty())
      score = applyRegion(op.getScore(), e.mulf(score, regionScale), query, first, active);
    if (active)
      score = e.select(active, score, e.splat(minusInfinity));
    if (active || !op.getScore().empty())
      e.storeVector(score, scores, {row, first});
    max = e.maxf(score, max);
  }
  return max;
}

/// The largest element, in all lanes.
static Value maxOfLanes(Emitter &e, Value vector) {
  for (unsigned distance = e.lanes() / 2; distance > 0; distance /= 2) {
    SmallVector<int64_t> mask;
    for (unsigned lane = 0; lane < e.lanes(); ++lane)
      mask.push_back(lane ^ distance);
    vector = e.maxf(vector, vector::ShuffleOp::create(e.b, e.loc, vector, vector, mask));
  }
  return vector;
}

/// Leaves the weights of a chunk in the place of its scores, or, as pairs, in half of it further left: there all scores
/// have been read.
void ScoreTile::storeWeights(ArrayRef<Value> weights, Value row, Value column) {
  if (step == 1) {
    for (auto [i, weight] : llvm::enumerate(weights))
      e.storeVector(weight, scores, {row, e.add(column, i * e.lanes())});
    return;
  }
  // One instruction rounds two registers; the truncation of a vector of twice the size would be three.
  auto pairs = VectorType::get({2 * e.lanes()}, e.b.getBF16Type());
  for (unsigned i = 0; i < weights.size(); i += 2) {
    Value rounded =
        LLVM::CallIntrinsicOp::create(e.b, e.loc, pairs, e.b.getStringAttr("llvm.x86.avx512bf16.cvtne2ps2bf16.512"),
                                      ValueRange{weights[i + 1], weights[i]})
            .getResult(0);
    Value words = vector::BitCastOp::create(e.b, e.loc, e.vectorType(), rounded);
    e.storeVector(words, scores, {row, e.add(e.div(column, step), i / 2 * e.lanes())});
  }
}

Value ScoreTile::softmaxRow(Value row, Value tileRow, KeyRange group, Value keys) {
  int64_t width = chunk(e);
  Value query = e.add(at[2], tileRow);
  Value begin = e.roundDown(group.begin, width), end = e.roundUp(group.end, width);

  // What this very row sees; where the constraints are the whole mask, columns inside need no test.
  KeyRange own = group;
  if (!op.getMask().empty()) {
    KeyRange absolute = reachAbsolute(query, query, keys);
    own = {e.max(group.begin, e.sub(absolute.begin, at[3])), e.min(group.end, e.sub(absolute.end, at[3]))};
  }
  Value fullBegin = end, fullEnd = end;
  if (bounds.isExact()) {
    Value first = e.min(e.roundUp(e.max(own.begin, e.index(0)), width), end);
    Value last = e.roundDown(e.max(own.end, e.index(0)), width);
    Value hasFull = e.isLess(first, last);
    fullBegin = e.select(hasFull, first, end);
    fullEnd = e.select(hasFull, last, end);
  }

  // First sweep. The parts before and after the full columns share one loop body.
  Value max = e.splat(minusInfinity);
  max = e.loop(fullBegin, fullEnd, width, max, [&](Value column, ValueRange carried) -> SmallVector<Value> {
    return {scoreChunk(row, column, query, nullptr, carried[0])};
  })[0];
  max = e.loop(e.index(0), e.index(2), 1, max, [&](Value part, ValueRange carried) {
    Value isFirst = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, part, e.index(0));
    Value from = e.select(isFirst, begin, fullEnd), to = e.select(isFirst, fullBegin, end);
    return e.loop(from, to, width, carried, [&](Value column, ValueRange inner) -> SmallVector<Value> {
      return {scoreChunk(row, column, query, &own, inner[0])};
    });
  })[0];

  Value oldMax = e.load(op.getMax(), tileRow);
  Value factorToBase2 = e.broadcast(toBase2);
  Value tileMax = maxOfLanes(e, max);
  Value scaledMax = e.mulf(tileMax, factorToBase2);
  Value newMax = e.maxf(scaledMax, e.broadcast(oldMax));
  Value base = e.zeroIfMinusInfinity(newMax);
  Value factor = emitExp2(e, e.subf(e.broadcast(oldMax), base));

  // Second sweep: weight = 2^((s − shift) · c + rest), with shift 0 and rest −base. The rounding of the base cancels:
  // weights and sum are taken relative to the same one. Only a base so large that its rounding is a factor of two or
  // more is taken off before the product. Weights that are rounded to bf16 do not cancel with their sum; so that the
  // largest one is exactly 1, they are taken relative to the maximum itself in the tile that has it.
  Value isShifted = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, math::AbsFOp::create(e.b, e.loc, base),
                                          e.splat(e.type.isF64() ? 0x1p53 : 0x1p24));
  Value zero = e.splat(0.0);
  Value isNewest = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGE, scaledMax, newMax);
  if (step > 1)
    isShifted = arith::OrIOp::create(e.b, e.loc, isShifted, isNewest);
  Value shift = e.select(isShifted, e.zeroIfMinusInfinity(tileMax), zero);
  Value distance = e.select(isNewest, zero, e.subf(scaledMax, newMax));
  Value rest = e.select(isShifted, distance, arith::NegFOp::create(e.b, e.loc, base));
  SmallVector<Value> sums(chunk(e) / e.lanes(), e.splat(0.0));
  sums = e.loop(begin, end, width, sums, [&](Value column, ValueRange carried) {
    SmallVector<Value> weights, next(carried);
    for (unsigned u = 0; u < next.size(); ++u) {
      Value score = e.subf(e.loadVector(scores, {row, e.add(column, u * e.lanes())}), shift);
      weights.push_back(emitExp2(e, e.fma(score, factorToBase2, rest), error));
      next[u] = e.addf(next[u], weights[u]);
    }
    storeWeights(weights, row, column);
    return next;
  });
  Value total = e.addf(e.addf(sums[0], sums[1]), e.addf(sums[2], sums[3]));
  total = vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::ADD, total, arith::FastMathFlags::reassoc);
  Value scalarFactor = vector::ExtractOp::create(e.b, e.loc, factor, ArrayRef<int64_t>{0});
  Value oldSum = e.load(op.getSum(), tileRow);
  e.store(e.addf(e.mulf(oldSum, scalarFactor), total), op.getSum(), tileRow);
  e.store(vector::ExtractOp::create(e.b, e.loc, newMax, ArrayRef<int64_t>{0}), op.getMax(), tileRow);
  return scalarFactor;
}
