//===- DerivativeTile.cpp - The tiles of derivatives of attention -------------===//
#include "DerivativeTile.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/Analysis/RuntimeMaskInputs.h"
#include "saccade/Dialect/Attn/IR/Position.h"
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

DerivativeTile::DerivativeTile(OpBuilder &b, DerivativeOpInterface op, bool onDevice)
    : StructuredEmitter(b, op.getLoc(), op.getScoreType()), onDevice(onDevice),
      depth(getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth)),
      valueDepth(getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth)), sequences(b, op, onDevice),
      attention(op) {
  if (ScheduleAttr schedule = op.getScheduleAttr())
    rows = schedule.getRows(), columns = schedule.getCols();
}

LogicalResult DerivativeTile::check() {
  for (auto [role, size] : {std::pair("key", depth), std::pair("value", valueDepth)}) {
    if (ShapedType::isDynamic(size))
      return attention->emitOpError() << "head size of " << role << " is dynamic, expected a static one";
    if (size == 0)
      return attention->emitOpError() << "head size of " << role << " is 0, expected at least 1";
  }
  if (!attention.getScheduleAttr())
    return attention->emitOpError() << "has no schedule, expected attn-assign-schedule to run first";
  return success();
}

ScheduleAttr DerivativeTile::block(int64_t rows, int64_t columns, int64_t depth) {
  return ScheduleAttr::get(b.getContext(), rows, columns, depth);
}

//===----------------------------------------------------------------------===//
// The sequence
//===----------------------------------------------------------------------===//

void DerivativeTile::beginTask(Value batch, Value kvHead) {
  at.batch = batch, at.kvHead = kvHead;
  auto sizeOf = [&](Value operand, DimsAttr dims, Dim dim) { return asIndex(getDimSize(b, loc, operand, dims, dim)); };
  queryStart = sequences.start(b, Role::Query, batch), keyStart = sequences.start(b, Role::Key, batch);
  at.queries = sequences.length(b, Role::Query, batch), at.keys = sequences.length(b, Role::Key, batch);
  // The number of KV heads is not zero inside of a task.
  at.group = div(sizeOf(attention.getQuery(), attention.getQueryDims(), Dim::Head),
                 sizeOf(attention.getKey(), attention.getKeyDims(), Dim::Head));
  Position first = emitPosition(b, loc, attention);
  at.absoluteBatch = add(first.batch, batch), at.firstQuery = first.query, at.firstKey = first.key;
  at.queryEnd = emitEnd(*this, attention.getQLen(), batch, at.firstQuery, at.queries);
  at.keyEnd = emitEnd(*this, attention.getKvLen(), batch, at.firstKey, at.keys);
  validQueries = max(index(0), min(at.queries, sub(at.queryEnd, at.firstQuery)));
  validKeys = max(index(0), min(at.keys, sub(at.keyEnd, at.firstKey)));
  beginHead(index(0));
}

void DerivativeTile::beginTaskOfHead(Value batch, Value head) {
  beginTask(batch, index(0));
  at.kvHead = div(head, at.group);
  beginHead(rem(head, at.group));
}

void DerivativeTile::beginHead(Value member) {
  at.head = add(mul(at.kvHead, at.group), member);
  at.absoluteHead = attention.getAt().empty() ? at.head : add(attention.getAt()[1], at.head);
}

/// The position of `dim` in `dims`, their number if it is missing.
static unsigned positionOf(ArrayRef<Dim> dims, Dim dim) { return llvm::find(dims, dim) - dims.begin(); }

scf::ForallOp DerivativeTile::tasks(OpFoldResult heads, Value positions, int64_t tile, ValueRange inits) {
  SmallVector<OpFoldResult> zeros, ends = {getAsOpFoldResult(sequences.sequenceCount), heads}, steps;
  if (tile)
    ends.push_back(getAsOpFoldResult(positions));
  zeros.assign(ends.size(), b.getIndexAttr(0));
  steps.assign(ends.size(), b.getIndexAttr(1));
  if (tile)
    steps.back() = b.getIndexAttr(tile);
  return scf::ForallOp::create(b, loc, zeros, ends, steps, inits, taskMapping(b.getContext(), zeros.size()));
}

