//===- GradientTile.cpp - The tiles of a gradient of attention ----------------===//
#include "GradientTile.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/Analysis/RuntimeMaskInputs.h"
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

GradientTile::GradientTile(OpBuilder &b, GradientOp op, bool onDevice)
    : StructuredEmitter(b, op.getLoc(), getScoreType(getElementTypeOrSelf(op.getQuery()))), op(op),
      depth(getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth)),
      valueDepth(getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth)),
      limitsKeys(!onDevice && !KeyBounds(op).getConstraints().empty()), sequences(b, op, onDevice),
      captures(*this, op) {
  if (ScheduleAttr schedule = op.getScheduleAttr())
    rows = schedule.getRows(), columns = schedule.getCols();
}

ScheduleAttr GradientTile::block(int64_t rows, int64_t columns, int64_t depth) {
  return ScheduleAttr::get(b.getContext(), rows, columns, depth);
}

//===----------------------------------------------------------------------===//
// The sequence
//===----------------------------------------------------------------------===//

void GradientTile::beginTask(Value batch, Value kvHead) {
  at.batch = batch, at.kvHead = kvHead;
  auto sizeOf = [&](Value operand, DimsAttr dims, Dim dim) { return asIndex(getDimSize(b, loc, operand, dims, dim)); };
  queryStart = sequences.start(b, Role::Query, batch), keyStart = sequences.start(b, Role::Key, batch);
  at.queries = sequences.length(b, Role::Query, batch), at.keys = sequences.length(b, Role::Key, batch);
  // The number of KV heads is not zero inside of a task.
  at.group = div(sizeOf(op.getQuery(), op.getQueryDims(), Dim::Head), sizeOf(op.getKey(), op.getKeyDims(), Dim::Head));
  auto position = [&](unsigned i) { return op.getAt().empty() ? index(0) : Value(op.getAt()[i]); };
  at.absoluteBatch = add(position(0), batch), at.firstQuery = position(2), at.firstKey = position(3);
  at.queryEnd = emitEnd(*this, op.getQLen(), batch, at.firstQuery, at.queries);
  at.keyEnd = emitEnd(*this, op.getKvLen(), batch, at.firstKey, at.keys);
  validQueries = max(index(0), min(at.queries, sub(at.queryEnd, at.firstQuery)));
  validKeys = max(index(0), min(at.keys, sub(at.keyEnd, at.firstKey)));
  beginHead(index(0));
}

void GradientTile::beginTaskOfHead(Value batch, Value head) {
  beginTask(batch, index(0));
  at.kvHead = div(head, at.group);
  beginHead(rem(head, at.group));
}

void GradientTile::beginHead(Value member) {
  at.head = add(mul(at.kvHead, at.group), member);
  at.absoluteHead = op.getAt().empty() ? at.head : add(op.getAt()[1], at.head);
}

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

GradientTile::Place GradientTile::placeOfHeads(DimsAttr dims, Role role, Value first, Value heads, int64_t headSize) {
  Place place;
  for (Dim dim : dims.getDims()) {
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

GradientTile::Place GradientTile::placeOfTile(DimsAttr dims, OpFoldResult inBatch, Value inHead, Value begin,
                                              OpFoldResult count, int64_t headSize) {
  Place place;
  for (Dim dim : dims.getDims()) {
    place.offsets.push_back(dim == Dim::Batch  ? inBatch
                            : dim == Dim::Head ? getAsOpFoldResult(inHead)
                            : dim == Dim::Seq  ? getAsOpFoldResult(begin)
                                               : b.getIndexAttr(0));
    place.sizes.push_back(dim == Dim::Seq ? count : b.getIndexAttr(dim == Dim::Depth ? headSize : 1));
  }
  return place;
}

GradientTile::Matrix GradientTile::matrix(Value tensor, DimsAttr dims, const Place &place) {
  SmallVector<bool> isKept =
      llvm::map_to_vector(dims.getDims(), [](Dim dim) { return dim == Dim::Seq || dim == Dim::Depth; });
  return {slice(tensor, place.offsets, place.sizes, isKept), *dims.position(Dim::Depth) < *dims.position(Dim::Seq)};
}

Value GradientTile::insert(Value part, Value into, const Place &place) {
  return tensor::InsertSliceOp::create(b, loc, part, into, place.offsets, place.sizes,
                                       SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
}

Value GradientTile::store(Value sums, Value into, DimsAttr dims, Value inHead, Value begin, OpFoldResult count,
                          int64_t headSize) {
  Place place = placeOfTile(dims, b.getIndexAttr(0), inHead, begin, count, headSize);
  Matrix to = matrix(into, dims, place);
  Type element = getElementTypeOrSelf(into);
  Value stored = apply(2, 0, {{sums, {0, 1}}}, {to.over(0, 1)},
                       [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], element)}; })[0];
  return insert(stored, into, place);
}

