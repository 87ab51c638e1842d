//===- AttentionSteps.cpp - The steps of attention on one sequence ------------===//
//
// The state of the online softmax has a part for each result. A feature of the state is added here, and all tilings
// have it.
//
//===----------------------------------------------------------------------===//
#include "AttentionSteps.h"
#include "KeyTile.h"
#include "Sequences.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "llvm/Support/MathExtras.h"
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Accumulator columns are rounded up to the widest register (16 lanes), so that no partial register is needed.
static constexpr int64_t columnBlock = 16;

static constexpr double minusInfinity = -std::numeric_limits<double>::infinity();

/// `dims` without the dimensions `dropped`.
static DimsAttr dimsWithout(DimsAttr dims, ArrayRef<Dim> dropped) {
  SmallVector<Dim> names =
      llvm::filter_to_vector(dims.getDims(), [&](Dim d) { return !llvm::is_contained(dropped, d); });
  return DimsAttr::get(dims.getContext(), ArrayRef<Dim>(names));
}

DimsAttr saccade::tileDims(DimsAttr dims) { return dimsWithout(dims, {Dim::Batch, Dim::Head}); }

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

void Slice::add(OpFoldResult offset, OpFoldResult size, OpFoldResult stride, bool isDropped) {
  offsets.push_back(offset);
  sizes.push_back(size);
  strides.push_back(stride);
  dropped.push_back(isDropped);
}

void Slice::addPosition(OpFoldResult position) {
  OpFoldResult one = IntegerAttr::get(IndexType::get(position.getContext()), 1);
  add(position, one, one, /*isDropped=*/true);
}

Value Slice::extract(OpBuilder &b, Location loc, Value from) const {
  SmallVector<int64_t> shape;
  for (auto [i, size] : llvm::enumerate(sizes))
    if (!dropped.test(i))
      shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  auto result = RankedTensorType::get(shape, getElementTypeOrSelf(from));
  return tensor::ExtractSliceOp::create(b, loc, result, from, offsets, sizes, strides);
}

Value Slice::insert(OpBuilder &b, Location loc, Value value, Value into) const {
  return tensor::InsertSliceOp::create(b, loc, value, into, offsets, sizes, strides);
}

//===----------------------------------------------------------------------===//
// The sequence
//===----------------------------------------------------------------------===//

AttentionSteps::AttentionSteps(OpBuilder &b, AttentionOp op) : IndexEmitter(b, op.getLoc()), op(op) {
  type = cast<ScoringOpInterface>(op.getOperation()).getScoreType();
  int64_t valueDepth = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  columns = llvm::alignTo(std::max<int64_t>(valueDepth, 1), columnBlock);
  at = emitPosition(b, loc, op);
  queries = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Seq);
  keys = sizeOf(op.getKey(), op.getKeyDims(), Dim::Seq);
  queryEnd = emitEnd(*this, op.getQLen(), index(0), at.query, queries);
  keyEnd = emitEnd(*this, op.getKvLen(), index(0), at.key, keys);
  validQueries = max(index(0), min(queries, sub(queryEnd, at.query)));
}

Value AttentionSteps::sizeOf(Value operand, DimsAttr dims, Dim dim) {
  return getValueOrCreateConstantIndexOp(b, loc, getDimSize(b, loc, operand, dims, dim));
}

