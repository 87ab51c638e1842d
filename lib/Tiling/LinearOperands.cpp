//===- LinearOperands.cpp - Loads and stores of linear attention --------------===//
//
// Emits the slices of operands, decays and states that the chunks of a task of linear attention read and write.
//
//===----------------------------------------------------------------------===//
#include "LinearTasks.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

LinearTasks::Rows LinearTasks::rowsAt(ArrayRef<Dim> dims, OpFoldResult batch, Value head, Value begin,
                                      OpFoldResult first, int64_t columns) {
  Rows at;
  for (Dim dim : dims) {
    bool isSeq = dim == Dim::Seq, isDepth = dim == Dim::Depth;
    at.offsets.push_back(isSeq ? begin : isDepth ? first : dim == Dim::Batch ? batch : head);
    at.sizes.push_back(isSeq ? present : b.getIndexAttr(isDepth ? columns : 1));
    at.isKept.push_back(isSeq || isDepth);
    if (at.isKept.back())
      at.loops.push_back(isSeq ? 0 : 1);
  }
  return at;
}

Value LinearTasks::presentRows(Value matrix) {
  if (present == size)
    return matrix;
  SmallVector<OpFoldResult> offsets(cast<ShapedType>(matrix.getType()).getRank(), b.getIndexAttr(0)),
      extents = tensor::getMixedSizes(b, loc, matrix);
  extents[0] = present;
  return slice(matrix, offsets, extents, SmallVector<bool>(extents.size(), true));
}

Value LinearTasks::insertPresentRows(Value part, Value matrix) {
  if (present == size)
    return part;
  SmallVector<OpFoldResult> offsets(cast<ShapedType>(matrix.getType()).getRank(), b.getIndexAttr(0)),
      ones(offsets.size(), b.getIndexAttr(1)), extents = tensor::getMixedSizes(b, loc, matrix);
  extents[0] = present;
  return tensor::InsertSliceOp::create(b, loc, part, matrix, offsets, extents, ones);
}

Value LinearTasks::ofPositions(int64_t columns, Type element, double padding, llvm::function_ref<Value(Value)> store) {
  if (present == size)
    return store(columns ? temporary({-1, columns}, element) : temporary({-1}, element));
  // Not a tensor.empty: common subexpressions would be eliminated, and the rows of two matrices be parts of one value,
  // which bufferization copies.
  SmallVector<int64_t> shape = {rows};
  if (columns)
    shape.push_back(columns);
  Value whole = bufferization::AllocTensorOp::create(b, loc, RankedTensorType::get(shape, element ? element : type),
                                                     ValueRange());
  whole = insertPresentRows(store(presentRows(whole)), whole);
  SmallVector<OpFoldResult> offsets(cast<ShapedType>(whole.getType()).getRank(), b.getIndexAttr(0)),
      ones(offsets.size(), b.getIndexAttr(1)), extents = tensor::getMixedSizes(b, loc, whole);
  offsets[0] = present, extents[0] = getAsOpFoldResult(sub(asIndex(size), asIndex(present)));
  Value rest =
      StructuredEmitter::filled(slice(whole, offsets, extents, SmallVector<bool>(extents.size(), true)), padding);
  return tensor::InsertSliceOp::create(b, loc, rest, whole, offsets, extents, ones);
}

Value LinearTasks::loadRows(Value tensor, DimsAttr dims, Value head, Value begin) {
  return loadColumns(tensor, dims, head, begin, index(0), getStaticDimSize(tensor, dims, Dim::Depth),
                     operandType(tensor));
}

StructuredEmitter::IndexedOperand LinearTasks::rowsOf(Value tensor, DimsAttr dims, Value head, Value begin, Value first,
                                                      int64_t columns) {
  Rows at =
      rowsAt(dims.getDims(), sequence, head, start ? add(start, begin) : begin, getAsOpFoldResult(first), columns);
  return {slice(tensor, at.offsets, at.sizes, at.isKept), at.loops};
}

Value LinearTasks::loadColumns(Value tensor, DimsAttr dims, Value head, Value begin, Value first, int64_t columns,
                               Type element) {
  IndexedOperand source = rowsOf(tensor, dims, head, begin, first, columns);
  return ofPositions(columns, element, 0, [&](Value part) -> Value {
    // Not a slice of the caller's tensor, to which an elementwise op without effect would be folded: rows of a
    // temporary have static strides.
    if (arePadded && source.loops[0] == 0 && getElementTypeOrSelf(source.value) == element)
      return linalg::CopyOp::create(b, loc, source.value, part).getResult(0);
    return apply(2, 0, {source}, {{part, {0, 1}}},
                 [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], element)}; })[0];
  });
}

