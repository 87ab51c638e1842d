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

/// Positions of a chunk whose matmuls are computed in vector registers. Half as many as in other chunks take half the
/// work within a chunk, and the state in registers and the L1 cache makes up for more visits of it.
static constexpr int64_t positionsInVectors = 32;

/// Columns of a block of values: those of a panel of a matmul with AVX-512, of two with AVX2.
static constexpr int64_t columnsInVectors = 32;

LinearForwardTasks::LinearForwardTasks(IRRewriter &rewriter, LinearOp op, bool onDevice)
    : LinearTasks(rewriter, op, onDevice), linear(op) {
  arePadded = !onDevice;
  blockColumns = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  if (onDevice || type != productType)
    return;
  if (op.getCausal())
    rows = positionsInVectors;
  if (blockColumns % columnsInVectors == 0)
    blockColumns = std::min(blockColumns, columnsInVectors);
}

Value LinearForwardTasks::loadFeatures(Value tensor, DimsAttr dims, Value head, Value begin) {
  std::optional<APFloat> epsilon = linear.getL2norm();
  bool isRounded = !epsilon && linear.getFeature().empty() && !onDevice && getElementTypeOrSelf(tensor) == productType;
  Value x = loadColumns(tensor, dims, head, begin, index(0), depth, isRounded ? productType : type), factors;
  if (epsilon) {
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
  SmallVector<IndexedOperand> inputs = {{presentRows(x), {0, 1}}};
  if (factors)
    inputs.push_back({presentRows(factors), {0}});
  auto feature = [&](ValueRange args) -> SmallVector<Value> {
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
  };
  return ofPositions(depth, type, 0, [&](Value part) { return apply(2, 0, inputs, {{part, {0, 1}}}, feature)[0]; });
}

//===----------------------------------------------------------------------===//
// Writes
//===----------------------------------------------------------------------===//

Value LinearForwardTasks::errors(const Chunk &chunk, Value erase, Value state, Value number) {
  // v − Sᵀ e, before the writes of the chunk. A decay that all rows of the state share is a factor of the product.
  Value stored = matmul({erase, {0, 2}}, {state, {2, 1}}, filled({-1, blockColumns}, 0.0));
  SmallVector<IndexedOperand> inputs = {
      rowsOf(op.getValue(), op.getValueDims(), stateHead, chunk.begin, mul(number, blockColumns), blockColumns)};
  if (chunk.decay.between)
    inputs.push_back({presentRows(chunk.decay.entering), {0}});
  Value left = apply(2, 0, inputs, {{presentRows(stored), {0, 1}}}, [&](ValueRange args) -> SmallVector<Value> {
    Value product = args.back();
    if (args.size() == 3)
      product = arith::MulFOp::create(b, loc, product, args[1]);
    return {arith::SubFOp::create(b, loc, convert(args[0], type), product)};
  })[0];
  return insertPresentRows(left, stored);
}

Value LinearForwardTasks::written(const Chunk &chunk, Value state) {
  Value into = columnsOf(-1, type);
  if (!op.hasDeltaRule())
    return asOperand(overColumns({into}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
      Value values = loadColumns(op.getValue(), op.getValueDims(), stateHead, chunk.begin, mul(number, blockColumns),
                                 blockColumns, getElementTypeOrSelf(op.getValue()) == productType ? productType : type);
      return {insertColumns(values, carried[0], number)};
    })[0]);
  Value solved = inverse(negativeSystem(chunk, /*ofEarlier=*/true));
  if (chunk.beta)
    solved = scaled(solved, {chunk.beta, {0}});
  solved = asOperand(solved);
  Value erase = chunk.decay.between ? chunk.erase : decayed(chunk.erase, chunk.decay, chunk.decay.entering, depth);
  erase = asOperand(erase);
  return asOperand(overColumns({into}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Value left = asOperand(errors(chunk, erase, columns(state, number), number));
    Value sums = StructuredEmitter::filled(columns(carried[0], number), 0.0);
    return {insertColumns(matmul({solved, {0, 2}}, {left, {2, 1}}, sums), carried[0], number)};
  })[0]);
}

LinearForwardTasks::State LinearForwardTasks::write(const Chunk &chunk, Value values, State state) {
  Value keys = decayed(chunk.keys, chunk.decay, chunk.decay.leaving, depth);
  if (state.sum)
    state.sum = rowSums({{keys, {1, 0}}}, decayState(chunk, state.sum));
  keys = asOperand(keys);
  state.products = overColumns({state.products}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Value before = decayState(chunk, columns(carried[0], number));
    return {insertColumns(matmul({keys, {2, 0}}, {columns(values, number), {2, 1}}, before), carried[0], number)};
  })[0];
  return state;
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

Value LinearForwardTasks::divisorsOf(Value entering, Value factor, double scale, Value within, const State &state) {
  if (!state.sum)
    return nullptr;
  Value sums = rowSums({{entering, {0, 1}}, {state.sum, {1}}}, filled({-1}, 0.0));
  if (factor || scale != 1) {
    SmallVector<IndexedOperand> inputs;
    if (factor)
      inputs.push_back({factor, {0}});
    sums = apply(1, 0, inputs, {{sums, {0}}}, [&](ValueRange args) -> SmallVector<Value> {
      Value element = factor ? arith::MulFOp::create(b, loc, args[1], args[0]).getResult() : args[0];
      return {scale == 1 ? element : arith::MulFOp::create(b, loc, element, scalar(scale))};
    })[0];
  }
  return within ? rowSums({{within, {0, 1}}}, sums) : sums;
}

