//===- LinearColumns.cpp - Blocks of columns of linear attention --------------===//
//
// Columns of the state do not depend on each other. In blocks as wide as a panel of a matmul, the state and what a
// chunk writes are panels, which microkernels read and update in place, and a block of the state stays in the L1 cache.
//
//===----------------------------------------------------------------------===//
#include "LinearForwardTasks.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;

SmallVector<Value> LinearForwardTasks::overColumns(ValueRange inits, CarryingBody body) {
  return blocks() == 1 ? body(index(0), inits) : loop(index(0), index(blocks()), 1, inits, body);
}

Value LinearForwardTasks::columnsOf(int64_t extent, Type element) {
  if (blocks() == 1)
    return temporary({extent, valueDepth}, element);
  Extent positions = extent < 0 ? Extent{size, rows} : Extent{b.getIndexAttr(extent), extent};
  return StructuredEmitter::temporary(
      {{b.getIndexAttr(blocks()), blocks()}, positions, {b.getIndexAttr(blockColumns), blockColumns}}, element);
}

Value LinearForwardTasks::columns(Value matrix, Value number) {
  if (blocks() == 1)
    return matrix;
  OpFoldResult zero = b.getIndexAttr(0);
  SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, matrix);
  extents[0] = b.getIndexAttr(1);
  return slice(matrix, {getAsOpFoldResult(number), zero, zero}, extents, {false, true, true});
}

Value LinearForwardTasks::insertColumns(Value block, Value matrix, Value number) {
  if (blocks() == 1)
    return block;
  OpFoldResult zero = b.getIndexAttr(0);
  SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, matrix), ones(3, b.getIndexAttr(1));
  extents[0] = ones[0];
  return tensor::InsertSliceOp::create(b, loc, block, matrix,
                                       ArrayRef<OpFoldResult>{getAsOpFoldResult(number), zero, zero}, extents, ones);
}

Value LinearForwardTasks::toBlocks(Value state) {
  if (blocks() == 1)
    return state;
  if (!linear.getState())
    return StructuredEmitter::filled(columnsOf(depth, type), 0.0);
  return overColumns({columnsOf(depth, type)}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Value from = slice(state, {b.getIndexAttr(0), getAsOpFoldResult(mul(number, blockColumns))},
                       {b.getIndexAttr(depth), b.getIndexAttr(blockColumns)}, {true, true});
    Value copy = linalg::CopyOp::create(b, loc, from, columns(carried[0], number)).getResult(0);
    return {insertColumns(copy, carried[0], number)};
  })[0];
}

Value LinearForwardTasks::fromBlocks(Value blocksOfState, Value into) {
  if (blocks() == 1)
    return blocksOfState;
  if (!linear.getFinalState())
    return into;
  return overColumns({into}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Block at = {b.getIndexAttr(0), getAsOpFoldResult(mul(number, blockColumns)), b.getIndexAttr(depth),
                b.getIndexAttr(blockColumns)};
    Value copy = linalg::CopyOp::create(b, loc, columns(blocksOfState, number), block(carried[0], at)).getResult(0);
    return {insertBlock(copy, carried[0], at)};
  })[0];
}
