//===- LinearForwardTasks.cpp - The tasks of attn.linear ----------------------===//
//
// A task carries the state through chunks of positions (the chunked form of Yang et al. 2024).
//
//===----------------------------------------------------------------------===//
#include "LinearForwardTasks.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

Value LinearForwardTasks::loadFeatures(Value tensor, DimsAttr dims, Value head, Value begin) {
  Value x = loadRows(tensor, dims, head, begin), factors;
  if (std::optional<APFloat> epsilon = linear.getL2norm()) {
    Value squares = rowSums({{x, {0, 1}}, {x, {0, 1}}}, filled({-1}, 0.0));
    factors = apply(1, 0, {}, {{squares, {0}}}, [&](ValueRange args) -> SmallVector<Value> {
      Value sum = arith::AddFOp::create(b, loc, args[0], scalar(epsilon->convertToDouble()));
      Value root = math::SqrtOp::create(b, loc, sum);
      return {arith::DivFOp::create(b, loc, scalar(1.0), root)};
    })[0];
  }
  if (!factors && linear.getFeature().empty())
    return x;
  // Not in place: rows without conversion are slices of the caller's tensor.
  SmallVector<IndexedOperand> inputs = {{x, {0, 1}}};
  if (factors)
    inputs.push_back({factors, {0}});
  return apply(2, 0, inputs, {{temporary({-1, depth}), {0, 1}}}, [&](ValueRange args) -> SmallVector<Value> {
    Value element = args[0];
    if (factors)
      element = arith::MulFOp::create(b, loc, element, args[1]);
    if (linear.getFeature().empty())
      return {element};
    IRMapping mapping;
    mlir::Block &block = linear.getFeature().front();
    mapping.map(block.getArgument(0), element);
    for (Operation &inner : block.without_terminator())
      b.clone(inner, mapping);
    return {mapping.lookupOrDefault(block.getTerminator()->getOperand(0))};
  })[0];
}

LinearForwardTasks::State LinearForwardTasks::write(const Chunk &chunk, Value values, State state) {
  Value keys = decayed(chunk.keys, chunk.decay, chunk.decay.leaving, depth);
  state.products = matmul({keys, {2, 0}}, {values, {2, 1}}, decayState(chunk, state.products));
  if (state.sum)
    state.sum = rowSums({{keys, {1, 0}}}, decayState(chunk, state.sum));
  return state;
}

Value LinearForwardTasks::storeOutput(Value output, Value member, Value begin, ArrayRef<IndexedOperand> sums) {
  return storeRows(output, op.getOutputDims().getDims(), member, begin, sums, [&](ValueRange args) -> Value {
    if (sums.size() == 1)
      return args[0];
    Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[1], scalar(0.0));
    Value quotient = arith::DivFOp::create(b, loc, args[0], select(isZero, scalar(1.0), args[1]));
    return select(isZero, scalar(0.0), quotient);
  });
}

Value LinearForwardTasks::read(Value output, Value begin, const Chunk *chunk, Value values, const State &state) {
  double scale = linear.getScale() ? linear.getScale()->convertToDouble() : 1;
  ChunkDecay decay = chunk ? chunk->decay : ChunkDecay();
  auto readHead = [&](Value head, Value member, ValueRange carried) -> SmallVector<Value> {
    Value queries = loadFeatures(op.getQuery(), op.getQueryDims(), head, begin);
    Value entering = decayed(queries, decay, decay.entering, depth, scale);
    Value sums = matmul({entering, {0, 2}}, {state.products, {2, 1}}, filled({-1, valueDepth}, 0.0));
    Value within = chunk ? scores(queries, *chunk, scale) : Value();
    if (chunk)
      sums = matmul({within, {0, 2}}, {values, {2, 1}}, sums);
    SmallVector<IndexedOperand> inputs = {{sums, {0, 1}}};
    if (state.sum) {
      Value divisors = rowSums({{entering, {0, 1}}, {state.sum, {1}}}, filled({-1}, 0.0));
      inputs.push_back({chunk ? rowSums({{within, {0, 1}}}, divisors) : divisors, {0}});
    }
    return {storeOutput(carried[0], member, begin, inputs)};
  };
  return overQueryHeads({output}, readHead)[0];
}