DerivativeTile::Place DerivativeTile::placeOf(scf::ForallOp loop, Dims dims, Role role, Value head, Value heads,
                                              int64_t headSize, bool isTiled, int64_t tile) {
  Place place = placeOfHeads(dims, role, head, heads, headSize);
  if (isTiled) {
    Value begin = loop.getInductionVar(2);
    unsigned position = positionOf(dims, Dim::Seq);
    place.offsets[position] = begin;
    place.sizes[position] = min(index(tile), sub(role == Role::Query ? at.queries : at.keys, begin));
  }
  return place;
}

void DerivativeTile::insertSlices(scf::ForallOp loop, ValueRange results, ArrayRef<Place> places) {
  b.setInsertionPointToEnd(loop.getTerminator().getBody());
  for (auto [result, shared, place] : llvm::zip_equal(results, loop.getRegionIterArgs(), places))
    tensor::ParallelInsertSliceOp::create(b, loc, result, shared, place.offsets, place.sizes,
                                          SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
}

Value DerivativeTile::emptyResult(ArrayRef<OpFoldResult> extents, Type element, Role role) {
  Value empty = tensor::EmptyOp::create(b, loc, extents, element);
  return attention.getCuSeqlens(role) ? filled(empty, 0.0) : empty;
}

scf::ForallOp
DerivativeTile::overQueryTiles(ArrayRef<RowResult> results,
                               function_ref<SmallVector<Value>(Value begin, ValueRange results, Value to)> body) {
  bool isTiled = !attention.isRagged();
  auto extent = [&](Dim dim) { return getDimSize(b, loc, attention.getQuery(), attention.getQueryDims(), dim); };
  auto loop = tasks(extent(Dim::Head), asIndex(extent(Dim::Seq)), isTiled ? rows : 0,
                    llvm::map_to_vector(results, [](const RowResult &result) { return result.init; }));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  beginTaskOfHead(loop.getInductionVar(0), loop.getInductionVar(1));
  SmallVector<Place> places;
  SmallVector<Value> parts;
  for (auto [result, shared] : llvm::zip_equal(results, loop.getRegionIterArgs())) {
    places.push_back(placeOf(loop, result.dims, Role::Query, at.head, index(1), result.headSize, isTiled, rows));
    parts.push_back(filled(slice(shared, places.back()), 0.0));
  }
  if (isTiled)
    parts = body(loop.getInductionVar(2), parts, index(0));
  else
    parts = this->loop(index(0), validQueries, rows, parts,
                       [&](Value begin, ValueRange carried) { return body(begin, carried, begin); });
  insertSlices(loop, parts, places);
  return loop;
}

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

DerivativeTile::Place DerivativeTile::placeOfHeads(Dims dims, Role role, Value first, Value heads, int64_t headSize) {
  Place place;
  for (Dim dim : dims) {
    place.offsets.push_back(dim == Dim::Batch  ? getAsOpFoldResult(at.batch)
                            : dim == Dim::Head ? getAsOpFoldResult(first)
                            : dim == Dim::Seq  ? getAsOpFoldResult(role == Role::Query ? queryStart : keyStart)
                                               : b.getIndexAttr(0));
    place.sizes.push_back(dim == Dim::Batch  ? OpFoldResult(b.getIndexAttr(1))
                          : dim == Dim::Head ? getAsOpFoldResult(heads)
                          : dim == Dim::Seq  ? getAsOpFoldResult(role == Role::Query ? at.queries : at.keys)
                                             : b.getIndexAttr(headSize));
  }
  return place;
}

DerivativeTile::Place DerivativeTile::placeOfTile(Dims dims, OpFoldResult inBatch, Value inHead, Value begin,
                                                  OpFoldResult count, int64_t headSize) {
  Place place;
  for (Dim dim : dims) {
    place.offsets.push_back(dim == Dim::Batch  ? inBatch
                            : dim == Dim::Head ? getAsOpFoldResult(inHead)
                            : dim == Dim::Seq  ? getAsOpFoldResult(begin)
                                               : b.getIndexAttr(0));
    place.sizes.push_back(dim == Dim::Seq ? count : b.getIndexAttr(dim == Dim::Depth ? headSize : 1));
  }
  return place;
}

DerivativeTile::Matrix DerivativeTile::matrix(Value tensor, Dims dims, const Place &place) {
  SmallVector<bool> isKept = llvm::map_to_vector(dims, [](Dim dim) { return dim == Dim::Seq || dim == Dim::Depth; });
  return {slice(tensor, place.offsets, place.sizes, isKept), positionOf(dims, Dim::Depth) < positionOf(dims, Dim::Seq)};
}

DerivativeTile::Matrix DerivativeTile::queriesOf(Value tensor, Dims dims, const PairTile &tile, int64_t headSize) {
  return matrix(tensor, dims,
                placeOfTile(dims, at.batch, at.head, add(queryStart, tile.query), tile.queries.size, headSize));
}

DerivativeTile::Matrix DerivativeTile::keysOf(Value tensor, Dims dims, const PairTile &tile, int64_t headSize) {
  return matrix(tensor, dims,
                placeOfTile(dims, at.batch, at.kvHead, add(keyStart, tile.key), tile.keys.size, headSize));
}

Value DerivativeTile::insert(Value matrix, Value into, const Place &place) {
  return tensor::InsertSliceOp::create(b, loc, matrix, into, place.offsets, place.sizes,
                                       SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
}

Value DerivativeTile::store(Value sums, Value into, Dims dims, Value inHead, Value begin, OpFoldResult count,
                            int64_t headSize) {
  Place place = placeOfTile(dims, b.getIndexAttr(0), inHead, begin, count, headSize);
  Matrix to = matrix(into, dims, place);
  Type element = getElementTypeOrSelf(into);
  bool isMatrix = llvm::is_contained(dims, Dim::Depth);
  IndexedOperand from{sums, {0}}, result{to.value, {0}};
  if (isMatrix)
    from.loops = {0, 1}, result = to.over(0, 1);
  Value stored = apply(isMatrix ? 2 : 1, 0, {from}, {result},
                       [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], element)}; })[0];
  return insert(stored, into, place);
}

