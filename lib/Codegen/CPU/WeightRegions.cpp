//===- WeightRegions.cpp - Weight region and tallies --------------------------===//
//
// Tallies add to bins of the row's state. A bin that does not depend on the key is accumulated in a register. Bins that
// depend on nothing but the key are computed once for the tile; as long as successive registers have one bin, it is
// accumulated in a register as well. Otherwise run-time tests detect lanes that share one bin or have consecutive bins;
// other lanes are added one by one. Columns outside of the bounds of a tally's value are left out.
//
//===----------------------------------------------------------------------===//
#include "WeightRegions.h"
#include <limits>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

void saccade::cpu::bindRegion(RegionVectorizer &lanes, ScoringOpInterface op, const RegionArguments &args,
                              const Position &at) {
  lanes.bindUniform(args.batch, at.batch);
  lanes.bindUniform(args.head, at.head);
  lanes.bindUniform(args.query, at.query);
  lanes.bindContiguous(args.key, at.key);
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
}

/// The condition without which `value` is 0; null if it is not known.
static Value conditionOfValue(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  if (auto select = dyn_cast<arith::SelectOp>(op))
    return matchPattern(select.getFalseValue(), m_AnyZeroFloat()) ? select.getCondition() : Value();
  if (isa<arith::UIToFPOp>(op) && op->getOperand(0).getType().isInteger(1))
    return op->getOperand(0);
  return {};
}

static Value binOf(Region &tally) { return cast<YieldOp>(tally.front().getTerminator()).getOperands()[0]; }
static Value valueOf(Region &tally) { return cast<YieldOp>(tally.front().getTerminator()).getOperands()[1]; }

/// Whether `value` of a region depends on some of `sources`.
static bool dependsOn(Value value, Region &region, DenseSet<Value> sources) {
  for (Operation &each : region.front().without_terminator())
    if (llvm::any_of(each.getOperands(), [&](Value operand) { return sources.contains(operand); }))
      sources.insert_range(each.getResults());
  return sources.contains(value);
}

WeightRegions::WeightRegions(Emitter &e, AccumulateOp op, Value scale, Value keys, int64_t maxKeys, Exp2Error error)
    : e(e), op(op), scale(scale), error(error) {
  bool anyBins = false;
  for (auto [region, bins] : llvm::zip_equal(op.getTallyRegions(), op.getTallies())) {
    RegionArguments args = getRegionArguments(region, /*numbers=*/1);
    Tally &tally = tallies.emplace_back(Tally{&region, bins, Bin::OfPair, {}, {}});
    if (!dependsOn(binOf(region), region, {args.score, args.key}))
      tally.bin = Bin::OfRow;
    else if (!dependsOn(binOf(region), region, {args.score, args.head, args.query}))
      tally.bin = Bin::OfKey;
    if (Value condition = conditionOfValue(valueOf(region)))
      tally.bounds.emplace(cast<ScoringOpInterface>(op.getOperation()), args, condition);
    if (tally.bounds && tally.bounds->getConstraints().empty())
      tally.bounds.reset();
    anyBins |= tally.bin != Bin::OfRow;
  }
  if (!anyBins)
    return;
  amountScratch = e.alloc({e.lanes()});
  binScratch =
      memref::AllocOp::create(e.b, e.loc, MemRefType::get({e.lanes()}, e.b.getI64Type()), e.b.getI64IntegerAttr(64));
  for (Tally &tally : tallies)
    if (tally.bin == Bin::OfKey)
      tally.binOfColumns = emitBinOfColumns(*tally.region, keys, maxKeys);
}

