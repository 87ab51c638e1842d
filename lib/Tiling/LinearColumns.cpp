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
    return temporary({extent, taskColumns}, element);
  Extent positions = extent < 0 ? Extent{size, rows} : Extent{b.getIndexAttr(extent), extent};
  return StructuredEmitter::temporary(
      {{b.getIndexAttr(blocks()), blocks()}, positions, {b.getIndexAttr(blockColumns), blockColumns}}, element);
}

Value LinearForwardTasks::columns(Value matrix, Value number) { return blocks() == 1 ? matrix : part(matrix, number); }

Value LinearForwardTasks::insertColumns(Value block, Value matrix, Value number) {
  return blocks() == 1 ? block : insertPart(block, matrix, number);
}

Value LinearForwardTasks::blocksOf(Value state, Value into) {
  return overColumns({into}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Value from = slice(state, {b.getIndexAttr(0), getAsOpFoldResult(mul(number, blockColumns))},
                       {b.getIndexAttr(depth), b.getIndexAttr(blockColumns)}, {true, true});
    Value copy = linalg::CopyOp::create(b, loc, from, columns(carried[0], number)).getResult(0);
    return {insertColumns(copy, carried[0], number)};
  })[0];
}

Value LinearForwardTasks::toBlocks(Value states) {
  if (blocks() == 1)
    return states;
  SmallVector<Extent> shape = {{b.getIndexAttr(blocks()), blocks()},
                               {b.getIndexAttr(depth), depth},
                               {b.getIndexAttr(blockColumns), blockColumns}};
  if (heads > 1)
    shape.insert(shape.begin(), {b.getIndexAttr(heads), heads});
  Value into = StructuredEmitter::temporary(shape, type);
  if (!linear.getState())
    return StructuredEmitter::filled(into, 0.0);
  return overHeads({into}, [&](ValueRange ofHead) -> SmallVector<Value> {
    return {blocksOf(heads == 1 ? states : part(states, headInTask), ofHead[0])};
  })[0];
}

Value LinearForwardTasks::stateFrom(Value blocksOfState, Value into) {
  return overColumns({into}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Block at = {b.getIndexAttr(0), getAsOpFoldResult(mul(number, blockColumns)), b.getIndexAttr(depth),
                b.getIndexAttr(blockColumns)};
    Value copy = linalg::CopyOp::create(b, loc, columns(blocksOfState, number), block(carried[0], at)).getResult(0);
    return {insertBlock(copy, carried[0], at)};
  })[0];
}

Value LinearForwardTasks::fromBlocks(Value blocksOfStates, Value into) {
  if (blocks() == 1)
    return blocksOfStates;
  if (!linear.getFinalState())
    return into;
  return overHeads({into}, [&](ValueRange ofHead) -> SmallVector<Value> {
    return {stateFrom(heads == 1 ? blocksOfStates : part(blocksOfStates, headInTask), ofHead[0])};
  })[0];
}
