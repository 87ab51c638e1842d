//===- WeightRegions.cpp - Weight region and tallies --------------------------===//
//
// Tallies add to bins of the row's state. A bin that does not depend on the key is accumulated in a register. Otherwise
// run-time tests detect lanes that share one bin or have consecutive bins; other lanes are added one by one.
//
//===----------------------------------------------------------------------===//
#include "WeightRegions.h"
#include <limits>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

void saccade::cpu::bindRegion(RegionVectorizer &lanes, ScoringOpInterface op, const RegionArguments &args, Value batch,
                              Value head, Value query, Value key) {
  lanes.bindUniform(args.batch, batch);
  lanes.bindUniform(args.head, head);
  lanes.bindUniform(args.query, query);
  lanes.bindContiguous(args.key, key);
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

/// Whether the bin that a tally yields depends neither on the score nor on the key.
static bool hasOneBin(Region &tally) {
  Block &block = tally.front();
  RegionArguments args = getRegionArguments(tally, /*numbers=*/1);
  DenseSet<Value> readers = {args.score, args.key};
  for (Operation &each : block.without_terminator())
    if (llvm::any_of(each.getOperands(), [&](Value operand) { return readers.contains(operand); }))
      readers.insert_range(each.getResults());
  return !readers.contains(block.getTerminator()->getOperand(0));
}

WeightRegions::WeightRegions(Emitter &e, AccumulateOp op, Value scale) : e(e), op(op), scale(scale) {
  bool anyBins = false;
  for (auto [region, bins] : llvm::zip_equal(op.getTallyRegions(), op.getTallies())) {
    tallies.push_back({&region, bins, hasOneBin(region)});
    anyBins |= !tallies.back().isOneBin;
  }
  if (!anyBins)
    return;
  amountScratch = e.alloc({e.lanes()});
  binScratch =
      memref::AllocOp::create(e.b, e.loc, MemRefType::get({e.lanes()}, e.b.getI64Type()), e.b.getI64IntegerAttr(64));
}

RegionVectorizer WeightRegions::evaluate(Region &region, Value scoreOrWeight, Value column) {
  RegionVectorizer lanes(e.b, e.loc, cast<VectorType>(scoreOrWeight.getType()).getNumElements());
  RegionArguments args = getRegionArguments(region, /*numbers=*/1);
  lanes.bindVector(args.score, scoreOrWeight);
  bindRegion(lanes, op, args, at[0], at[1], e.add(at[2], row), e.add(at[3], column));
  if (::mlir::failed(lanes.run(region.front())))
    failed = true;
  return lanes;
}

void WeightRegions::beginRow(ArrayRef<Value> at, Value row, Value factor) {
  llvm::copy(at, this->at);
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

SmallVector<Value> WeightRegions::initialSums() {
  return SmallVector<Value>(llvm::count_if(tallies, [](const Tally &tally) { return tally.isOneBin; }), e.splat(0.0));
}

int64_t WeightRegions::preferredRegisters() {
  if (op.getWeight().empty())
    return 1;
  Value key = getRegionArguments(op.getWeight(), /*numbers=*/1).key;
  int64_t group = RegionVectorizer::largestGroup(op.getWeight().front(), [&](Value value) { return value == key; });
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

void WeightRegions::addTallies(Value scores, Value weights, Value column, MutableArrayRef<Value> sums) {
  Value zero = e.splat(0.0), visibleScores = scores;
  if (!tallies.empty() && scale)
    visibleScores = e.mulf(scores, e.broadcast(scale));
  for (const Tally &tally : tallies) {
    RegionVectorizer lanes = evaluate(*tally.region, visibleScores, column);
    if (failed)
      return;
    auto yield = cast<YieldOp>(tally.region->front().getTerminator());
    Value isNothing = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, weights, zero);
    Value amounts = e.select(isNothing, zero, e.mulf(weights, lanes.getVector(yield.getOperands()[1])));
    if (tally.isOneBin) {
      sums.front() = e.addf(sums.front(), amounts);
      sums = sums.drop_front();
    } else {
      addToBins(tally, lanes, yield.getOperands()[0], amounts);
    }
  }
}

void WeightRegions::apply(ArrayRef<Value> scores, MutableArrayRef<Value> weights, Value column,
                          MutableArrayRef<Value> sums) {
  for (auto [i, weight] : llvm::enumerate(weights))
    addTallies(scores[i], weight, e.add(column, int64_t(i) * e.lanes()), sums);
  if (!op.getWeight().empty() && !failed)
    weigh(scores, weights, column);
}

static Value addLanes(Emitter &e, Value vector) {
  return vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::ADD, vector, arith::FastMathFlags::reassoc);
}

void WeightRegions::endRow(ValueRange sums) {
  for (const Tally &tally : tallies) {
    if (!tally.isOneBin)
      continue;
    // Only the bin is used, which depends on neither score nor key.
    RegionVectorizer lanes = evaluate(*tally.region, e.splat(0.0), e.index(0));
    if (failed)
      return;
    Value bin = lanes.getUniform(cast<YieldOp>(tally.region->front().getTerminator()).getOperands()[0]);
    addToBin(tally, bin, addLanes(e, sums.front()));
    sums = sums.drop_front();
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