LinearForwardTasks::State LinearForwardTasks::initialState(ValueRange parts) {
  Value before = linear.getState();
  if (isInPlace()) {
    Place place = placeInState(valueDepth);
    SmallVector<bool> isKept(place.sizes.size() - 2, false);
    isKept.append(2, true);
    Value state = slice(parts[1], place.offsets, place.sizes, isKept);
    return {before ? state : StructuredEmitter::filled(state, 0.0), Value()};
  }
  State state{stateOrZeros(before), Value()};
  if (linear.getNormalize())
    state.sum = before ? loadState(before, valueDepth, 1, /*isVector=*/true) : filled({depth}, 0.0);
  return state;
}

SmallVector<Value> LinearForwardTasks::visitChunks(ValueRange carried) {
  return overChunks(/*isForward=*/true, carried, [&](Value begin, ValueRange before) {
    State state = stateOf(before);
    Chunk chunk = loadChunk(begin);
    Value values = chunk.values;
    if (op.hasDeltaRule())
      values = remainders(chunk, state.products, chunk.beta);
    Value output = read(before.back(), begin, &chunk, values, state);
    SmallVector<Value> next = valuesOf(write(chunk, values, state));
    next.push_back(output);
    return next;
  });
}

SmallVector<Value> LinearForwardTasks::emitTask(ValueRange parts) {
  SmallVector<Value> results(parts), carried = valuesOf(initialState(parts));
  if (op.getCausal()) {
    carried.push_back(results[0]);
    carried = visitChunksOrPositions(carried);
    results[0] = carried.pop_back_val();
  } else {
    // Without lengths, queries may be more or fewer than keys.
    OpFoldResult keys = length;
    if (!starts && !op.getKvLen())
      length = getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Seq);
    carried = overChunks(/*isForward=*/true, carried, [&](Value begin, ValueRange before) {
      Chunk chunk = loadChunk(begin);
      return valuesOf(write(chunk, chunk.values, stateOf(before)));
    });
    length = keys;
    if (!starts && !op.getKvLen())
      length = getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Seq);
    results[0] =
        overChunks(/*isForward=*/true, {results[0]}, [&](Value begin, ValueRange before) -> SmallVector<Value> {
          return {read(before[0], begin, /*chunk=*/nullptr, Value(), stateOf(carried))};
        })[0];
  }
  if (!linear.getFinalState())
    return results;
  State state = stateOf(carried);
  if (isInPlace()) {
    Place place = placeInState(valueDepth);
    results[1] = tensor::InsertSliceOp::create(b, loc, state.products, results[1], place.offsets, place.sizes,
                                               SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
    return results;
  }
  results[1] = storeState(state.products, results[1], 0);
  if (state.sum)
    results[1] = storeState(state.sum, results[1], valueDepth);
  return results;
}

LogicalResult LinearForwardTasks::rewrite() {
  bool isEmpty = false;
  FailureOr<SmallVector<Value>> inits = prepare(/*filledResults=*/1, isEmpty);
  if (failed(inits))
    return failure();
  if (isEmpty) {
    rewriter.replaceOp(op, *inits);
    return success();
  }
  if (isInPlace() && linear.getState())
    (*inits)[1] = tensor::CastOp::create(b, loc, (*inits)[1].getType(), linear.getState());
  auto places = [&]() -> SmallVector<Place> {
    SmallVector<Place> found = {placeOfQueries(op.getOutputDims(), valueDepth)};
    if (linear.getFinalState())
      found.push_back(placeOfState(valueDepth + (linear.getNormalize() ? 1 : 0)));
    return found;
  };
  scf::ForallOp loop = overTasks("linear_attention", *inits, places, [&](ValueRange parts) { return emitTask(parts); });
  rewriter.replaceOp(op, loop.getResults());
  return success();
}