KeyRange AttentionSteps::visibleKeys(Value head) {
  Value lastQuery = add(at.query, sub(validQueries, index(1)));
  return KeyBounds(op).computeKeyRange(b, loc, at.batch, add(at.head, head), queryEnd, keyEnd, at.query, lastQuery,
                                       {at.key, min(keyEnd, add(at.key, keys))});
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

State AttentionSteps::emptyState(ArrayRef<OpFoldResult> leading, OpFoldResult rows) {
  auto empty = [&](Type element, std::optional<int64_t> width) -> Value {
    SmallVector<OpFoldResult> sizes(leading);
    sizes.push_back(rows);
    if (width)
      sizes.push_back(b.getIndexAttr(*width));
    return tensor::EmptyOp::create(b, loc, sizes, element);
  };
  State state;
  state.acc = empty(type, columns);
  state.max = empty(type, std::nullopt);
  state.sum = empty(type, std::nullopt);
  for (Value tally : op.getTallies())
    state.tallies.push_back(empty(type, cast<ShapedType>(tally.getType()).getShape().back()));
  if (op.getRowMax() || op.getArgmax())
    state.rowMax = empty(type, std::nullopt);
  if (op.getArgmax())
    state.argmax = empty(b.getI64Type(), std::nullopt);
  return state;
}

State AttentionSteps::filledState(const State &destination) {
  auto filled = [&](Value part) -> Value {
    // With stick_breaking the maximum is the logarithm of the rest of the stick.
    bool isMax = (part == destination.max && !op.getStickBreaking()) || part == destination.rowMax;
    TypedAttr value = part == destination.argmax ? TypedAttr(b.getI64IntegerAttr(-1))
                      : isMax                    ? b.getFloatAttr(type, minusInfinity)
                                                 : b.getFloatAttr(type, 0.0);
    Value scalar = arith::ConstantOp::create(b, loc, value);
    return linalg::FillOp::create(b, loc, scalar, part).getResult(0);
  };
  return State(ValueRange(llvm::map_to_vector(destination.getParts(), filled)));
}

State AttentionSteps::newState(int64_t rows) { return filledState(emptyState({}, b.getIndexAttr(rows))); }

/// A sink is an extra score without a value. It is the state of a row before the first key. So is the divisor 1 of
/// weights without a softmax: a score of 0, which is the maximum of all their states, or the logarithm of a whole
/// stick.
void AttentionSteps::addSinks(State &state, Heads heads, Value count) {
  if (!op.getSink() && op.hasSoftmax())
    return;
  auto number = [&](double value) -> Value { return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); };
  auto startOf = [&](Value head) -> std::array<Value, 2> {
    Value sink = op.getSink();
    if (!sink)
      return {number(0.0), number(1.0)};
    if (isa<RankedTensorType>(sink.getType()))
      sink = tensor::ExtractOp::create(b, loc, sink, head ? add(heads.first, head) : heads.first);
    if (sink.getType() != type)
      sink = arith::ExtFOp::create(b, loc, type, sink);
    // A sink of −∞ has weight 0, even if a row has no keys.
    Value isNone = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, sink, number(minusInfinity));
    // A finite sink that overflows as an exponent becomes the largest finite number, as the maxima of kernels.
    bool lost;
    APFloat largest = APFloat::getLargest(cast<FloatType>(type).getFloatSemantics());
    largest.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
    Value exponent = sink;
    if (!hasNaturalMax()) {
      exponent = arith::MulFOp::create(b, loc, sink, number(std::numbers::log2e));
      exponent = arith::MaximumFOp::create(b, loc, exponent, number(-largest.convertToDouble()));
    }
    return {arith::SelectOp::create(b, loc, isNone, sink, exponent),
            arith::SelectOp::create(b, loc, isNone, number(0.0), number(1.0))};
  };
  auto addSink = [&](Value head, ValueRange maxAndSum) -> SmallVector<Value> {
    std::array<Value, 2> starts = startOf(head);
    Slice rows;
    rows.add(head ? fold(head) : b.getIndexAttr(0), fold(validQueries), head ? fold(heads.count) : b.getIndexAttr(1));
    SmallVector<Value> next;
    for (auto [part, start] : llvm::zip_equal(maxAndSum, starts))
      next.push_back(
          rows.insert(b, loc, linalg::FillOp::create(b, loc, start, rows.extract(b, loc, part)).getResult(0), part));
    return next;
  };
  SmallVector<Value> parts = {state.max, state.sum};
  parts = heads.count ? loop(index(0), count, 1, parts, addSink) : addSink(Value(), parts);
  state.max = parts[0], state.sum = parts[1];
}

State AttentionSteps::rowsOf(const State &state, Value rows) {
  return rowsOfHead(state, {index(0), Value()}, index(0), rows);
}

