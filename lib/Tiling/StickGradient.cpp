//===- StickGradient.cpp - Gradients of stick-breaking attention --------------===//
//
// The weight of key j is w_j = σ(s_j) Π (1 − σ(s_k)) over the visible keys k after it, so a score changes the weights
// of its own key and of the keys before it. With g_j = weight(w_j) · (output gradient · v_j)
//
//     ∂L/∂s_k = g_k (1 − σ(s_k)) − σ(s_k) · Σ g_j over the visible keys j before k
//
// (Tan et al. 2024, "Scaling Stick-Breaking Attention"). Keys are visited from the last to the first, as in the forward
// pass, twice: the first time for the sum of all g, of which those of later keys and of k are subtracted the second
// time. Both times have the same terms in the same order, so that keys that are left nothing of the stick have
// gradients near 0. A matrix of a tile has a row for each key, so the sums along keys are elementwise ops on rows of
// queries.
//
//===----------------------------------------------------------------------===//
#include "GradientTile.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// `args` are the products with the key and with the value, the sums of later keys and of their g and, the second time,
/// the sum of all g. Returns the next two sums and, the second time, the weight, the scaled gradient of the score, and
/// the other results of the gradient region.
SmallVector<Value> GradientTile::breakStick(Value i, Value j, ValueRange args) {
  auto add = [&](Value x, Value y) -> Value { return arith::AddFOp::create(b, loc, x, y); };
  auto subtract = [&](Value x, Value y) -> Value { return arith::SubFOp::create(b, loc, x, y); };
  auto multiply = [&](Value x, Value y) -> Value { return arith::MulFOp::create(b, loc, x, y); };
  Pair pair = DerivativeTile::evaluatePair(i, j, args[0], {});
  Value t = multiply(pair.stick, scalar(std::numbers::log2e)), zero = scalar(0.0), product = args[1];
  Value isPositive = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, t, zero);
  auto whereNegative = [&](Value negative, Value positive) -> Value {
    return arith::SelectOp::create(b, loc, isPositive, positive, negative);
  };
  // 2^−|t|, and the logarithms of σ and 1 − σ.
  Value power = emitProbability(whereNegative(t, arith::NegFOp::create(b, loc, t)));
  Value log = multiply(math::Log1pOp::create(b, loc, power), scalar(std::numbers::log2e));
  Value taken = subtract(whereNegative(t, zero), log), rest = ifVisible(pair, add(whereNegative(zero, t), log));
  pair.probability = ifVisible(pair, emitProbability(subtract(taken, args[2])));
  pair.weight = op.getWeight().empty() ? pair.probability
                                       : ifVisible(pair, inlineRegion(op.getWeight(), pair.probability, i, j)[0]);
  Value g = ifVisible(pair, multiply(pair.weight, product));
  SmallVector<Value> results = {add(args[2], rest), add(args[3], g)};
  if (args.size() == 4)
    return results;
  Value larger = arith::DivFOp::create(b, loc, scalar(1.0), add(power, scalar(1.0))), smaller = multiply(power, larger);
  Value before = subtract(args[4], results[1]);
  Value gradient =
      subtract(multiply(g, whereNegative(larger, smaller)), multiply(whereNegative(smaller, larger), before));
  gradient = ifVisible(pair, gradient);
  SmallVector<Value> yielded = {gradient};
  if (!op.getGradient().empty())
    yielded = inlineRegion(op.getGradient(), {pair.probability, pair.score, product, gradient}, i, j);
  yielded[0] = multiply(yielded[0], scale());
  results.push_back(pair.weight);
  for (Value value : yielded)
    results.push_back(isa<FloatType>(value.getType()) ? ifVisible(pair, value) : value);
  return results;
}