Value DerivativeTile::rowsOf(Value tensor, const PairTile &tile) {
  if (!tensor)
    return {};
  SmallVector<OpFoldResult> offsets, sizes;
  SmallVector<bool> isKept;
  for (Dim dim : attention.getRowDims()) {
    offsets.push_back(dim == Dim::Batch ? at.batch : dim == Dim::Head ? at.head : add(queryStart, tile.query));
    sizes.push_back(dim == Dim::Seq ? tile.queries.size : b.getIndexAttr(1));
    isKept.push_back(dim == Dim::Seq);
  }
  return slice(tensor, offsets, sizes, isKept);
}

void DerivativeTile::convertLse() {
  Value from = attention.getLse(), low = attention.getLseLow();
  if (!from)
    return;
  unsigned rank = cast<ShapedType>(from.getType()).getRank();
  SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(rank));
  SmallVector<IndexedOperand> inputs, outputs;
  for (Value each : {from, low})
    if (each) {
      inputs.push_back({each, loops});
      outputs.push_back({tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, each), type), loops});
    }
  SmallVector<Value> made = apply(rank, 0, inputs, outputs, [&](ValueRange args) {
    double infinity = std::numeric_limits<double>::infinity();
    // A row without keys has no probabilities: exp(s − inf) is 0 for every score s.
    Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[0], scalar(-infinity));
    SmallVector<Value> results = {arith::SelectOp::create(b, loc, isEmpty, scalar(infinity), args[0])};
    if (low)
      results.push_back(arith::MulFOp::create(b, loc, args[1], scalar(std::numbers::log2e)));
    return results;
  });
  lse = made[0];
  if (low)
    lseLow = made[1];
}

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