State AttentionSteps::rowsOfHead(const State &state, Heads heads, Value head, Value rows) {
  return State(ValueRange(llvm::map_to_vector(state.getParts(), [&](Value part) {
    auto shape = cast<ShapedType>(part.getType());
    Slice slice;
    slice.add(fold(head), fold(rows), heads.count ? fold(heads.count) : b.getIndexAttr(1));
    if (shape.getRank() == 2)
      slice.add(b.getIndexAttr(0), b.getIndexAttr(shape.getDimSize(1)), b.getIndexAttr(1));
    return slice.extract(b, loc, part);
  })));
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Slice AttentionSteps::sliceOf(Value operand, DimsAttr dims, Heads heads, Value begin, Value count) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  Slice slice;
  for (Dim dim : dims.getDims()) {
    if (dim == Dim::Batch)
      slice.addPosition(zero);
    else if (dim == Dim::Head && !heads.count)
      slice.addPosition(fold(heads.first));
    else if (dim == Dim::Head)
      slice.add(fold(heads.first), fold(heads.count), one);
    else if (dim == Dim::Seq)
      slice.add(fold(begin), fold(count), one);
    else
      slice.add(zero, getDimSize(b, loc, operand, dims, dim), one);
  }
  return slice;
}

State AttentionSteps::accumulate(const State &state, Value query, Heads heads, Value kvHead, Value begin, Value count,
                                 Step step) {
  Heads ofKeys{kvHead, Value()};
  auto tileOf = [&](Value operand, DimsAttr dims) {
    return emitKeyTile(b, loc, operand, dims, sliceOf(operand, dims, ofKeys, begin, count), step.schedule.getCols());
  };
  auto [key, keyDims] = tileOf(op.getKey(), op.getKeyDims());
  auto [value, valueDims] = tileOf(op.getValue(), op.getValueDims());
  Position tileAt{at.batch, add(at.head, heads.first), at.query, add(at.key, begin)};
  DimsAttr queryDims = heads.count ? dimsWithout(op.getQueryDims(), {Dim::Batch}) : tileDims(op.getQueryDims());
  auto accumulate = AccumulateOp::create(
      b, loc, TypeRange(ValueRange(state.getParts())), query, key, value, op.getCaptures(), queryEnd, keyEnd,
      op.getScaleValue(), tileAt.inOrder(), state.acc, state.max, state.sum, state.tallies, state.rowMax, state.argmax,
      queryDims, keyDims, valueDims, op.getScaleAttr(), op.getQkTypeAttr(), op.getPointwise(), op.getStickBreaking(),
      step.isFinal, step.schedule, step.unpacked, hasNaturalMax(), state.tallies.size());
  setFiniteMax(accumulate, step.finiteMax);
  auto copy = [](Region &from, Region &to) {
    IRMapping mapping;
    from.cloneInto(&to, mapping);
  };
  copy(op.getScore(), accumulate.getScore());
  copy(op.getMask(), accumulate.getMask());
  if (!op.getWeight().empty() && (step.isFinal || !needsSoftmaxWeights(op)))
    copy(op.getWeight(), accumulate.getWeight());
  for (auto [region, tally] : llvm::zip(accumulate.getTallyRegions(), op.getTallyRegions()))
    copy(tally, region);
  return State(accumulate->getResults());
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

SmallVector<Value> AttentionSteps::orderedResults() {
  SmallVector<Value> results = {op.getOutput()};
  for (Value result : {op.getLse(), op.getLseLow()})
    if (result)
      results.push_back(result);
  results.append(op.getTallies().begin(), op.getTallies().end());
  for (Value result : {Value(op.getRowMax()), Value(op.getArgmax())})
    if (result)
      results.push_back(result);
  return results;
}

SmallVector<Value> AttentionSteps::finalize(const State &state, ValueRange destinations, ScheduleAttr schedule) {
  SmallVector<Value> others(state.tallies);
  if (op.getRowMax())
    others.push_back(state.rowMax);
  if (op.getArgmax())
    others.push_back(state.argmax);
  auto done = FinalizeOp::create(b, loc, destinations.getTypes(), state.acc, state.max, state.sum, others,
                                 destinations[0], op.getLse() ? destinations[1] : Value(),
                                 op.getLseLow() ? destinations[2] : Value(), destinations.take_back(others.size()),
                                 tileDims(op.getOutputDims()), hasNaturalMax(), schedule);
  return SmallVector<Value>(done->getResults());
}
