//===- LinearChunk.cpp - One chunk of linear attention ------------------------===//
//
// Emits the matmuls, cumulative decays and the triangular solve of a chunk, for TileLinear.
//
//===----------------------------------------------------------------------===//
#include "LinearChunk.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;

/// The minimum block size in the schedules of matmuls, whose extents may be dynamic.
static constexpr int64_t matmulBlock = 128;

Value ChunkEmitter::temporary(ArrayRef<int64_t> shape) {
  return StructuredEmitter::temporary(llvm::map_to_vector(
      shape, [&](int64_t extent) { return extent < 0 ? Extent{size, rows} : Extent{b.getIndexAttr(extent), extent}; }));
}

Value ChunkEmitter::filled(ArrayRef<int64_t> shape, double value) {
  return StructuredEmitter::filled(temporary(shape), value);
}

Value ChunkEmitter::matmul(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums) {
  if (cast<ShapedType>(sums.getType()).getDimSize(1) == 1)
    return matrixVector(lhs, rhs, sums);
  int64_t block = std::max(rows, matmulBlock);
  return StructuredEmitter::matmul(lhs, rhs, {sums, {0, 1}},
                                   attn::ScheduleAttr::get(b.getContext(), block, block, block));
}

Value ChunkEmitter::matrixVector(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  unsigned column = rhs.loops[0] == 1 ? 0 : 1;
  auto columnOf = [&](Value x, unsigned dim) {
    SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, x);
    extents[dim] = one;
    return slice(x, {zero, zero}, extents, {dim != 0, dim != 1});
  };
  SmallVector<unsigned> loops = lhs.loops[0] == 0 ? SmallVector<unsigned>{0, 1} : SmallVector<unsigned>{1, 0};
  Value result = rowSums({{lhs.value, loops}, {columnOf(rhs.value, column), {1}}}, columnOf(sums, 1));
  return tensor::InsertSliceOp::create(b, loc, result, sums, ArrayRef<OpFoldResult>{zero, zero},
                                       tensor::getMixedSizes(b, loc, sums), SmallVector<OpFoldResult>(2, one));
}

Value ChunkEmitter::rowSums(ArrayRef<IndexedOperand> factors, Value sums) {
  return apply(2, 1, factors, {{sums, {0}}}, [&](ValueRange args) -> SmallVector<Value> {
    Value term = args[0];
    if (factors.size() == 2)
      term = arith::MulFOp::create(b, loc, term, args[1]);
    return {arith::AddFOp::create(b, loc, args.back(), term)};
  })[0];
}

Value ChunkEmitter::scaled(Value x, const IndexedOperand &factor) {
  SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(cast<ShapedType>(x.getType()).getRank()));
  return apply(loops.size(), 0, {factor}, {{x, loops}}, [&](ValueRange args) -> SmallVector<Value> {
    return {arith::MulFOp::create(b, loc, args[1], args[0])};
  })[0];
}

Value ChunkEmitter::row(Value matrix, Value position) {
  OpFoldResult columns = tensor::getMixedSize(b, loc, matrix, 1);
  return slice(matrix, {position, b.getIndexAttr(0)}, {b.getIndexAttr(1), columns}, {false, true});
}

Value ChunkEmitter::insertRow(Value row, Value matrix, Value position) {
  SmallVector<OpFoldResult> offsets = {position, b.getIndexAttr(0)}, ones(2, b.getIndexAttr(1)),
                            sizes = {b.getIndexAttr(1), tensor::getMixedSize(b, loc, matrix, 1)};
  return tensor::InsertSliceOp::create(b, loc, row, matrix, offsets, sizes, ones);
}

//===----------------------------------------------------------------------===//
// Decay and the delta rule
//===----------------------------------------------------------------------===//

Value ChunkEmitter::cumulativeProducts(Value decay, int64_t columns, bool isForward) {
  Value count = asIndex(size);
  return loop(index(0), count, 1, {filled({columns}, 1.0), temporary({-1, columns})},
              [&](Value i, ValueRange carried) -> SmallVector<Value> {
                Value position = isForward ? i : sub(sub(count, i), index(1));
                SmallVector<Value> next =
                    apply(1, 0, {{row(decay, position), {0}}}, {{carried[0], {0}}, {row(carried[1], position), {0}}},
                          [&](ValueRange args) -> SmallVector<Value> {
                            Value product = arith::MulFOp::create(b, loc, args[1], args[0]);
                            return {product, isForward ? product : args[1]};
                          });
                return {next[0], insertRow(next[1], carried[1], position)};
              })[1];
}

