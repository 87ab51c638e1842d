//===- LinearStep.cpp - Linear attention position by position -----------------===//
//
// A decoding step has one position, or a few. The recurrence itself then reads and writes the state once for each,
// which is less than the matmuls of a chunk cost.
//
//===----------------------------------------------------------------------===//
#include "LinearForwardTasks.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

SmallVector<Value> LinearForwardTasks::visitChunksOrPositions(ValueRange carried) {
  if (getConstantIntValue(length) == 0)
    return SmallVector<Value>(carried);
  // Normalized outputs have a second state, and are not what models decode with.
  if (linear.getNormalize() || (getConstantIntValue(length) && *getConstantIntValue(length) > stepPositions))
    return visitChunks(carried);
  if (getConstantIntValue(length))
    return visitPositions(carried);
  Value isShort = compare(arith::CmpIPredicate::sle, asIndex(length), index(stepPositions));
  auto branch = scf::IfOp::create(b, loc, TypeRange(carried), isShort, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loc, visitPositions(carried));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, visitChunks(carried));
  return SmallVector<Value>(branch.getResults());
}

SmallVector<Value> LinearForwardTasks::visitPositions(ValueRange carried) {
  size = present = b.getIndexAttr(1);
  return overHeads(carried, [&](ValueRange ofHead) {
    return loop(index(0), asIndex(length), 1, ofHead,
                [&](Value position, ValueRange before) { return visitPosition(position, before); });
  });
}

std::pair<Value, Value> LinearForwardTasks::update(const Chunk &chunk, Value key, Value value, Value state,
                                                   Value query) {
  // Loop 0 is the column, loop 1 the row.
  SmallVector<IndexedOperand> inputs = {{key, {1}}, {value, {0}}}, outputs = {{state, {1, 0}}};
  bool hasDecay = chunk.decay.whole != nullptr;
  if (hasDecay)
    inputs.push_back({chunk.decay.whole, chunk.decay.loopsOfWhole(1)});
  if (query) {
    inputs.push_back({query, {1}});
    outputs.push_back({filled({taskColumns}, 0.0), {0}});
  }
  SmallVector<Value> results = apply(2, query ? 1 : 0, inputs, outputs, [&](ValueRange args) -> SmallVector<Value> {
    Value before = args[inputs.size()];
    if (hasDecay)
      before = arith::MulFOp::create(b, loc, before, args[2]);
    Value product = arith::MulFOp::create(b, loc, convert(args[0], type), convert(args[1], type));
    Value next = arith::AddFOp::create(b, loc, before, product);
    if (!query)
      return {next};
    Value read = arith::MulFOp::create(b, loc, convert(args[inputs.size() - 1], type), next);
    return {next, arith::AddFOp::create(b, loc, args.back(), read)};
  });
  return {results[0], query ? results[1] : Value()};
}

SmallVector<Value> LinearForwardTasks::visitPosition(Value position, ValueRange carried) {
  Value state = carried[0], output = carried[1], zero = index(0);
  Chunk chunk = loadChunk(position);
  Value key = row(chunk.keys, zero), value = row(chunk.values, zero);
  if (op.hasDeltaRule()) {
    Value erase = row(decayed(chunk.erase, chunk.decay, chunk.decay.entering, depth), zero);
    Value stored = rowSums({{state, {1, 0}}, {erase, {1}}}, filled({taskColumns}, 0.0));
    SmallVector<IndexedOperand> inputs = {{value, {0}}};
    if (chunk.beta)
      inputs.push_back({tensor::ExtractOp::create(b, loc, chunk.beta, zero), {}});
    value = apply(1, 0, inputs, {{stored, {0}}}, [&](ValueRange args) -> SmallVector<Value> {
      Value error = arith::SubFOp::create(b, loc, convert(args[0], type), args.back());
      return {chunk.beta ? arith::MulFOp::create(b, loc, error, args[1]) : error};
    })[0];
  }
  double scale = linear.getScale() ? linear.getScale()->convertToDouble() : 1;
  auto store = [&](Value into, Value member, Value numbers) {
    return storeRows(into, op.getOutputDims().getDims(), member, position, {{numbers, {1}}},
                     [&](ValueRange args) -> Value {
                       return scale == 1 ? args[0] : arith::MulFOp::create(b, loc, args[0], scalar(scale));
                     });
  };
  // On a CPU one loop over the rows updates the state and reads it. On a GPU the threads have elements of the state.
  if (getConstantIntValue(group) == 1 && !onDevice) {
    Value query = row(loadFeatures(op.getQuery(), op.getQueryDims(), div(stateHead, repetitions), position), zero);
    auto [next, read] = update(chunk, key, value, state, query);
    return {next, store(output, headInTask, read)};
  }
  state = update(chunk, key, value, state, /*query=*/Value()).first;
  output = overQueryHeads({output}, [&](Value head, Value member, ValueRange before) -> SmallVector<Value> {
    Value query = row(loadFeatures(op.getQuery(), op.getQueryDims(), head, position), zero);
    return {store(before[0], member, rowSums({{state, {1, 0}}, {query, {1}}}, filled({taskColumns}, 0.0)))};
  })[0];
  return {state, output};
}