SmallVector<Value> GradientTile::breakSticks(const PairTile &tile, Value scores, Value products, const StickRows &rows,
                                             Value total, ArrayRef<Type> captureTypes) {
  Type element = getElementTypeOrSelf(op.getQuery());
  bool isWide = element == type;
  SmallVector<Value> carriedFirst = {rows.later, rows.products};
  if (total) {
    for (Value each : {scores, products})
      carriedFirst.push_back(isWide ? each : temporary({tile.keys, tile.queries}, element));
    for (Type needed : captureTypes)
      if (needed)
        carriedFirst.push_back(temporary({tile.queries, tile.keys}, needed));
  }
  Value count = asIndex(tile.keys.size);
  Value firstQuery = add(at.firstQuery, tile.query), firstKey = add(at.firstKey, tile.key);
  return loop(index(0), count, 1, carriedFirst, [&](Value visited, ValueRange carried) {
    Value key = sub(sub(count, index(1)), visited);
    // Of matrices of captures it is a column.
    auto rowOf = [&](Value matrix, bool isColumn) {
      SmallVector<OpFoldResult> offsets = {key, b.getIndexAttr(0)}, sizes = {b.getIndexAttr(1), tile.queries.size};
      if (isColumn)
        std::swap(offsets[0], offsets[1]), std::swap(sizes[0], sizes[1]);
      return std::pair(Place{offsets, sizes}, slice(matrix, offsets, sizes, {isColumn, !isColumn}));
    };
    SmallVector<IndexedOperand> inputs, outputs = {{carried[0], {0}}, {carried[1], {0}}};
    bool inPlace = total && isWide; // the products become weights and gradients
    if (!inPlace)
      inputs = {{rowOf(scores, false).second, {0}}, {rowOf(products, false).second, {0}}};
    if (total)
      inputs.push_back({total, {0}});
    SmallVector<Place> places(2);
    for (auto [n, matrix] : llvm::enumerate(carried.drop_front(2))) {
      auto [place, row] = rowOf(matrix, /*isColumn=*/n >= 2);
      places.push_back(place);
      outputs.push_back({row, {0}});
    }
    SmallVector<Value> made = apply(1, 0, inputs, outputs, [&](ValueRange args) {
      Value i = add(linalg::IndexOp::create(b, loc, 0), firstQuery), j = add(firstKey, key);
      ValueRange out = args.drop_front(inputs.size());
      SmallVector<Value> numbers = inPlace ? SmallVector<Value>{out[2], out[3]} : SmallVector<Value>{args[0], args[1]};
      numbers.append({out[0], out[1]});
      if (total)
        numbers.push_back(args[inputs.size() - 1]);
      SmallVector<Value> found = breakStick(i, j, numbers), results(ArrayRef(found).take_front(2));
      if (!total)
        return results;
      results.append({convert(found[2], element), convert(found[3], element)});
      for (auto [value, needed] : llvm::zip(ArrayRef(found).drop_front(4), captureTypes))
        if (needed)
          results.push_back(value.getType().isIndex() ? arith::IndexCastOp::create(b, loc, needed, value).getResult()
                                                      : value);
      return results;
    });
    for (auto [value, matrix, place] : llvm::drop_begin(llvm::zip_equal(made, carried, places), 2))
      value = insert(value, matrix, place);
    return made;
  });
}

GradientTile::Gradients GradientTile::overSticks(Value member, Value begin, Gradients results) {
  Extent count = queryExtent(begin);
  Queries queries = queriesOf({begin, nullptr, count, {}});
  auto zeros = [&] { return filled(temporary({count}), 0.0); };
  // Keys × queries: the queries are packed once for all keys.
  auto productOf = [&](const PairTile &tile, const Matrix &lhs, const Matrix &rhs, int64_t headSize) {
    return matmul(lhs.over(0, 2), rhs.over(1, 2), {filled(temporary({tile.keys, tile.queries}), 0.0), {0, 1}},
                  block(columns, rows, headSize));
  };
  auto visit = [&](const PairTile &tile, const StickRows &sums, Value total, ArrayRef<Type> captureTypes) {
    Keys keys = keysOf(tile);
    Value scores = productOf(tile, keys.key, queries.query, depth);
    Value products = productOf(tile, keys.value, queries.outputGradient, valueDepth);
    return breakSticks(tile, scores, products, sums, total, captureTypes);
  };
  Value total = overKeyTiles(
      begin, count, {zeros(), zeros()},
      [&](const PairTile &tile, ValueRange carried) { return visit(tile, {carried[0], carried[1]}, Value(), {}); },
      /*isDescending=*/true)[1];
  SmallVector<Type> captureTypes = results.captures.empty() ? SmallVector<Type>() : captures.neededTypes();
  Gradients sums = results;
  sums.query = filled(temporary({count, {b.getIndexAttr(depth), depth}}), 0.0);
  SmallVector<Value> first = {zeros(), zeros()};
  llvm::append_range(first, sums.getValues());
  auto addTile = [&](const PairTile &tile, ValueRange carried) {
    SmallVector<Value> found = visit(tile, {carried[0], carried[1]}, total, captureTypes);
    Value weights = found[2], gradients = found[3];
    Gradients next = sums.with(carried.drop_front(2));
    next.query =
        matmul({gradients, {2, 0}}, keysOf(tile).key.over(2, 1), {next.query, {0, 1}}, block(rows, depth, columns));
    auto addTo = [&](Value whole, Dims dims, Value lhs, const Matrix &rhs, int64_t headSize) {
      Place place = placeOfTile(dims, b.getIndexAttr(0), index(0), tile.key, tile.keys.size, headSize);
      Value done =
          matmul({lhs, {0, 2}}, rhs.over(2, 1), matrix(whole, dims, place).over(0, 1), block(columns, headSize, rows));
      return insert(done, whole, place);
    };
    next.key = addTo(next.key, op.getKeyDims().getDims(), gradients, queries.query, depth);
    next.value = addTo(next.value, op.getValueDims().getDims(), weights, queries.outputGradient, valueDepth);
    if (!next.captures.empty())
      next.captures = captures.add(at, tile, ArrayRef(found).drop_front(4), next.captures);
    SmallVector<Value> values = {found[0], found[1]};
    llvm::append_range(values, next.getValues());
    return values;
  };
  SmallVector<Value> done = overKeyTiles(begin, count, first, addTile, /*isDescending=*/true);
  sums = sums.with(ArrayRef(done).drop_front(2));
  results.key = sums.key, results.value = sums.value, results.captures = sums.captures;
  results.query = store(sums.query, results.query, op.getQueryDims().getDims(), member, begin, count.size, depth);
  return results;
}