Value ChunkEmitter::decayMask(Value decay) {
  return loop(index(0), asIndex(size), 1, {filled({-1}, 0.0), temporary({-1, -1})},
              [&](Value i, ValueRange carried) -> SmallVector<Value> {
                Value factor = tensor::ExtractOp::create(b, loc, decay, i);
                SmallVector<Value> next =
                    apply(1, 0, {{factor, {}}, {i, {}}}, {{carried[0], {0}}, {row(carried[1], i), {0}}},
                          [&](ValueRange args) -> SmallVector<Value> {
                            Value j = linalg::IndexOp::create(b, loc, 0);
                            Value left = arith::MulFOp::create(b, loc, args[2], args[0]);
                            Value own = select(isEqual(j, args[1]), scalar(1.0), scalar(0.0));
                            Value entry = select(isLess(j, args[1]), left, own);
                            return {entry, entry};
                          });
                return {next[0], insertRow(next[1], carried[1], i)};
              })[1];
}

Value ChunkEmitter::decayedMatmul(Value x, Value keys, Value decay, int64_t columns) {
  // carried[0] holds the keys before position i, decayed up to i.
  return loop(index(0), asIndex(size), 1, {filled({-1, columns}, 0.0), filled({-1, -1}, 0.0)},
              [&](Value i, ValueRange carried) -> SmallVector<Value> {
                Value left = apply(2, 0, {{row(decay, i), {1}}, {keys, {0, 1}}, {i, {}}}, {{carried[0], {0, 1}}},
                                   [&](ValueRange args) -> SmallVector<Value> {
                                     Value j = linalg::IndexOp::create(b, loc, 0);
                                     Value decayed = arith::MulFOp::create(b, loc, args[3], args[0]);
                                     Value own = select(isEqual(j, args[2]), args[1], scalar(0.0));
                                     return {select(isLess(j, args[2]), decayed, own)};
                                   })[0];
                Value entries = rowSums({{left, {0, 1}}, {row(x, i), {1}}}, row(carried[1], i));
                return {left, insertRow(entries, carried[1], i)};
              })[1];
}

Value ChunkEmitter::decayedSums(Value weights, Value values, Value decay, int64_t columns, bool isForward, Value sums) {
  Value count = asIndex(size), last = sub(count, index(1));
  // carried[0] holds the values before position i, or after it, decayed to i.
  return loop(index(0), count, 1, {filled({-1, columns}, 0.0), sums},
              [&](Value step, ValueRange carried) -> SmallVector<Value> {
                Value i = isForward ? step : sub(last, step);
                Value factors = row(decay, isForward ? i : min(add(i, 1), last));
                Value left = apply(2, 0, {{factors, {1}}, {values, {0, 1}}, {i, {}}}, {{carried[0], {0, 1}}},
                                   [&](ValueRange args) -> SmallVector<Value> {
                                     Value j = linalg::IndexOp::create(b, loc, 0);
                                     Value decayed = arith::MulFOp::create(b, loc, args[3], args[0]);
                                     Value own = select(isEqual(j, args[2]), args[1], scalar(0.0));
                                     Value isVisited = isForward ? isLess(j, args[2]) : isLess(args[2], j);
                                     return {select(isVisited, decayed, own)};
                                   })[0];
                Value factorsOfValues =
                    isForward ? row(weights, i)
                              : slice(weights, {b.getIndexAttr(0), i}, {size, b.getIndexAttr(1)}, {true, false});
                Value entries = rowSums({{left, {1, 0}}, {factorsOfValues, {1}}}, row(carried[1], i));
                return {left, insertRow(entries, carried[1], i)};
              })[1];
}

Value ChunkEmitter::solveTriangular(Value matrix, Value beta, Value v, int64_t columns) {
  Value count = asIndex(size);
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1), width = b.getIndexAttr(columns);
  // Forward substitution: once u[j] is known, its contribution is subtracted from all later rows.
  return loop(index(0), sub(count, index(1)), 1, {v}, [&](Value j, ValueRange carried) -> SmallVector<Value> {
    Value after = add(j, 1);
    OpFoldResult rest = sub(count, after);
    Value known = linalg::CopyOp::create(b, loc, row(carried[0], j), temporary({columns})).getResult(0);
    Value rows = slice(carried[0], {after, zero}, {rest, width}, {true, true});
    Value factors = slice(matrix, {after, j}, {rest, one}, {true, false});
    Value betas = slice(beta, {after}, {rest}, {true});
    Value next = apply(2, 0, {{factors, {0}}, {betas, {0}}, {known, {1}}}, {{rows, {0, 1}}},
                       [&](ValueRange args) -> SmallVector<Value> {
                         Value factor = arith::MulFOp::create(b, loc, args[0], args[1]);
                         Value known = arith::MulFOp::create(b, loc, factor, args[2]);
                         return {arith::SubFOp::create(b, loc, args[3], known)};
                       })[0];
    SmallVector<OpFoldResult> ones(2, one);
    return {tensor::InsertSliceOp::create(b, loc, next, carried[0], ArrayRef<OpFoldResult>{after, zero},
                                          ArrayRef<OpFoldResult>{rest, width}, ones)};
  })[0];
}
