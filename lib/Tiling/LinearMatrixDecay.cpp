//===- LinearMatrixDecay.cpp - Scores under a decay of each row ---------------===//
//
// Where rows of the state decay differently, the scores of a chunk are no matmul. Those of a block of positions with
// all keys before it are one: queries decay from the beginning of the block, keys up to there. All factors are products
// of decays, and none is a quotient (Yang et al. 2024, "Gated Linear Attention Transformers with Hardware-Efficient
// Training", section 4.2). Within a block, keys are decayed from position to position.
//
//===----------------------------------------------------------------------===//
#include "LinearChunk.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;

//===----------------------------------------------------------------------===//
// Blocks and positions
//===----------------------------------------------------------------------===//

SmallVector<Value> ChunkEmitter::overBlocks(ValueRange inits, bool isForward, BlockBody body) {
  Value count = asIndex(size);
  return loop(index(0), count, blockRows, inits, [&](Value begin, ValueRange carried) {
    Value first = begin;
    if (!isForward)
      first = sub(mul(div(sub(count, index(1)), blockRows), blockRows), begin);
    return body(first, getAsOpFoldResult(min(sub(count, first), index(blockRows))), carried);
  });
}

SmallVector<Value> ChunkEmitter::overPositions(Value each, Value x, OpFoldResult count, bool isForward,
                                               ValueRange inits, PositionBody body) {
  Value last = sub(asIndex(count), index(1));
  SmallVector<Value> all = {matrixOf(count, blockRows, columnsOf(each))};
  llvm::append_range(all, inits);
  SmallVector<Value> done =
      loop(index(0), asIndex(count), 1, all, [&](Value step, ValueRange carried) -> SmallVector<Value> {
        Value i = isForward ? step : sub(last, step), left = carried[0];
        // The rows that were visited decay by this position or, on the way back, by the one after it.
        Block visited =
            isForward ? rowsFrom(left, b.getIndexAttr(0), i) : rowsFrom(left, getAsOpFoldResult(add(i, 1)), step);
        Value factors = row(each, isForward ? i : min(add(i, 1), last));
        left = insertBlock(scaled(block(left, visited), {factors, {1}}), left, visited);
        Value own = apply(1, 0, {{row(x, i), {0}}}, {{row(left, i), {0}}},
                          [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], type)}; })[0];
        left = insertRow(own, left, i);
        SmallVector<Value> next = {left};
        llvm::append_range(next, body(i, left, carried.drop_front()));
        return next;
      });
  return SmallVector<Value>(llvm::drop_begin(done));
}

Value ChunkEmitter::product(Value x, Value factors, OpFoldResult count) {
  return apply(2, 0, {{x, {0, 1}}, {factors, {0, 1}}}, {{matrixOf(count, blockRows, columnsOf(factors)), {0, 1}}},
               [&](ValueRange args) -> SmallVector<Value> {
                 return {arith::MulFOp::create(b, loc, convert(args[0], type), args[1])};
               })[0];
}

Value ChunkEmitter::keysUpTo(Value known, Value keys, Value decays, Value first, OpFoldResult count) {
  Value each = block(decays, rowsFrom(decays, first, count));
  Value leaving = cumulativeProducts(each, count, blockRows, /*isForward=*/false);
  Value whole = apply(
      1, 0, {{row(decays, first), {0}}, {row(leaving, index(0)), {0}}}, {{filled({columnsOf(decays)}, 0.0), {0}}},
      [&](ValueRange args) -> SmallVector<Value> { return {arith::MulFOp::create(b, loc, args[0], args[1])}; })[0];
  Block before = rowsFrom(known, b.getIndexAttr(0), first), own = rowsFrom(known, first, count);
  known = insertBlock(scaled(block(known, before), {whole, {1}}), known, before);
  return insertBlock(product(block(keys, own), leaving, count), known, own);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

SmallVector<Value> ChunkEmitter::decayedScores(ValueRange queries, Value keys, Value each) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  auto ofBlock = [&](Value first, OpFoldResult count, ValueRange carried) -> SmallVector<Value> {
    Block own = rowsFrom(each, first, count), before = {first, zero, count, first};
    Value factors = block(each, own);
    auto readBefore = [&]() {
      // The last block, whose keys no other one reads, is not visited for them.
      Value previous = sub(first, min(first, index(blockRows)));
      Value known = keysUpTo(carried[0], keys, each, previous, getAsOpFoldResult(sub(first, previous)));
      Value entering = cumulativeProducts(factors, count, blockRows, /*isForward=*/true);
      Value keysBefore = block(known, rowsFrom(known, zero, first));
      SmallVector<Value> next(carried);
      next[0] = known;
      for (auto [query, so] : llvm::zip_equal(queries, MutableArrayRef(next).drop_front())) {
        Value found =
            matmul({product(block(query, own), entering, count), {0, 2}}, {keysBefore, {1, 2}}, block(so, before));
        so = insertBlock(found, so, before);
      }
      return next;
    };
    SmallVector<Value> done = choose(isEqual(first, index(0)), [&] { return SmallVector<Value>(carried); }, readBefore);
    Value known = done[0];
    auto ofPosition = [&](Value i, Value left, ValueRange so) -> SmallVector<Value> {
      OpFoldResult visited = getAsOpFoldResult(add(i, 1)), position = getAsOpFoldResult(add(first, i));
      SmallVector<OpFoldResult> offsets = {position, first}, extents = {one, visited};
      // One pass over the keys for all queries.
      SmallVector<IndexedOperand> inputs = {{block(left, rowsFrom(left, zero, visited)), {0, 1}}}, outputs;
      for (auto [query, sums] : llvm::zip_equal(queries, so)) {
        inputs.push_back({row(query, add(first, i)), {1}});
        outputs.push_back({slice(sums, offsets, extents, {false, true}), {0}});
      }
      auto products = [&](ValueRange args) {
        SmallVector<Value> found;
        for (unsigned q = 0; q < queries.size(); ++q) {
          Value product = arith::MulFOp::create(b, loc, convert(args[0], type), convert(args[1 + q], type));
          found.push_back(arith::AddFOp::create(b, loc, args[1 + queries.size() + q], product));
        }
        return found;
      };
      SmallVector<Value> next = apply(2, 1, inputs, outputs, products);
      for (auto [found, sums] : llvm::zip_equal(next, so))
        found = tensor::InsertSliceOp::create(b, loc, found, sums, offsets, extents, SmallVector<OpFoldResult>(2, one));
      return next;
    };
    SmallVector<Value> sums =
        overPositions(factors, block(keys, own), count, /*isForward=*/true, ArrayRef(done).drop_front(), ofPosition);
    sums.insert(sums.begin(), known);
    return sums;
  };
  SmallVector<Value> inits = {temporary({-1, columnsOf(each)})};
  for (unsigned q = 0; q < queries.size(); ++q)
    inits.push_back(filled({-1, -1}, 0.0));
  return SmallVector<Value>(llvm::drop_begin(overBlocks(inits, /*isForward=*/true, ofBlock)));
}

