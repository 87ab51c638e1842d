//===- GradientTile.cpp - The tiles of a gradient of attention ----------------===//
#include "GradientTile.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

GradientTile::GradientTile(OpBuilder &b, GradientOp op, bool onDevice)
    : DerivativeTile(b, cast<DerivativeOpInterface>(op.getOperation()), onDevice), op(op),
      limitsKeys(!onDevice && !KeyBounds(op).getConstraints().empty()), captures(*this, op) {}

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

/// `args` are the product with the key, the product with the value and, with a softmax, delta, the log-sum-exp and, if
/// there is one, its low part. Returns the weight, the scaled gradient of the score, and the other results of the
/// gradient region.
SmallVector<Value> GradientTile::evaluatePair(Value i, Value j, ValueRange args) {
  auto argument = [&](size_t n) { return n < args.size() ? args[n] : Value(); };
  Pair pair = DerivativeTile::evaluatePair(i, j, args[0], {argument(3), argument(4)});
  Value product = args[1], delta = argument(2) ? argument(2) : scalar(0.0);
  SmallVector<Value> results;
  if (op.getGradient().empty())
    results = {arith::MulFOp::create(b, loc, pair.probability, arith::SubFOp::create(b, loc, product, delta))};
  else
    results = inlineRegion(op.getGradient(), {pair.probability, pair.score, product, delta}, i, j);
  results[0] = arith::MulFOp::create(b, loc, results[0], scale());
  for (Value &result : results)
    if (isa<FloatType>(result.getType()))
      result = ifVisible(pair, result);
  results.insert(results.begin(), pair.weight);
  return results;
}

SmallVector<Value> GradientTile::evaluate(const PairTile &tile, const Queries &queries, Value scores, Value products,
                                          ArrayRef<Type> captureTypes) {
  // Operands of 16-bit matmuls are rounded; others replace the products.
  Type element = getElementTypeOrSelf(op.getQuery());
  bool isWide = element == type;
  IndexedOperand pairs[] = {{scores, {0, 1}}, {products, {0, 1}}};
  SmallVector<IndexedOperand> inputs, outputs;
  for (Value ofRows : {queries.delta, queries.row.lse, queries.row.low})
    if (ofRows)
      inputs.push_back({ofRows, {0}});
  size_t rowInputs = inputs.size();
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
  SmallVector<Value> evaluated = apply(2, 0, inputs, outputs, [&](ValueRange args) {
    Value i = add(linalg::IndexOp::create(b, loc, 0), firstQuery),
          j = add(linalg::IndexOp::create(b, loc, 1), firstKey);
    SmallVector<Value> numbers(args.take_front(rowInputs + 2));
    if (isWide) // outputs, which hold the products, come after inputs
      std::rotate(numbers.begin(), numbers.begin() + rowInputs, numbers.end());
    SmallVector<Value> found = evaluatePair(i, j, numbers);
    SmallVector<Value> results = {convert(found[0], element), convert(found[1], element)};
    for (auto [value, needed] : llvm::zip(ArrayRef(found).drop_front(2), captureTypes))
      if (needed)
        results.push_back(value.getType().isIndex() ? arith::IndexCastOp::create(b, loc, needed, value).getResult()
                                                    : value);
    return results;
  });
  evaluated.front().getDefiningOp()->setAttr(gradientPairsAttr, b.getUnitAttr());
  return evaluated;
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
  return {DerivativeTile::queriesOf(op.getQuery(), op.getQueryDims().getDims(), tile, depth),
          DerivativeTile::queriesOf(op.getOutputGradient(), op.getOutputDims().getDims(), tile, valueDepth),
          lseOf(tile), rowsOf(op.getDelta(), tile)};
}

GradientTile::Keys GradientTile::keysOf(const PairTile &tile) {
  return {DerivativeTile::keysOf(op.getKey(), op.getKeyDims().getDims(), tile, depth),
          DerivativeTile::keysOf(op.getValue(), op.getValueDims().getDims(), tile, valueDepth)};
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
  Value scores = product(tile, queries.query, keys.key, depth),
        products = product(tile, queries.outputGradient, keys.value, valueDepth);
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

Value GradientTile::overKeys(Value begin, Value result, Value to) {
  Extent count = queryExtent(begin);
  Queries queries = queriesOf({begin, nullptr, count, {}});
  Gradients sums;
  sums.query = filled(temporary({count, {b.getIndexAttr(depth), depth}}), 0.0);
  Value done = overKeyTiles(begin, count, sums.getValues(), [&](const PairTile &tile, ValueRange carried) {
    return addTile(tile, queries, keysOf(tile), sums.with(carried)).getValues();
  })[0];
  return store(done, result, op.getQueryDims().getDims(), index(0), to, count.size, depth);
}

GradientTile::Gradients GradientTile::overQueries(Value begin, Gradients results, Value to) {
  Extent count = keyExtent(begin);
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
          place = placeOfTile(op.getQueryDims().getDims(), b.getIndexAttr(0), member, query, tile.queries.size, depth);
          Matrix sums = matrix(before.query, op.getQueryDims().getDims(), place);
          parts.query = sums.value, parts.isQueryTransposed = sums.isTransposed;
        }
        Gradients after = addTile(tile, queriesOf(tile), keys, parts);
        if (before.query)
          after.query = insert(after.query, before.query, place);
        return after.getValues();
      };
      return whereVisible(tile, carried, add);
    });
    Gradients ended = sums.with(next);
    ended.captures = captures.endHead(at, ended.captures);
    return ended.getValues();
  });
  sums = sums.with(done);
  results.query = sums.query, results.captures = sums.captures;
  results.key = store(sums.key, results.key, op.getKeyDims().getDims(), index(0), to, count.size, depth);
  results.value = store(sums.value, results.value, op.getValueDims().getDims(), index(0), to, count.size, valueDepth);
  return results;
}