Value WeightRegions::emitBinOfColumns(Region &region, Value keys, int64_t maxKeys) {
  int64_t registers = llvm::divideCeil(maxKeys, e.lanes());
  Value table = memref::AllocOp::create(e.b, e.loc, MemRefType::get({registers}, e.b.getIndexType()));
  at = emitPosition(e.b, e.loc, op);
  row = e.index(0);
  e.loop(e.index(0), keys, e.lanes(), [&](Value column) {
    RegionVectorizer lanes = evaluate(region, e.splat(0.0), column);
    if (failed)
      return;
    Value bins = lanes.getVector(binOf(region));
    Value first = vector::ExtractOp::create(e.b, e.loc, bins, ArrayRef<int64_t>{0});
    Value wide = vector::BroadcastOp::create(e.b, e.loc, bins.getType(), first);
    Value isSame = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, bins, wide);
    isSame = vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::AND, isSame);
    e.store(e.select(isSame, first, e.index(mixedBins)), table, e.div(column, e.lanes()));
  });
  return table;
}

static Value addLanes(Emitter &e, Value vector) {
  return vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::ADD, vector, arith::FastMathFlags::reassoc);
}

RegionVectorizer WeightRegions::evaluate(Region &region, Value scoreOrWeight, Value column) {
  RegionVectorizer lanes(e.b, e.loc, cast<VectorType>(scoreOrWeight.getType()).getNumElements());
  RegionArguments args = getRegionArguments(region, /*numbers=*/1);
  lanes.bindVector(args.score, scoreOrWeight);
  bindRegion(lanes, op, args, {at.batch, at.head, e.add(at.query, row), e.add(at.key, column)});
  if (::mlir::failed(lanes.run(region.front())))
    failed = true;
  return lanes;
}

void WeightRegions::beginRow(const Position &at, Value row, Value factor) {
  this->at = at;
  this->row = row;
  if (op.getFinal()) {
    Value total = e.load(op.getSum(), row);
    sum = e.broadcast(total);
    inverseSum = e.broadcast(arith::DivFOp::create(e.b, e.loc, e.scalar(1.0), total));
  }
  for (const Tally &tally : tallies) {
    Value bins = e.size(tally.bins, 1), vectors = e.roundDown(bins, e.lanes()), wide = e.broadcast(factor);
    e.loop(e.index(0), vectors, e.lanes(), [&](Value bin) {
      e.storeVector(e.mulf(e.loadVector(tally.bins, {row, bin}), wide), tally.bins, {row, bin});
    });
    e.loop(vectors, bins, 1,
           [&](Value bin) { e.store(e.mulf(e.load(tally.bins, {row, bin}), factor), tally.bins, {row, bin}); });
  }
}

std::optional<KeyRange> WeightRegions::boundedColumns(KeyRange columns) {
  std::optional<KeyRange> hull;
  Value query = e.add(at.query, row);
  for (const Tally &tally : tallies) {
    if (!tally.bounds)
      continue;
    KeyRange keys = {e.add(at.key, columns.begin), e.add(at.key, columns.end)};
    keys =
        tally.bounds->computeKeyRange(e.b, e.loc, at.batch, at.head, op.getQLen(), op.getKvLen(), query, query, keys);
    KeyRange own = {e.sub(keys.begin, at.key), e.sub(keys.end, at.key)};
    hull = hull ? KeyRange{e.min(hull->begin, own.begin), e.max(hull->end, own.end)} : own;
  }
  return hull;
}

SmallVector<Value> WeightRegions::initialSums() {
  SmallVector<Value> sums;
  for (const Tally &tally : tallies) {
    if (tally.carried() > 0)
      sums.push_back(e.splat(0.0));
    if (tally.bin == Bin::OfKey)
      sums.push_back(e.index(mixedBins));
  }
  return sums;
}

int64_t WeightRegions::preferredRegisters(int64_t preferred) {
  constexpr unsigned maxOps = 8;
  auto isShort = [](Region &region) {
    return llvm::hasNItemsOrLess(region.front(), maxOps) &&
           llvm::none_of(region.front(), [](Operation &each) { return isa<math::MathDialect>(each.getDialect()); });
  };
  if (op.getWeight().empty())
    return llvm::all_of(tallies, [&](Tally &tally) { return tally.bin == Bin::OfRow && isShort(*tally.region); })
               ? preferred
               : 1;
  Value key = getRegionArguments(op.getWeight(), /*numbers=*/1).key;
  int64_t group = RegionVectorizer::largestGroup(op.getWeight().front(), [&](Value value) { return value == key; });
  if (op.getPointwise() && group == 1) // computed one by one
    return preferred;
  return std::min<int64_t>(group, 4);
}