/// 2^exponent, and 0 below 2^-100: products of smaller probabilities are subnormal, and an instruction that reads or
/// returns a subnormal number takes about 200 cycles on Intel's cores.
Value DerivativeTile::emitProbability(Value exponent) {
  if (onDevice) // the exponential of GPUs has no subnormal results
    return math::Exp2Op::create(b, loc, exponent);
  Value smallest = scalar(-100.0);
  Value isCounted = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGT, exponent, smallest);
  Value probability = math::Exp2Op::create(b, loc, arith::SelectOp::create(b, loc, isCounted, exponent, smallest));
  return arith::SelectOp::create(b, loc, isCounted, probability, scalar(0.0));
}

DerivativeTile::Pair DerivativeTile::evaluatePair(Value i, Value j, Value product, const RowLse &row) {
  Pair pair;
  pair.score = arith::MulFOp::create(b, loc, product, scale());
  Value score = pair.score;
  if (!attention.getScore().empty())
    score = inlineRegion(attention.getScore(), score, i, j)[0];
  if (!attention.hasSoftmax()) {
    if (!attention.getMask().empty())
      pair.isVisible = inlineRegion(attention.getMask(), {}, i, j)[0];
    if (!attention.getScore().empty()) {
      Value hidden = scalar(-std::numeric_limits<double>::infinity());
      Value isScored = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, score, hidden);
      pair.isVisible = pair.isVisible ? arith::AndIOp::create(b, loc, pair.isVisible, isScored).getResult() : isScored;
    }
    if (attention.getStickBreaking()) {
      pair.stick = score;
      return pair;
    }
    pair.probability = score;
    pair.weight = ifVisible(pair, inlineRegion(attention.getWeight(), score, i, j)[0]);
    return pair;
  }
  // The difference of two large numbers is exact, and small if the probability counts.
  Value difference = arith::SubFOp::create(b, loc, score, row.lse);
  Value exponent = arith::MulFOp::create(b, loc, difference, scalar(std::numbers::log2e));
  if (row.low)
    exponent = arith::SubFOp::create(b, loc, exponent, row.low);
  pair.probability = emitProbability(exponent);
  if (!attention.getMask().empty())
    pair.isVisible = inlineRegion(attention.getMask(), {}, i, j)[0];
  pair.weight = pair.probability = ifVisible(pair, pair.probability);
  if (!attention.getWeight().empty())
    pair.weight = ifVisible(pair, inlineRegion(attention.getWeight(), pair.probability, i, j)[0]);
  return pair;
}

Value DerivativeTile::ifVisible(const Pair &pair, Value value) {
  if (!pair.isVisible)
    return value;
  return arith::SelectOp::create(b, loc, pair.isVisible, value, scalar(0.0));
}

Value DerivativeTile::scale() {
  if (Value value = attention.getScaleValue())
    return value;
  return scalar(*getConstantScale(attention));
}

SmallVector<Value> DerivativeTile::inlineRegion(Region &region, ArrayRef<Value> numbers, Value query, Value key) {
  IRMapping mapping;
  SmallVector<Value> values(numbers);
  values.append({at.absoluteBatch, at.absoluteHead, query, key});
  llvm::append_range(values, attention.getCaptures());
  mapping.map(region.getArguments(), values);
  Block &block = region.front();
  for (Operation &inner : block.without_terminator()) {
    if (auto length = dyn_cast<LengthOp>(inner))
      mapping.map(length.getResult(), length.getRole() == Role::Query ? at.queryEnd : at.keyEnd);
    else
      b.clone(inner, mapping);
  }
  return llvm::map_to_vector(block.getTerminator()->getOperands(),
                             [&](Value value) { return mapping.lookupOrDefault(value); });
}