Value LinearTasks::loadFactor(Value tensor, AxesAttr axes, Value begin, bool isDecay) {
  bool isMatrix = axes.position(Dim::Depth).has_value();
  Rows at = rowsAt(axes.getDims(), sequence, stateHead, start ? add(start, begin) : begin, b.getIndexAttr(0), depth);
  Value source = slice(tensor, at.offsets, at.sizes, at.isKept);
  SmallVector<unsigned> loops = isMatrix ? SmallVector<unsigned>{0, 1} : SmallVector<unsigned>{0};
  return ofPositions(isMatrix ? depth : 0, type, isDecay ? 1 : 0, [&](Value part) {
    return apply(isMatrix ? 2 : 1, 0, {{source, at.loops}}, {{part, loops}},
                 [&](ValueRange args) -> SmallVector<Value> {
                   Value element = convert(args[0], type);
                   return {isDecay ? math::ExpOp::create(b, loc, element).getResult() : element};
                 })[0];
  });
}

Value LinearTasks::headOf(Value tensor, DimsAttr dims) {
  int64_t own = getStaticDimSize(tensor, dims, Dim::Head),
          values = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Head);
  if (own == values && !ShapedType::isDynamic(own))
    return stateHead;
  return div(stateHead, div(extentOf(op.getValue(), op.getValueDims(), Dim::Head), extentOf(tensor, dims, Dim::Head)));
}

LinearTasks::Chunk LinearTasks::loadKeys(Value begin) {
  Chunk chunk;
  chunk.begin = begin;
  chunk.keys = loadFeatures(op.getKey(), op.getKeyDims(), headOf(op.getKey(), op.getKeyDims()), begin);
  chunk.erase = op.getErase() ? loadRows(op.getErase(), op.getEraseDimsAttr(),
                                         headOf(op.getErase(), op.getEraseDimsAttr()), begin)
                              : chunk.keys;
  return chunk;
}

void LinearTasks::loadHead(Chunk &chunk) {
  if (op.getDecay())
    chunk.decay =
        decayOf(loadFactor(op.getDecay(), op.getDecayAxesAttr(), chunk.begin, /*isDecay=*/true), op.hasMatrixDecay());
  chunk.values = loadColumns(op.getValue(), op.getValueDims(), stateHead, chunk.begin, firstColumn, taskColumns,
                             operandType(op.getValue()));
  if (op.getBeta())
    chunk.beta = loadFactor(op.getBeta(), op.getBetaAxesAttr(), chunk.begin, /*isDecay=*/false);
}

LinearTasks::Chunk LinearTasks::loadChunk(Value begin) {
  Chunk chunk = loadKeys(begin);
  loadHead(chunk);
  return chunk;
}

StructuredEmitter::Place LinearTasks::placeOfRows(ArrayRef<Dim> dims, Value first, Value heads, int64_t columns) {
  Place place;
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  for (Dim dim : dims) {
    place.offsets.push_back(dim == Dim::Batch  ? OpFoldResult(sequence)
                            : dim == Dim::Head ? getAsOpFoldResult(first)
                            : dim == Dim::Seq  ? (start ? OpFoldResult(start) : zero)
                                               : zero);
    place.sizes.push_back(dim == Dim::Batch  ? one
                          : dim == Dim::Head ? getAsOpFoldResult(heads)
                          : dim == Dim::Seq
                              ? (start ? length : getDimSize(b, loc, op.getValue(), op.getValueDims(), Dim::Seq))
                              : OpFoldResult(b.getIndexAttr(columns)));
  }
  return place;
}

StructuredEmitter::Place LinearTasks::placeOfQueries(DimsAttr dims, int64_t columns) {
  Place place = placeOfRows(dims.getDims(), mul(stateHead, group), group, columns);
  if (!start) // without `causal`, queries may be more or fewer than keys
    place.sizes[*dims.position(Dim::Seq)] = getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Seq);
  return place;
}

Value LinearTasks::storeRows(Value into, ArrayRef<Dim> dims, Value member, Value begin, ArrayRef<IndexedOperand> rows,
                             Rounding element) {
  int64_t columns = 1;
  if (auto position = llvm::find(dims, Dim::Depth); position != dims.end())
    columns = cast<ShapedType>(into.getType()).getDimSize(position - dims.begin());
  return storeColumns(into, dims, member, begin, index(0), columns, rows, element);
}