/// The elements of all vectors, whose number is a power of two.
static Value concatenate(Emitter &e, ArrayRef<Value> vectors) {
  if (vectors.size() == 1)
    return vectors[0];
  Value first = concatenate(e, vectors.take_front(vectors.size() / 2));
  Value second = concatenate(e, vectors.drop_front(vectors.size() / 2));
  int64_t elements = 2 * cast<VectorType>(first.getType()).getNumElements();
  return vector::ShuffleOp::create(e.b, e.loc, first, second, llvm::to_vector(llvm::seq<int64_t>(0, elements)));
}

void WeightRegions::weigh(ArrayRef<Value> scores, MutableArrayRef<Value> weights, Value column) {
  SmallVector<Value> given(weights);
  if (op.getFinal())
    for (Value &weight : given)
      weight = e.mulf(weight, inverseSum);
  Value joined = concatenate(e, given);
  RegionVectorizer lanes = evaluate(op.getWeight(), joined, column);
  if (failed)
    return;
  Value factors = lanes.getVector(cast<YieldOp>(op.getWeight().front().getTerminator()).getOperand());
  // Weights of masked keys are 0, whatever the region computes for them.
  Value minusInfinity = e.splat(-std::numeric_limits<double>::infinity());
  for (auto [i, weight] : llvm::enumerate(weights)) {
    Value isVisible = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, scores[i], minusInfinity);
    int64_t first = int64_t(i) * e.lanes();
    Value own = weights.size() == 1
                    ? factors
                    : vector::ShuffleOp::create(e.b, e.loc, factors, factors,
                                                llvm::to_vector(llvm::seq<int64_t>(first, first + e.lanes())))
                          .getResult();
    weight = e.select(isVisible, op.getFinal() ? e.mulf(own, sum) : own, e.splat(0.0));
  }
}

/// Whether a normalizer is the sigmoid of the score, or of its sum with a constant: it is 0 for −inf.
static bool isSigmoid(Region &normalizer) {
  Operation *op = cast<YieldOp>(normalizer.front().getTerminator()).getOperand().getDefiningOp();
  Value score = normalizer.getArgument(0), argument = op ? RegionVectorizer::matchSigmoid(*op) : Value();
  if (!argument || argument == score)
    return bool(argument);
  Operation *sum = argument.getDefiningOp();
  APFloat constant(0.0);
  return isa_and_present<arith::AddFOp, arith::SubFOp>(sum) && sum->getOperand(0) == score &&
         matchPattern(sum->getOperand(1), m_ConstantFloat(&constant)) && constant.isFinite();
}

void WeightRegions::normalize(MutableArrayRef<Value> scores, Value column) {
  // Registers are joined only for a part that is computed for groups of keys, as the bits of dropout are.
  Value key = getRegionArguments(op.getWeight(), /*numbers=*/1).key;
  bool isGrouped = RegionVectorizer::largestGroup(op.getWeight().front(), [&](Value x) { return x == key; }) > 1;
  size_t step = isGrouped ? scores.size() : 1;
  Value factor = scale ? scale : e.scalar(1.0), minusInfinity = e.splat(-std::numeric_limits<double>::infinity());
  for (size_t first = 0; first < scores.size(); first += step) {
    MutableArrayRef<Value> part = scores.slice(first, step);
    Value joined = concatenate(e, part);
    RegionVectorizer lanes(e.b, e.loc, cast<VectorType>(joined.getType()).getNumElements());
    RegionArguments args = getRegionArguments(op.getWeight(), /*numbers=*/1);
    lanes.bindProduct(args.score, joined, factor, e.target.hasFMA);
    if (step == 1)
      lanes.setSigmoid([&](Value x) { return emitLogistic(e, x, error); });
    Value at = e.add(column, int64_t(first) * e.lanes());
    bindRegion(lanes, op, args, {this->at.batch, this->at.head, e.add(this->at.query, row), e.add(this->at.key, at)});
    if (::mlir::failed(lanes.run(op.getWeight().front()))) {
      failed = true;
      return;
    }
    Value weights = lanes.getVector(cast<YieldOp>(op.getWeight().front().getTerminator()).getOperand());
    if (step == 1 && e.type.isF32() && isSigmoid(op.getWeight())) {
      part[0] = weights;
      continue;
    }
    for (auto [i, score] : llvm::enumerate(part)) {
      Value isVisible = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, score, minusInfinity);
      int64_t begin = int64_t(i) * e.lanes();
      Value own = step == 1 ? weights
                            : vector::ShuffleOp::create(e.b, e.loc, weights, weights,
                                                        llvm::to_vector(llvm::seq<int64_t>(begin, begin + e.lanes())))
                                  .getResult();
      score = e.select(isVisible, own, e.splat(0.0));
    }
  }
}