namespace {
/// The inputs of the mask of one sequence, whose lengths are values of the task.
struct SequenceMaskInputs : RuntimeMaskInputs {
  SequenceMaskInputs(ScoringOpInterface op, BlockMinMax tables, const TaskPositions &at)
      : RuntimeMaskInputs(op, std::move(tables)), at(at) {}
  StagedInt length(StagedIntBuilder &b, Role role) override {
    return b.fromValue(role == Role::Query ? at.queryEnd : at.keyEnd);
  }
  const TaskPositions &at;
};
} // namespace

Value DerivativeTile::mayBeVisible(const PairTile &tile) {
  if (attention.getMask().empty() || KeyBounds(attention).isExact())
    return nullptr;
  StagedIntBuilder numbers(b, loc);
  auto extent = [&](Value first, const Extent &count) {
    StagedInt low = numbers.fromValue(first), size = numbers.fromValue(asIndex(count.size));
    return Interval(low, numbers.add(low, numbers.sub(size, 1)));
  };
  MaskBox box{numbers.fromValue(at.absoluteBatch), numbers.fromValue(at.absoluteHead),
              extent(add(at.firstQuery, tile.query), tile.queries), extent(add(at.firstKey, tile.key), tile.keys)};
  Operation *user = b.getInsertionBlock()->getParentOp();
  SequenceMaskInputs inputs(attention, [&](Value capture) { return tables.of(capture, user); }, at);
  Coverage coverage = analyzeMask(attention.getMask(), box, inputs, numbers);
  return coverage.mayHold.isConstant(1) ? Value() : numbers.materialize(coverage.mayHold, /*isTruth=*/true);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

SmallVector<Value> DerivativeTile::whereVisible(const PairTile &tile, ValueRange sums, Body body) {
  Value isNeeded = mayBeVisible(tile);
  if (!isNeeded)
    return body();
  return choose(isNeeded, body, [&] { return SmallVector<Value>(sums); });
}

StructuredEmitter::Extent DerivativeTile::queryExtent(Value begin) {
  return {getAsOpFoldResult(max(index(0), min(index(rows), sub(validQueries, begin)))), rows};
}

StructuredEmitter::Extent DerivativeTile::keyExtent(Value begin) {
  return {getAsOpFoldResult(max(index(0), min(index(columns), sub(validKeys, begin)))), columns};
}

Value DerivativeTile::product(const PairTile &tile, const Matrix &lhs, const Matrix &rhs, int64_t headSize) {
  return matmul(lhs.over(0, 2), rhs.over(1, 2), {filled(temporary({tile.queries, tile.keys}), 0.0), {0, 1}},
                block(rows, columns, headSize));
}

SmallVector<Value> DerivativeTile::overKeyTiles(Value begin, const Extent &count, ValueRange sums,
                                                function_ref<SmallVector<Value>(const PairTile &, ValueRange)> body,
                                                bool isDescending) {
  Value first = add(at.firstQuery, begin), last = add(first, sub(asIndex(count.size), index(1)));
  KeyRange visible =
      KeyBounds(attention).computeKeyRange(b, loc, at.absoluteBatch, at.absoluteHead, at.queryEnd, at.keyEnd, first,
                                           last, {at.firstKey, min(at.keyEnd, add(at.firstKey, at.keys))});
  // Tiles start at multiples of their size.
  Value firstKey = max(index(0), sub(visible.begin, at.firstKey)), end = min(at.keys, sub(visible.end, at.firstKey));
  firstKey = mul(div(firstKey, columns), columns);
  return loop(firstKey, end, columns, sums, [&](Value place, ValueRange carried) {
    Value key = place;
    if (isDescending)
      key = sub(add(firstKey, mul(div(sub(sub(end, index(1)), firstKey), columns), columns)), sub(place, firstKey));
    PairTile tile{begin, key, count, {getAsOpFoldResult(min(index(columns), sub(end, key))), columns}};
    return whereVisible(tile, carried, [&] { return body(tile, carried); });
  });
}