Value GradientTile::rowsOf(Value tensor, const PairTile &tile) {
  SmallVector<OpFoldResult> offsets, sizes;
  SmallVector<bool> isKept;
  for (Dim dim : op.getRowDims()) {
    offsets.push_back(dim == Dim::Batch ? at.batch : dim == Dim::Head ? at.head : add(queryStart, tile.query));
    sizes.push_back(dim == Dim::Seq ? tile.queries.size : b.getIndexAttr(1));
    isKept.push_back(dim == Dim::Seq);
  }
  return slice(tensor, offsets, sizes, isKept);
}

void GradientTile::convertLse() {
  Value from = op.getLse();
  unsigned rank = cast<ShapedType>(from.getType()).getRank();
  SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(rank));
  Value to = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, from), type);
  lse = apply(rank, 0, {{from, loops}}, {{to, loops}}, [&](ValueRange args) -> SmallVector<Value> {
    double infinity = std::numeric_limits<double>::infinity();
    // A row without keys has no probabilities: 2^(s − inf) is 0 for every score s.
    Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[0], scalar(-infinity));
    Value base2 = arith::MulFOp::create(b, loc, args[0], scalar(std::numbers::log2e));
    return {arith::SelectOp::create(b, loc, isEmpty, scalar(infinity), base2)};
  })[0];
}

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

Value GradientTile::scale() {
  if (Value value = op.getScaleValue())
    return value;
  return scalar(*getConstantScale(op));
}

SmallVector<Value> GradientTile::inlineRegion(Region &region, ArrayRef<Value> numbers, Value query, Value key) {
  IRMapping mapping;
  SmallVector<Value> values(numbers);
  values.append({at.absoluteBatch, at.absoluteHead, query, key});
  llvm::append_range(values, op.getCaptures());
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

/// 2^exponent, and 0 below 2^-100: products of smaller probabilities are subnormal, and an instruction that reads or
/// returns a subnormal number takes about 200 cycles on Intel's cores.
Value GradientTile::emitProbability(Value exponent) {
  Value smallest = scalar(-100.0);
  Value isCounted = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGT, exponent, smallest);
  Value probability = math::Exp2Op::create(b, loc, arith::SelectOp::create(b, loc, isCounted, exponent, smallest));
  return arith::SelectOp::create(b, loc, isCounted, probability, scalar(0.0));
}

/// `args` are the product with the key, the product with the value, the log-sum-exp and delta. Returns the weight,
/// the scaled gradient of the score, and the other results of the gradient region.
SmallVector<Value> GradientTile::evaluatePair(Value i, Value j, ValueRange args) {
  Value score = arith::MulFOp::create(b, loc, args[0], scale()), product = args[1];
  Value masked = score;
  if (!op.getScore().empty())
    masked = inlineRegion(op.getScore(), score, i, j)[0];
  Value base2 = arith::MulFOp::create(b, loc, masked, scalar(std::numbers::log2e));
  Value probability = emitProbability(arith::SubFOp::create(b, loc, base2, args[2]));
  Value isVisible;
  auto ifVisible = [&](Value value) {
    return isVisible ? arith::SelectOp::create(b, loc, isVisible, value, scalar(0.0)).getResult() : value;
  };
  if (!op.getMask().empty())
    isVisible = inlineRegion(op.getMask(), {}, i, j)[0];
  probability = ifVisible(probability);
  Value weight = probability;
  if (!op.getWeight().empty())
    weight = ifVisible(inlineRegion(op.getWeight(), probability, i, j)[0]);
  SmallVector<Value> results;
  if (op.getGradient().empty())
    results = {arith::MulFOp::create(b, loc, probability, arith::SubFOp::create(b, loc, product, args[3]))};
  else
    results = inlineRegion(op.getGradient(), {probability, score, product, args[3]}, i, j);
  results[0] = arith::MulFOp::create(b, loc, results[0], scale());
  for (Value &result : results)
    if (isa<FloatType>(result.getType()))
      result = ifVisible(result);
  results.insert(results.begin(), weight);
  return results;
}

