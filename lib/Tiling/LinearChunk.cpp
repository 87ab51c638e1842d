//===- LinearChunk.cpp - One chunk of linear attention ------------------------===//
//
// Emits the matmuls, products of decays and the triangular inverse of a chunk.
//
//===----------------------------------------------------------------------===//
#include "LinearChunk.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;

/// The minimum block size in the schedules of matmuls, whose extents may be dynamic.
static constexpr int64_t matmulBlock = 128;

Value ChunkEmitter::temporary(ArrayRef<int64_t> shape, Type element) {
  return StructuredEmitter::temporary(llvm::map_to_vector(shape,
                                                          [&](int64_t extent) {
                                                            return extent < 0 ? Extent{size, rows}
                                                                              : Extent{b.getIndexAttr(extent), extent};
                                                          }),
                                      element);
}

Value ChunkEmitter::filled(ArrayRef<int64_t> shape, double value) {
  return StructuredEmitter::filled(temporary(shape), value);
}

//===----------------------------------------------------------------------===//
// Matmuls and sums
//===----------------------------------------------------------------------===//

Value ChunkEmitter::asOperand(Value x) {
  auto from = cast<RankedTensorType>(x.getType());
  if (from.getElementType() == productType || from.getElementType() != type)
    return x;
  SmallVector<Extent> shape;
  for (OpFoldResult extent : tensor::getMixedSizes(b, loc, x))
    shape.push_back({extent, getConstantIntValue(extent).value_or(rows)});
  return apply(2, 0, {{x, {0, 1}}}, {{StructuredEmitter::temporary(shape, productType), {0, 1}}},
               [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], productType)}; })[0];
}

Value ChunkEmitter::matmul(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums) {
  if (cast<ShapedType>(sums.getType()).getDimSize(1) == 1)
    return matrixVector(lhs, rhs, sums);
  return exactMatmul({asOperand(lhs.value), lhs.loops}, {asOperand(rhs.value), rhs.loops}, sums);
}

Value ChunkEmitter::exactMatmul(const IndexedOperand &lhs, const IndexedOperand &rhs, Value sums) {
  return StructuredEmitter::matmul(lhs, rhs, {sums, {0, 1}},
                                   attn::ScheduleAttr::get(b.getContext(), matmulBlock, matmulBlock, matmulBlock));
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
    Value term = convert(args[0], type);
    if (factors.size() == 2)
      term = arith::MulFOp::create(b, loc, term, convert(args[1], type));
    return {arith::AddFOp::create(b, loc, args.back(), term)};
  })[0];
}

Value ChunkEmitter::scaled(Value x, const IndexedOperand &factor) {
  SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(cast<ShapedType>(x.getType()).getRank()));
  return apply(loops.size(), 0, {factor}, {{x, loops}}, [&](ValueRange args) -> SmallVector<Value> {
    return {arith::MulFOp::create(b, loc, args[1], args[0])};
  })[0];
}

Value ChunkEmitter::sum(Value x, Value y) {
  SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(cast<ShapedType>(x.getType()).getRank()));
  return sum(loops.size(), 0, {y, loops}, {x, loops});
}

Value ChunkEmitter::decayed(Value x, const ChunkDecay &decay, Value factor, int64_t columns, double scale) {
  SmallVector<IndexedOperand> inputs = {{x, {0, 1}}};
  if (factor)
    inputs.push_back({factor, decay.loops(0, 1)});
  else if (scale == 1)
    return x;
  return apply(2, 0, inputs, {{temporary({-1, columns}, productType), {0, 1}}},
               [&](ValueRange args) -> SmallVector<Value> {
                 Value element = convert(args[0], type);
                 if (factor)
                   element = arith::MulFOp::create(b, loc, element, args[1]);
                 if (scale == -1)
                   element = arith::NegFOp::create(b, loc, element);
                 else if (scale != 1)
                   element = arith::MulFOp::create(b, loc, element, scalar(scale));
                 return {convert(element, productType)};
               })[0];
}

Value ChunkEmitter::lowerTriangle(Value x, bool isStrict) {
  return apply(2, 0, {}, {{x, {0, 1}}},
               [&](ValueRange args) -> SmallVector<Value> { return {elementOfTriangle(args[0], isStrict)}; })[0];
}

