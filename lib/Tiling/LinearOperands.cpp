//===- LinearOperands.cpp - Loads and stores of linear attention --------------===//
//
// Emits the slices of operands, decays and states that the chunks of a task of linear attention read and write.
//
//===----------------------------------------------------------------------===//
#include "LinearTasks.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

LinearTasks::Rows LinearTasks::rowsAt(ArrayRef<Dim> dims, OpFoldResult inBatch, Value head, Value begin,
                                      int64_t columns) {
  Rows rows;
  for (Dim dim : dims) {
    bool isSeq = dim == Dim::Seq, isDepth = dim == Dim::Depth;
    rows.offsets.push_back(isSeq               ? begin
                           : isDepth           ? OpFoldResult(b.getIndexAttr(0))
                           : dim == Dim::Batch ? inBatch
                                               : head);
    rows.sizes.push_back(isSeq ? size : b.getIndexAttr(isDepth ? columns : 1));
    rows.isKept.push_back(isSeq || isDepth);
    if (rows.isKept.back())
      rows.loops.push_back(isSeq ? 0 : 1);
  }
  return rows;
}

Value LinearTasks::loadRows(Value tensor, DimsAttr dims, Value head, Value begin, bool isFeature) {
  int64_t columns = getStaticDimSize(tensor, dims, Dim::Depth);
  Rows place = rowsAt(dims.getDims(), batch, head, begin, columns);
  Value source = slice(tensor, place.offsets, place.sizes, place.isKept);
  return apply(2, 0, {{source, place.loops}}, {{temporary({-1, columns}), {0, 1}}},
               [&](ValueRange args) -> SmallVector<Value> {
                 Value element = convert(args[0], type);
                 if (!isFeature || op.getFeature().empty())
                   return {element};
                 IRMapping mapping;
                 Block &block = op.getFeature().front();
                 mapping.map(block.getArgument(0), element);
                 for (Operation &inner : block.without_terminator())
                   b.clone(inner, mapping);
                 return {mapping.lookupOrDefault(block.getTerminator()->getOperand(0))};
               })[0];
}

Value LinearTasks::loadFactor(Value tensor, AxesAttr axes, Value begin, bool isDecay) {
  bool isMatrix = axes.position(Dim::Depth).has_value();
  Rows place = rowsAt(axes.getDims(), batch, taskHead, begin, factors);
  Value source = slice(tensor, place.offsets, place.sizes, place.isKept);
  IndexedOperand to =
      isMatrix ? IndexedOperand{temporary({-1, factors}), {0, 1}} : IndexedOperand{temporary({-1}), {0}};
  return apply(isMatrix ? 2 : 1, 0, {{source, place.loops}}, {to}, [&](ValueRange args) -> SmallVector<Value> {
    Value element = convert(args[0], type);
    return {isDecay ? math::ExpOp::create(b, loc, element).getResult() : element};
  })[0];
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

LinearTasks::State LinearTasks::initialState() {
  State state;
  Value before = op.getState();
  if (!before) {
    state.products = filled({depth, valueDepth}, 0.0);
    if (op.getNormalize())
      state.sum = filled({depth}, 0.0);
    return state;
  }
  SmallVector<OpFoldResult> offsets, sizes;
  for (Dim dim : op.getStateDims())
    offsets.push_back(dim == Dim::Batch ? batch : taskHead), sizes.push_back(b.getIndexAttr(1));
  SmallVector<bool> isKept(offsets.size(), false);
  auto load = [&](int64_t column, int64_t columns, bool isMatrix) {
    SmallVector<OpFoldResult> at(offsets), extents(sizes);
    SmallVector<bool> kept(isKept);
    at.append({b.getIndexAttr(0), b.getIndexAttr(column)});
    extents.append({b.getIndexAttr(depth), b.getIndexAttr(columns)});
    kept.append({true, isMatrix});
    Value source = slice(before, at, extents, kept);
    SmallVector<unsigned> loops = isMatrix ? SmallVector<unsigned>{0, 1} : SmallVector<unsigned>{0};
    Value to = isMatrix ? temporary({depth, columns}) : temporary({depth});
    return apply(loops.size(), 0, {{source, loops}}, {{to, loops}},
                 [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], type)}; })[0];
  };
  state.products = load(0, valueDepth, /*isMatrix=*/true);
  if (op.getNormalize())
    state.sum = load(valueDepth, 1, /*isMatrix=*/false);
  return state;
}

Value LinearTasks::storeState(const State &state, Value into) {
  Type element = getElementTypeOrSelf(into);
  unsigned outer = cast<ShapedType>(into.getType()).getRank() - 2;
  auto store = [&](Value from, int64_t column, int64_t columns) {
    bool isMatrix = cast<ShapedType>(from.getType()).getRank() == 2;
    SmallVector<OpFoldResult> at(outer + 1, b.getIndexAttr(0)), extents(outer, b.getIndexAttr(1)),
        ones(outer + 2, b.getIndexAttr(1));
    SmallVector<bool> kept(outer, false);
    at.push_back(b.getIndexAttr(column));
    extents.append({b.getIndexAttr(depth), b.getIndexAttr(columns)});
    kept.append({true, isMatrix});
    Value to = slice(into, at, extents, kept);
    SmallVector<unsigned> loops = isMatrix ? SmallVector<unsigned>{0, 1} : SmallVector<unsigned>{0};
    Value done = apply(loops.size(), 0, {{from, loops}}, {{to, loops}},
                       [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], element)}; })[0];
    into = tensor::InsertSliceOp::create(b, loc, done, into, at, extents, ones);
  };
  store(state.products, 0, valueDepth);
  if (state.sum)
    store(state.sum, valueDepth, 1);
  return into;
}