void WeightRegions::addTallies(Value scores, Value weights, Value column, MutableArrayRef<Value> sums, bool isBounded) {
  Value zero = e.splat(0.0), visibleScores = scores;
  Value lowest = e.splat(e.type.isF64() ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest());
  if (!tallies.empty() && scale)
    visibleScores = e.mulf(scores, e.broadcast(scale));
  for (const Tally &tally : tallies) {
    MutableArrayRef<Value> own = sums.take_front(tally.carried());
    sums = sums.drop_front(tally.carried());
    if (tally.bounds && !isBounded)
      continue;
    if (tally.bin == Bin::OfRow && valueOf(*tally.region) == getRegionArguments(*tally.region, /*numbers=*/1).score) {
      // A finite score in place of −inf makes the product of a masked key 0.
      own[0] = e.fma(weights, e.maxf(visibleScores, lowest), own[0]);
      continue;
    }
    RegionVectorizer lanes = evaluate(*tally.region, visibleScores, column);
    if (failed)
      return;
    Value isNothing = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, weights, zero);
    Value amounts = e.select(isNothing, zero, e.mulf(weights, lanes.getVector(valueOf(*tally.region))));
    if (tally.bin == Bin::OfRow)
      own[0] = e.addf(own[0], amounts);
    else if (tally.bin == Bin::OfKey)
      addToBinOfKey(tally, amounts, column, own);
    else
      addToBins(tally, lanes, binOf(*tally.region), amounts);
  }
}

void WeightRegions::addToBinOfKey(const Tally &tally, Value amounts, Value column, MutableArrayRef<Value> sums) {
  Value here = e.load(tally.binOfColumns, e.div(column, e.lanes())), before = sums[1];
  auto isEqual = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, x, y);
  };
  Value isSame = isEqual(here, before), sum = sums[0];
  // The sum of keys with mixed bins is never added: `mixedBins` is no bin.
  e.ifElse(isSame, [] {}, [&] { addToBin(tally, before, addLanes(e, sum)); });
  auto addMixed = [&] {
    RegionVectorizer lanes = evaluate(*tally.region, e.splat(0.0), column); // bins are computed for these keys only
    if (!failed)
      addToBins(tally, lanes, binOf(*tally.region), amounts);
  };
  e.ifElse(isEqual(here, e.index(mixedBins)), addMixed);
  sums[0] = e.select(isSame, e.addf(sum, amounts), amounts);
  sums[1] = here;
}

void WeightRegions::apply(ArrayRef<Value> scores, MutableArrayRef<Value> weights, Value column,
                          MutableArrayRef<Value> sums, bool isBounded) {
  if (op.getPointwise())
    return normalize(weights, column);
  for (auto [i, weight] : llvm::enumerate(weights))
    addTallies(scores[i], weight, e.add(column, int64_t(i) * e.lanes()), sums, isBounded);
  if (!op.getWeight().empty() && !failed)
    weigh(scores, weights, column);
}

