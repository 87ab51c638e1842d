//===- LinearChunk.cpp - One chunk of linear attention ------------------------===//
//
// Emits the matmuls, cumulative decays and the triangular solve of a chunk, for TileLinear.
//
//===----------------------------------------------------------------------===//
#include "LinearChunk.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;

/// The minimum block size in the schedules of matmuls, whose extents may be dynamic.
static constexpr int64_t matmulBlock = 128;

Value ChunkEmitter::scalar(double value) { return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); }

Value ChunkEmitter::asIndex(OpFoldResult value) { return getValueOrCreateConstantIndexOp(b, loc, value); }

Value ChunkEmitter::temporary(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> bounds;
  SmallVector<OpFoldResult> sizes;
  for (int64_t extent : shape) {
    bounds.push_back(extent < 0 ? rows : extent);
    sizes.push_back(extent < 0 ? size : OpFoldResult(b.getIndexAttr(extent)));
  }
  Value whole = tensor::EmptyOp::create(b, loc, bounds, type);
  if (llvm::all_of(llvm::zip_equal(sizes, bounds),
                   [](auto pair) { return getConstantIntValue(std::get<0>(pair)) == std::get<1>(pair); }))
    return whole;
  SmallVector<OpFoldResult> zeros(shape.size(), b.getIndexAttr(0)), ones(shape.size(), b.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(b, loc, whole, zeros, sizes, ones);
}

Value ChunkEmitter::filled(ArrayRef<int64_t> shape, double value) {
  return linalg::FillOp::create(b, loc, scalar(value), temporary(shape)).getResult(0);
}

SmallVector<Value> ChunkEmitter::apply(unsigned loops, unsigned reductions, ArrayRef<IndexedOperand> inputs,
                                       ArrayRef<IndexedOperand> outputs, Element element) {
  SmallVector<Value> ins, outs;
  SmallVector<AffineMap> maps;
  auto take = [&](ArrayRef<IndexedOperand> walks, SmallVector<Value> &values) {
    for (const IndexedOperand &walk : walks) {
      values.push_back(walk.value);
      maps.push_back(AffineMap::getMultiDimMapWithTargets(loops, walk.loops, b.getContext()));
    }
  };
  take(inputs, ins);
  take(outputs, outs);
  SmallVector<utils::IteratorType> iterators(loops - reductions, utils::IteratorType::parallel);
  iterators.append(reductions, utils::IteratorType::reduction);
  auto op = linalg::GenericOp::create(b, loc, TypeRange(ValueRange(outs)), ins, outs, maps, iterators,
                                      [&](OpBuilder &nested, Location, ValueRange args) {
                                        OpBuilder::InsertionGuard guard(b);
                                        b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
                                        SmallVector<Value> results = element(args);
                                        linalg::YieldOp::create(b, loc, results);
                                      });
  return SmallVector<Value>(op.getResults());
}

Value ChunkEmitter::matmul(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums) {
  Value result = apply(3, 1, {lhs, rhs}, {{sums, {0, 1}}}, [&](ValueRange args) -> SmallVector<Value> {
    return {arith::AddFOp::create(b, loc, args[2], arith::MulFOp::create(b, loc, args[0], args[1]))};
  })[0];
  int64_t block = std::max(rows, matmulBlock);
  result.getDefiningOp()->setAttr("schedule", attn::ScheduleAttr::get(b.getContext(), block, block, block));
  return result;
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

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

Value ChunkEmitter::slice(Value tensor, ArrayRef<OpFoldResult> offsets, ArrayRef<OpFoldResult> sizes,
                          ArrayRef<bool> isKept) {
  SmallVector<int64_t> shape;
  for (auto [extent, kept] : llvm::zip_equal(sizes, isKept))
    if (kept)
      shape.push_back(getConstantIntValue(extent).value_or(ShapedType::kDynamic));
  SmallVector<OpFoldResult> ones(sizes.size(), b.getIndexAttr(1));
  auto type = RankedTensorType::get(shape, getElementTypeOrSelf(tensor));
  return tensor::ExtractSliceOp::create(b, loc, type, tensor, offsets, sizes, ones);
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