Value ChunkEmitter::elementOfTriangle(Value element, bool isStrict) {
  Value i = linalg::IndexOp::create(b, loc, 0), j = linalg::IndexOp::create(b, loc, 1);
  Value isVisible = isStrict ? isLess(j, i) : compare(arith::CmpIPredicate::sle, j, i);
  return select(isVisible, element, scalar(0.0));
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

Value ChunkEmitter::row(Value matrix, Value position) {
  OpFoldResult columns = tensor::getMixedSize(b, loc, matrix, 1);
  return slice(matrix, {position, b.getIndexAttr(0)}, {b.getIndexAttr(1), columns}, {false, true});
}

Value ChunkEmitter::insertRow(Value row, Value matrix, Value position) {
  SmallVector<OpFoldResult> offsets = {position, b.getIndexAttr(0)}, ones(2, b.getIndexAttr(1)),
                            sizes = {b.getIndexAttr(1), tensor::getMixedSize(b, loc, matrix, 1)};
  return tensor::InsertSliceOp::create(b, loc, row, matrix, offsets, sizes, ones);
}

Value ChunkEmitter::block(Value matrix, const Block &at) {
  return slice(matrix, {at.row, at.column}, {at.rows, at.columns}, {true, true});
}

Value ChunkEmitter::insertBlock(Value block, Value matrix, const Block &at) {
  SmallVector<OpFoldResult> ones(2, b.getIndexAttr(1));
  return tensor::InsertSliceOp::create(b, loc, block, matrix, ArrayRef<OpFoldResult>{at.row, at.column},
                                       ArrayRef<OpFoldResult>{at.rows, at.columns}, ones);
}

ChunkEmitter::Block ChunkEmitter::rowsFrom(Value matrix, OpFoldResult first, OpFoldResult count) {
  return {first, b.getIndexAttr(0), count, tensor::getMixedSize(b, loc, matrix, 1)};
}

Value ChunkEmitter::matrixOf(OpFoldResult count, int64_t bound, int64_t columns) {
  return StructuredEmitter::temporary({{count, bound}, {b.getIndexAttr(columns), columns}});
}

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

Value ChunkEmitter::cumulativeProducts(Value decay, OpFoldResult length, int64_t bound, bool isForward) {
  Value count = asIndex(length);
  int64_t columns = columnsOf(decay);
  return loop(index(0), count, 1, {filled({columns}, 1.0), matrixOf(length, bound, columns)},
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
                            Value product = select(isEqual(j, args[1]), scalar(1.0), left);
                            return {product, product};
                          });
                return {next[0], insertRow(next[1], carried[1], i)};
              })[1];
}

ChunkDecay ChunkEmitter::decayOf(Value each, bool isMatrix) {
  ChunkDecay decay;
  decay.each = each;
  Value last = sub(asIndex(size), index(1));
  if (isMatrix) {
    decay.entering = cumulativeProducts(each, size, rows, /*isForward=*/true);
    decay.leaving = cumulativeProducts(each, size, rows, /*isForward=*/false);
    decay.whole = row(decay.entering, last);
    return decay;
  }
  decay.between = decayMask(each);
  Value first = tensor::ExtractOp::create(b, loc, each, index(0));
  Value column = slice(decay.between, {b.getIndexAttr(0), b.getIndexAttr(0)}, {size, b.getIndexAttr(1)}, {true, false});
  decay.entering =
      apply(1, 0, {{column, {0}}, {first, {}}}, {{temporary({-1}), {0}}}, [&](ValueRange args) -> SmallVector<Value> {
        return {arith::MulFOp::create(b, loc, args[0], args[1])};
      })[0];
  decay.leaving = row(decay.between, last);
  decay.whole = tensor::ExtractOp::create(b, loc, decay.entering, last);
  return decay;
}

//===----------------------------------------------------------------------===//
// Triangular systems
//===----------------------------------------------------------------------===//

Value ChunkEmitter::inverse(Value strictlyLower) {
  Value whole = strictlyLower;
  if (getConstantIntValue(size) != rows)
    whole = insertBlock(strictlyLower, filled({rows, rows}, 0.0), {b.getIndexAttr(0), b.getIndexAttr(0), size, size});
  // Blocks on the diagonal by forward substitution: row i is e[i] + Σ_{j<i} strictlyLower[i, j] · row j.
  OpFoldResult extent = b.getIndexAttr(blockRows);
  Value result = loop(index(0), index(rows), blockRows, {filled({rows, rows}, 0.0)},
                      [&](Value first, ValueRange outer) -> SmallVector<Value> {
                        Block at = {first, first, extent, extent};
                        Value factors = block(whole, at);
                        Value done = loop(index(0), index(blockRows), 1, {filled({blockRows, blockRows}, 0.0)},
                                          [&](Value i, ValueRange carried) -> SmallVector<Value> {
                                            return {insertRow(substituted(carried[0], factors, i), carried[0], i)};
                                          })[0];
                        return {insertBlock(done, outer[0], at)};
                      })[0];
  // The inverse of [[A, 0], [−N, B]] is [[A⁻¹, 0], [B⁻¹ N A⁻¹, B⁻¹]].
  for (int64_t half = blockRows; half < rows; half *= 2)
    for (int64_t first = 0; first < rows; first += 2 * half) {
      auto at = [&](int64_t row, int64_t column) -> Block {
        return {b.getIndexAttr(row), b.getIndexAttr(column), b.getIndexAttr(half), b.getIndexAttr(half)};
      };
      Value product = exactMatmul({block(whole, at(first + half, first)), {0, 2}},
                                  {block(result, at(first, first)), {2, 1}}, filled({half, half}, 0.0));
      product = exactMatmul({block(result, at(first + half, first + half)), {0, 2}}, {product, {2, 1}},
                            filled({half, half}, 0.0));
      result = insertBlock(product, result, at(first + half, first));
    }
  return getConstantIntValue(size) == rows ? result : block(result, {b.getIndexAttr(0), b.getIndexAttr(0), size, size});
}

Value ChunkEmitter::substituted(Value known, Value factors, Value i) {
  Value sums = rowSums({{known, {1, 0}}, {row(factors, i), {1}}}, filled({blockRows}, 0.0));
  return apply(1, 0, {{i, {}}}, {{sums, {0}}}, [&](ValueRange args) -> SmallVector<Value> {
    Value j = linalg::IndexOp::create(b, loc, 0);
    return {select(isEqual(j, args[0]), scalar(1.0), args[1])};
  })[0];
}