SmallVector<Value> GradientTile::evaluate(const PairTile &tile, const Queries &queries, Value scores, Value products,
                                          ArrayRef<Type> captureTypes) {
  // Operands of 16-bit matmuls are rounded; others replace the products.
  Type element = getElementTypeOrSelf(op.getQuery());
  bool isWide = element == type;
  IndexedOperand pairs[] = {{scores, {0, 1}}, {products, {0, 1}}};
  SmallVector<IndexedOperand> inputs = {{queries.lse, {0}}, {queries.delta, {0}}}, outputs;
  if (isWide) {
    llvm::append_range(outputs, pairs);
  } else {
    inputs.insert(inputs.begin(), std::begin(pairs), std::end(pairs));
    for (unsigned n = 0; n < 2; ++n)
      outputs.push_back({temporary({tile.queries, tile.keys}, element), {0, 1}});
  }
  for (Type needed : captureTypes)
    if (needed)
      outputs.push_back({temporary({tile.queries, tile.keys}, needed), {0, 1}});
  Value firstQuery = add(at.firstQuery, tile.query), firstKey = add(at.firstKey, tile.key);
  return apply(2, 0, inputs, outputs, [&](ValueRange args) {
    Value i = add(linalg::IndexOp::create(b, loc, 0), firstQuery),
          j = add(linalg::IndexOp::create(b, loc, 1), firstKey);
    SmallVector<Value> numbers(args);
    if (isWide)
      numbers = {args[2], args[3], args[0], args[1]};
    SmallVector<Value> found = evaluatePair(i, j, numbers);
    SmallVector<Value> results = {convert(found[0], element), convert(found[1], element)};
    for (auto [value, needed] : llvm::zip(ArrayRef(found).drop_front(2), captureTypes))
      if (needed)
        results.push_back(value.getType().isIndex() ? arith::IndexCastOp::create(b, loc, needed, value).getResult()
                                                    : value);
    return results;
  });
}

namespace {
/// The inputs of the mask of one sequence, whose lengths are values of the task.
struct SequenceMaskInputs : RuntimeMaskInputs {
  SequenceMaskInputs(ScoringOpInterface op, BlockMinMax tables, const GradientPositions &at)
      : RuntimeMaskInputs(op, std::move(tables)), at(at) {}
  StagedInt length(StagedIntBuilder &b, Role role) override {
    return b.fromValue(role == Role::Query ? at.queryEnd : at.keyEnd);
  }
  const GradientPositions &at;
};
} // namespace