void WeightRegions::endRow(ValueRange sums) {
  for (const Tally &tally : tallies) {
    ValueRange own = sums.take_front(tally.carried());
    sums = sums.drop_front(tally.carried());
    if (tally.bin == Bin::OfKey)
      addToBin(tally, own[1], addLanes(e, own[0]));
    if (tally.bin != Bin::OfRow)
      continue;
    // Only the bin is used, which depends on neither score nor key.
    RegionVectorizer lanes = evaluate(*tally.region, e.splat(0.0), e.index(0));
    if (failed)
      return;
    addToBin(tally, lanes.getUniform(binOf(*tally.region)), addLanes(e, own[0]));
  }
}

void WeightRegions::addToBin(const Tally &tally, Value bin, Value amount) {
  auto add = [&] { e.store(e.addf(e.load(tally.bins, {row, bin}), amount), tally.bins, {row, bin}); };
  Value exists = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::ult, bin, e.size(tally.bins, 1));
  e.ifElse(exists, add);
}

void WeightRegions::addToRun(const Tally &tally, Value first, int64_t step, Value amounts) {
  Value begin = first;
  if (step < 0) {
    begin = e.sub(first, e.index(e.lanes() - 1));
    SmallVector<int64_t> reversed = llvm::to_vector(llvm::reverse(llvm::seq<int64_t>(0, e.lanes())));
    amounts = vector::ShuffleOp::create(e.b, e.loc, amounts, amounts, reversed);
  }
  e.storeVector(e.addf(e.loadVector(tally.bins, {row, begin}), amounts), tally.bins, {row, begin});
}

void WeightRegions::addOneByOne(const Tally &tally, Value bins, Value amounts) {
  vector::StoreOp::create(e.b, e.loc, bins, binScratch, ValueRange{e.index(0)});
  e.storeVector(amounts, amountScratch, e.index(0));
  e.loop(e.index(0), e.index(e.lanes()), 1, [&](Value lane) {
    Value bin = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), e.load(binScratch, lane));
    addToBin(tally, bin, e.load(amountScratch, lane));
  });
}

void WeightRegions::addToBins(const Tally &tally, RegionVectorizer &lanes, Value bin, Value amounts) {
  auto type = VectorType::get({e.lanes()}, e.b.getI64Type());
  Value bins = arith::IndexCastOp::create(e.b, e.loc, type, lanes.getVector(bin));
  Value firstBin = vector::ExtractOp::create(e.b, e.loc, bins, ArrayRef<int64_t>{0});
  Value first = arith::IndexCastOp::create(e.b, e.loc, e.b.getIndexType(), firstBin);
  Value distances = arith::SubIOp::create(e.b, e.loc, bins, vector::BroadcastOp::create(e.b, e.loc, type, firstBin));
  auto isRun = [&](int64_t step) -> Value {
    SmallVector<int64_t> expected =
        llvm::map_to_vector(llvm::seq<int64_t>(0, e.lanes()), [&](int64_t lane) { return lane * step; });
    Value run = arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(type, ArrayRef<int64_t>(expected)));
    Value isSame = arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, distances, run);
    return vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::AND, isSame);
  };
  // All bins of a run are in bounds if the first and the last one are.
  auto isInside = [&](int64_t step) -> Value {
    Value count = e.size(tally.bins, 1), last = e.add(first, step * (int64_t(e.lanes()) - 1));
    auto exists = [&](Value bin) -> Value {
      return arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult, bin, count);
    };
    return arith::AndIOp::create(e.b, e.loc, exists(first), exists(last));
  };
  auto isWholeRun = [&](int64_t step) -> Value {
    return arith::AndIOp::create(e.b, e.loc, isRun(step), isInside(step));
  };
  e.ifElse(
      isRun(0), [&] { addToBin(tally, first, addLanes(e, amounts)); },
      [&] {
        e.ifElse(
            isWholeRun(1), [&] { addToRun(tally, first, 1, amounts); },
            [&] {
              e.ifElse(
                  isWholeRun(-1), [&] { addToRun(tally, first, -1, amounts); },
                  [&] { addOneByOne(tally, bins, amounts); });
            });
      });
}