//===----------------------------------------------------------------------===//
// Gradients of scores
//===----------------------------------------------------------------------===//

Value ChunkEmitter::queryGradients(Value weights, Value keys, Value each, Value sums) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  auto ofBlock = [&](Value first, OpFoldResult count, ValueRange carried) -> SmallVector<Value> {
    Block own = rowsFrom(each, first, count);
    Value factors = block(each, own), known = carried[0], gradient = carried[1];
    Value entering = cumulativeProducts(factors, count, blockRows, /*isForward=*/true);
    Value read = StructuredEmitter::filled(matrixOf(count, blockRows, columnsOf(each)), 0.0);
    read = matmul({block(weights, {first, zero, count, first}), {0, 2}},
                  {block(known, rowsFrom(known, zero, first)), {2, 1}}, read);
    gradient = insertBlock(sum(block(gradient, own), product(read, entering, count)), gradient, own);
    auto ofPosition = [&](Value i, Value left, ValueRange before) -> SmallVector<Value> {
      OpFoldResult visited = getAsOpFoldResult(add(i, 1));
      Value position = add(first, i);
      Value factorsOfKeys = slice(weights, {position, first}, {one, visited}, {false, true});
      Value found = rowSums({{block(left, rowsFrom(left, zero, visited)), {1, 0}}, {factorsOfKeys, {1}}},
                            row(before[0], position));
      return {insertRow(found, before[0], position)};
    };
    gradient = overPositions(factors, block(keys, own), count, /*isForward=*/true, {gradient}, ofPosition)[0];
    return {keysUpTo(known, keys, each, first, count), gradient};
  };
  return overBlocks({temporary({-1, columnsOf(each)}), sums}, /*isForward=*/true, ofBlock)[1];
}

Value ChunkEmitter::keyGradients(Value weights, Value query, Value each, Value sums) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  // carried[0] has the products of the queries behind the block, decayed back to its end.
  auto ofBlock = [&](Value first, OpFoldResult count, ValueRange carried) -> SmallVector<Value> {
    Block own = rowsFrom(each, first, count), before = rowsFrom(each, zero, first);
    Value factors = block(each, own), later = carried[0], gradient = carried[1];
    Value leaving = cumulativeProducts(factors, count, blockRows, /*isForward=*/false);
    Value entering = cumulativeProducts(factors, count, blockRows, /*isForward=*/true);
    Value whole = row(entering, sub(asIndex(count), index(1)));
    gradient = insertBlock(sum(block(gradient, own), product(block(later, own), leaving, count)), gradient, own);
    Value earlier = scaled(block(later, before), {whole, {1}});
    earlier = matmul({block(weights, {first, zero, count, first}), {2, 0}},
                     {product(block(query, own), entering, count), {2, 1}}, earlier);
    later = insertBlock(earlier, later, before);
    auto ofPosition = [&](Value i, Value right, ValueRange before) -> SmallVector<Value> {
      Value position = add(first, i);
      OpFoldResult visited = getAsOpFoldResult(sub(asIndex(count), i));
      Value factorsOfQueries = slice(weights, {position, position}, {visited, one}, {true, false});
      Value found = rowSums({{block(right, rowsFrom(right, i, visited)), {1, 0}}, {factorsOfQueries, {1}}},
                            row(before[0], position));
      return {insertRow(found, before[0], position)};
    };
    gradient = overPositions(factors, block(query, own), count, /*isForward=*/false, {gradient}, ofPosition)[0];
    return {later, gradient};
  };
  return overBlocks({filled({-1, columnsOf(each)}, 0.0), sums}, /*isForward=*/false, ofBlock)[1];
}

std::pair<Value, Value> ChunkEmitter::scoreGradients(Value weights, Value query, Value keys, Value each,
                                                     Value queryGradient, Value keyGradient) {
  return {queryGradients(weights, keys, each, queryGradient), keyGradients(weights, query, each, keyGradient)};
}