Value LinearForwardTasks::readHead(Value output, Value member, Value begin, Value head, const Chunk *chunk,
                                   Value values, const State &state) {
  double scale = linear.getScale() ? linear.getScale()->convertToDouble() : 1;
  ChunkDecay decay = chunk ? chunk->decay : ChunkDecay();
  Value queries = loadFeatures(op.getQuery(), op.getQueryDims(), head, begin), within,
        factor = decay.between ? decay.entering : Value();
  Value entering = decay.entering && !factor ? decayed(queries, decay, decay.entering, depth) : queries;
  if (chunk)
    within = scores(queries, *chunk, scale);
  Value divisors = divisorsOf(entering, factor, scale, within, state);
  entering = asOperand(entering);
  if (chunk)
    within = asOperand(within);
  auto readColumns = [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Value read = matmul({entering, {0, 2}}, {columns(state.products, number), {2, 1}}, filled({-1, blockColumns}, 0.0));
    SmallVector<IndexedOperand> inputs = {{read, {0, 1}}};
    if (factor)
      inputs.push_back({factor, {0}});
    if (chunk)
      inputs.push_back(
          {matmul({within, {0, 2}}, {columns(values, number), {2, 1}}, filled({-1, blockColumns}, 0.0)), {0, 1}});
    if (divisors)
      inputs.push_back({divisors, {0}});
    return {storeColumns(carried[0], op.getOutputDims().getDims(), member, begin, mul(number, blockColumns),
                         blockColumns, inputs, [&](ValueRange args) -> Value {
                           return outputOf(args, factor != nullptr, scale, chunk != nullptr, divisors != nullptr);
                         })};
  };
  return overColumns({output}, readColumns)[0];
}

Value LinearForwardTasks::outputOf(ValueRange args, bool hasFactor, double scale, bool hasWithin, bool isNormalized) {
  Value sum = args[0];
  unsigned next = 1;
  if (hasFactor)
    sum = arith::MulFOp::create(b, loc, sum, args[next++]);
  if (scale != 1)
    sum = arith::MulFOp::create(b, loc, sum, scalar(scale));
  if (hasWithin)
    sum = arith::AddFOp::create(b, loc, sum, args[next++]);
  if (!isNormalized)
    return sum;
  Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[next], scalar(0.0));
  Value quotient = arith::DivFOp::create(b, loc, sum, select(isZero, scalar(1.0), args[next]));
  return select(isZero, scalar(0.0), quotient);
}

Value LinearForwardTasks::read(Value output, Value begin, const Chunk *chunk, Value values, const State &state) {
  return overQueryHeads({output}, [&](Value head, Value member, ValueRange carried) -> SmallVector<Value> {
    return {readHead(carried[0], member, begin, head, chunk, values, state)};
  })[0];
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

/// The state with products that are operands of matmuls.
LinearForwardTasks::State LinearForwardTasks::asOperands(const State &state) {
  return {blocks() == 1 ? asOperand(state.products) : state.products, state.sum};
}

SmallVector<Value> LinearForwardTasks::visitChunks(ValueRange carried) {
  SmallVector<Value> begun(carried);
  begun[0] = toBlocks(carried[0]);
  SmallVector<Value> done = overChunks(/*isForward=*/true, begun, [&](Value begin, ValueRange before) {
    State state = stateOf(before), operands = asOperands(state);
    Chunk chunk = loadChunk(begin);
    Value values = written(chunk, operands.products);
    Value output = read(before.back(), begin, &chunk, values, operands);
    SmallVector<Value> next = valuesOf(write(chunk, values, state));
    next.push_back(output);
    return next;
  });
  done[0] = fromBlocks(done[0], carried[0]);
  return done;
}

/// The output and the state in `carried` if all queries read all keys.
SmallVector<Value> LinearForwardTasks::visitAllKeys(ValueRange carried) {
  // Without lengths, queries may be more or fewer than keys.
  OpFoldResult keys = length;
  bool isDense = !starts && !op.getKvLen();
  SmallVector<Value> begun(carried.drop_back());
  begun[0] = toBlocks(begun[0]);
  if (isDense)
    length = getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Seq);
  SmallVector<Value> done = overChunks(/*isForward=*/true, begun, [&](Value begin, ValueRange before) {
    Chunk chunk = loadChunk(begin);
    return valuesOf(write(chunk, written(chunk, /*state=*/Value()), stateOf(before)));
  });
  length = isDense ? getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Seq) : keys;
  State operands = asOperands(stateOf(done));
  Value output =
      overChunks(/*isForward=*/true, {carried.back()}, [&](Value begin, ValueRange before) -> SmallVector<Value> {
        return {read(before[0], begin, /*chunk=*/nullptr, Value(), operands)};
      })[0];
  done[0] = fromBlocks(done[0], carried[0]);
  done.push_back(output);
  return done;
}

SmallVector<Value> LinearForwardTasks::emitTask(ValueRange parts) {
  SmallVector<Value> results(parts), carried = valuesOf(initialState(parts));
  carried.push_back(results[0]);
  carried = op.getCausal() ? visitChunksOrPositions(carried) : visitAllKeys(carried);
  results[0] = carried.pop_back_val();
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