Value GradientTile::mayBeVisible(const PairTile &tile) {
  if (op.getMask().empty() || KeyBounds(op).isExact())
    return nullptr;
  StagedIntBuilder numbers(b, loc);
  auto extent = [&](Value first, const Extent &count) {
    StagedInt low = numbers.fromValue(first), size = numbers.fromValue(asIndex(count.size));
    return Interval(low, numbers.add(low, numbers.sub(size, 1)));
  };
  MaskBox box{numbers.fromValue(at.absoluteBatch), numbers.fromValue(at.absoluteHead),
              extent(add(at.firstQuery, tile.query), tile.queries), extent(add(at.firstKey, tile.key), tile.keys)};
  Operation *user = b.getInsertionBlock()->getParentOp();
  SequenceMaskInputs inputs(op, [&](Value capture) { return tables.of(capture, user); }, at);
  Coverage coverage = analyzeMask(op.getMask(), box, inputs, numbers);
  return coverage.mayHold.isConstant(1) ? Value() : numbers.materialize(coverage.mayHold, /*isTruth=*/true);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

SmallVector<Value> GradientTile::Gradients::getValues() const {
  SmallVector<Value> values;
  for (Value each : {query, key, value})
    if (each)
      values.push_back(each);
  llvm::append_range(values, captures);
  return values;
}

GradientTile::Gradients GradientTile::Gradients::with(ValueRange values) const {
  Gradients next;
  auto take = [&](Value like) {
    Value taken = like ? values.front() : Value();
    values = values.drop_front(like ? 1 : 0);
    return taken;
  };
  next.isQueryTransposed = isQueryTransposed;
  next.query = take(query), next.key = take(key), next.value = take(value);
  llvm::append_range(next.captures, values);
  return next;
}

GradientTile::Queries GradientTile::queriesOf(const PairTile &tile) {
  Value begin = add(queryStart, tile.query);
  auto load = [&](Value operand, DimsAttr dims, int64_t headSize) {
    return matrix(operand, dims, placeOfTile(dims, at.batch, at.head, begin, tile.queries.size, headSize));
  };
  return {load(op.getQuery(), op.getQueryDims(), depth), load(op.getOutputGradient(), op.getOutputDims(), valueDepth),
          rowsOf(lse, tile), rowsOf(op.getDelta(), tile)};
}

GradientTile::Keys GradientTile::keysOf(const PairTile &tile) {
  Value begin = add(keyStart, tile.key);
  auto load = [&](Value operand, DimsAttr dims, int64_t headSize) {
    return matrix(operand, dims, placeOfTile(dims, at.batch, at.kvHead, begin, tile.keys.size, headSize));
  };
  return {load(op.getKey(), op.getKeyDims(), depth), load(op.getValue(), op.getValueDims(), valueDepth)};
}

OpFoldResult GradientTile::countVisibleKeys(const PairTile &tile) {
  Value first = add(at.firstQuery, tile.query), last = add(first, sub(asIndex(tile.queries.size), index(1)));
  Value count = asIndex(tile.keys.size), firstKey = add(at.firstKey, tile.key);
  KeyRange visible = KeyBounds(op).computeKeyRange(b, loc, at.absoluteBatch, at.absoluteHead, at.queryEnd, at.keyEnd,
                                                   first, last, {firstKey, add(firstKey, count)});
  return getAsOpFoldResult(max(index(0), sub(visible.end, firstKey)));
}

GradientTile::Place GradientTile::firstRows(Value matrix, OpFoldResult count, bool isTransposed) {
  Place place{{b.getIndexAttr(0), b.getIndexAttr(0)}, tensor::getMixedSizes(b, loc, matrix)};
  place.sizes[isTransposed] = count;
  return place;
}

GradientTile::Gradients GradientTile::addTile(const PairTile &tile, const Queries &queries, Keys keys,
                                              const Gradients &sums) {
  auto part = [&](Value matrix, bool isTransposed = false) {
    return limitsKeys ? slice(matrix, firstRows(matrix, tile.keys.size, isTransposed)) : matrix;
  };
  for (Matrix *each : {&keys.key, &keys.value})
    each->value = part(each->value, each->isTransposed);
  auto addTo = [&](Value whole, const IndexedOperand &lhs, const IndexedOperand &rhs, int64_t headSize) {
    Value done = matmul(lhs, rhs, {part(whole), {0, 1}}, block(columns, headSize, rows));
    return limitsKeys ? insert(done, whole, firstRows(whole, tile.keys.size)) : done;
  };
  auto product = [&](const Matrix &lhs, const Matrix &rhs, int64_t headSize) {
    return matmul(lhs.over(0, 2), rhs.over(1, 2), {filled(temporary({tile.queries, tile.keys}), 0.0), {0, 1}},
                  block(rows, columns, headSize));
  };
  Value scores = product(queries.query, keys.key, depth),
        products = product(queries.outputGradient, keys.value, valueDepth);
  SmallVector<Type> captureTypes = sums.captures.empty() ? SmallVector<Type>() : captures.neededTypes();
  SmallVector<Value> found = evaluate(tile, queries, scores, products, captureTypes);
  Value weights = found[0], gradients = found[1];
  Gradients next;
  if (sums.query)
    next.query = matmul({gradients, {0, 2}}, keys.key.over(2, 1), Matrix{sums.query, sums.isQueryTransposed}.over(0, 1),
                        block(rows, depth, columns));
  if (sums.key) {
    next.key = addTo(sums.key, {gradients, {2, 0}}, queries.query.over(2, 1), depth);
    next.value = addTo(sums.value, {weights, {2, 0}}, queries.outputGradient.over(2, 1), valueDepth);
  }
  if (!sums.captures.empty())
    next.captures = captures.add(at, tile, ArrayRef(found).drop_front(2), sums.captures);
  return next;
}

GradientTile::Gradients GradientTile::whereVisible(const PairTile &tile, const Gradients &sums,
                                                   function_ref<Gradients()> body) {
  Value isNeeded = mayBeVisible(tile);
  if (!isNeeded)
    return body();
  return sums.with(choose(isNeeded, [&] { return body().getValues(); }, [&] { return sums.getValues(); }));
}

Value GradientTile::overKeys(Value begin, Value result, Value to) {
  Extent count{getAsOpFoldResult(max(index(0), min(index(rows), sub(validQueries, begin)))), rows};
  Queries queries = queriesOf({begin, nullptr, count, {}});
  Value first = add(at.firstQuery, begin), last = add(first, sub(asIndex(count.size), index(1)));
  KeyRange visible =
      KeyBounds(op).computeKeyRange(b, loc, at.absoluteBatch, at.absoluteHead, at.queryEnd, at.keyEnd, first, last,
                                    {at.firstKey, min(at.keyEnd, add(at.firstKey, at.keys))});
  // Tiles start at multiples of their size.
  Value firstKey = max(index(0), sub(visible.begin, at.firstKey)), end = min(at.keys, sub(visible.end, at.firstKey));
  firstKey = mul(div(firstKey, columns), columns);
  Gradients sums;
  sums.query = filled(temporary({count, {b.getIndexAttr(depth), depth}}), 0.0);
  Value done = loop(firstKey, end, columns, sums.getValues(), [&](Value key, ValueRange carried) {
    PairTile tile{begin, key, count, {getAsOpFoldResult(min(index(columns), sub(end, key))), columns}};
    Gradients before = sums.with(carried);
    return whereVisible(tile, before, [&] { return addTile(tile, queries, keysOf(tile), before); }).getValues();
  })[0];
  return store(done, result, op.getQueryDims(), index(0), to, count.size, depth);
}

GradientTile::Gradients GradientTile::overQueries(Value begin, Gradients results, Value to) {
  Extent count{getAsOpFoldResult(max(index(0), min(index(columns), sub(validKeys, begin)))), columns};
  Keys keys = keysOf({nullptr, begin, {}, count});
  Value first = add(at.firstKey, begin), last = add(first, sub(asIndex(count.size), index(1)));
  Gradients sums = results;
  sums.key = filled(temporary({count, {b.getIndexAttr(depth), depth}}), 0.0);
  sums.value = filled(temporary({count, {b.getIndexAttr(valueDepth), valueDepth}}), 0.0);
  SmallVector<Value> done = loop(index(0), at.group, 1, sums.getValues(), [&](Value member, ValueRange carried) {
    beginHead(member);
    KeyRange visible =
        KeyBounds(op).computeQueryRange(b, loc, at.absoluteBatch, at.absoluteHead, at.queryEnd, at.keyEnd, first, last,
                                        {at.firstQuery, add(at.firstQuery, validQueries)});
    Value firstQuery = max(index(0), sub(visible.begin, at.firstQuery)),
          end = min(validQueries, sub(visible.end, at.firstQuery));
    SmallVector<Value> next = loop(firstQuery, end, rows, carried, [&](Value query, ValueRange carried) {
      PairTile tile{query, begin, {getAsOpFoldResult(min(index(rows), sub(end, query))), rows}, count};
      if (limitsKeys)
        tile.keys.size = countVisibleKeys(tile);
      Gradients before = sums.with(carried);
      auto add = [&] {
        Gradients parts = before;
        Place place;
        if (before.query) {
          // The gradients of the queries are accumulated in the result.
          place = placeOfTile(op.getQueryDims(), b.getIndexAttr(0), member, query, tile.queries.size, depth);
          Matrix sums = matrix(before.query, op.getQueryDims(), place);
          parts.query = sums.value, parts.isQueryTransposed = sums.isTransposed;
        }
        Gradients after = addTile(tile, queriesOf(tile), keys, parts);
        if (before.query)
          after.query = insert(after.query, before.query, place);
        return after;
      };
      return whereVisible(tile, before, add).getValues();
    });
    Gradients ended = sums.with(next);
    ended.captures = captures.endHead(at, ended.captures);
    return ended.getValues();
  });
  sums = sums.with(done);
  results.query = sums.query, results.captures = sums.captures;
  results.key = store(sums.key, results.key, op.getKeyDims(), index(0), to, count.size, depth);
  results.value = store(sums.value, results.value, op.getValueDims(), index(0), to, count.size, valueDepth);
  return results;
}