Value LinearTasks::storeColumns(Value into, ArrayRef<Dim> dims, Value member, Value begin, Value first, int64_t columns,
                                ArrayRef<IndexedOperand> rows, Rounding element) {
  // The slice of a task has one batch.
  Rows at = rowsAt(dims, b.getIndexAttr(0), member, begin, getAsOpFoldResult(first), columns);
  Value to = slice(into, at.offsets, at.sizes, at.isKept);
  SmallVector<IndexedOperand> parts;
  for (const IndexedOperand &each : rows)
    parts.push_back({!each.loops.empty() && each.loops[0] == 0 ? presentRows(each.value) : each.value, each.loops});
  Type type = getElementTypeOrSelf(into);
  Value done = apply(at.loops.size(), 0, parts, {{to, at.loops}},
                     [&](ValueRange args) -> SmallVector<Value> { return {convert(element(args), type)}; })[0];
  return tensor::InsertSliceOp::create(b, loc, done, into, at.offsets, at.sizes,
                                       SmallVector<OpFoldResult>(at.sizes.size(), b.getIndexAttr(1)));
}

Value LinearTasks::storeRows(Value into, ArrayRef<Dim> dims, Value member, Value begin, Value rows) {
  SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(cast<ShapedType>(rows.getType()).getRank()));
  return storeRows(into, dims, member, begin, {{rows, loops}}, [](ValueRange args) -> Value { return args[0]; });
}

Value LinearTasks::allocated(ArrayRef<OpFoldResult> sizes, Type element) {
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamic;
  dispatchIndexOpFoldResults(sizes, dynamic, shape);
  return bufferization::AllocTensorOp::create(b, loc, RankedTensorType::get(shape, element), dynamic);
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

StructuredEmitter::Place LinearTasks::placeOfState(int64_t columns) {
  Place place;
  for (Dim dim : op.getStateDims()) {
    place.offsets.push_back(dim == Dim::Batch ? sequence : firstHead);
    place.sizes.push_back(b.getIndexAttr(dim == Dim::Batch ? 1 : heads));
  }
  place.offsets.append(2, b.getIndexAttr(0));
  place.sizes.append({b.getIndexAttr(depth), b.getIndexAttr(columns)});
  return place;
}

StructuredEmitter::Place LinearTasks::placeInState(int64_t columns) {
  Place place = atBegin(placeOfState(columns));
  takeHead(place, headInTask);
  return place;
}

StructuredEmitter::Place LinearTasks::atBegin(Place place) {
  place.offsets.assign(place.offsets.size(), b.getIndexAttr(0));
  return place;
}

void LinearTasks::takeHead(Place &place, Value head) {
  for (auto [position, dim] : llvm::enumerate(op.getStateDims()))
    if (dim == Dim::Head) {
      place.offsets[position] = getAsOpFoldResult(head);
      place.sizes[position] = b.getIndexAttr(1);
    }
}

Value LinearTasks::stateOrZeros(Value tensor) {
  return tensor ? loadState(tensor, getAsOpFoldResult(firstColumn), taskColumns) : filled({depth, taskColumns}, 0.0);
}

Value LinearTasks::loadState(Value tensor, OpFoldResult first, int64_t columns, bool isVector) {
  Place place = placeOfState(columns);
  takeHead(place, stateHead);
  place.offsets.back() = first;
  SmallVector<bool> isKept(place.sizes.size() - 2, false);
  isKept.append({true, !isVector});
  SmallVector<unsigned> loops = isVector ? SmallVector<unsigned>{0} : SmallVector<unsigned>{0, 1};
  Value to = isVector ? temporary({depth}) : temporary({depth, columns});
  return apply(loops.size(), 0, {{slice(tensor, place.offsets, place.sizes, isKept), loops}}, {{to, loops}},
               [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], type)}; })[0];
}

Value LinearTasks::storeState(Value state, Value into, int64_t first) {
  auto matrix = cast<ShapedType>(state.getType());
  bool isVector = matrix.getRank() == 1;
  Place place = placeInState(isVector ? 1 : matrix.getDimSize(1));
  place.offsets.back() = b.getIndexAttr(first);
  SmallVector<bool> isKept(place.sizes.size() - 2, false);
  isKept.append({true, !isVector});
  Type element = getElementTypeOrSelf(into);
  SmallVector<unsigned> loops = isVector ? SmallVector<unsigned>{0} : SmallVector<unsigned>{0, 1};
  Value to = slice(into, place.offsets, place.sizes, isKept);
  Value done = apply(loops.size(), 0, {{state, loops}}, {{to, loops}},
                     [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], element)}; })[0];
  return tensor::InsertSliceOp::create(b, loc, done, into, place.offsets, place.sizes,
                                       SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
}
