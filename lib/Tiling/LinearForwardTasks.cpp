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

LinearForwardTasks::LinearForwardTasks(IRRewriter &rewriter, LinearOp op, bool onDevice)
    : LinearTasks(rewriter, op, onDevice), linear(op) {
  arePadded = true;
  heads = onDevice ? 1 : headsOfTask(op);
  scalesValues = op.getCausal() && !op.hasMatrixDecay();
  blockColumns = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  int64_t features = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
  if (onDevice && op.getCausal() && op.getNormalize() && (blockColumns > columnsOfTask || features > columnsOfTask)) {
    // All of the state is in shared memory, with queries and keys.
    rows = features > 2 * columnsOfTask ? 16 : 32;
    if (blockColumns > columnsOfTask && blockColumns % columnsOfTask == 0)
      blockColumns = columnsOfTask;
  }
  if (onDevice || type != productType)
    return;
  if (op.getCausal())
    rows = positionsInVectors;
  if (blockColumns % columnsInVectors == 0)
    blockColumns = std::min(blockColumns, columnsInVectors);
}

Value LinearForwardTasks::loadFeatures(Value tensor, DimsAttr dims, Value head, Value begin) {
  std::optional<APFloat> epsilon = linear.getL2norm();
  Value x = loadColumns(tensor, dims, head, begin, index(0), depth, operandType(tensor)), factors;
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
    Value element = convert(args[0], type);
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
  SmallVector<IndexedOperand> inputs = {rowsOf(op.getValue(), op.getValueDims(), stateHead, chunk.begin,
                                               add(firstColumn, mul(number, blockColumns)), blockColumns)};
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

void LinearForwardTasks::multiplyTogether(Chunk &chunk) {
  if (!op.hasMatrixDecay() || !op.hasDeltaRule() || getConstantIntValue(group) != 1)
    return;
  chunk.queries = loadFeatures(op.getQuery(), op.getQueryDims(), div(stateHead, repetitions), chunk.begin);
  SmallVector<Value> products = decayedScores({chunk.queries, chunk.erase}, chunk.keys, chunk.decay.each);
  chunk.queryProducts = products[0], chunk.eraseProducts = products[1];
}

LinearForwardTasks::Writing LinearForwardTasks::writingOf(const Chunk &chunk) {
  Writing writing;
  if (!op.hasDeltaRule())
    return writing;
  Value solved = inverse(negativeSystem(chunk, /*ofEarlier=*/true));
  if (chunk.beta)
    solved = scaled(solved, {chunk.beta, {0}});
  writing.solved = asOperand(solved);
  Value erase = chunk.decay.between ? chunk.erase : decayed(chunk.erase, chunk.decay, chunk.decay.entering, depth);
  writing.erase = asOperand(erase);
  return writing;
}

Value LinearForwardTasks::writtenColumns(const Chunk &chunk, const Writing &writing, Value state, Value number,
                                         Value into) {
  if (!op.hasDeltaRule())
    return loadColumns(op.getValue(), op.getValueDims(), stateHead, chunk.begin,
                       add(firstColumn, mul(number, blockColumns)), blockColumns,
                       getElementTypeOrSelf(op.getValue()) == productType ? productType : type);
  Value left = asOperand(errors(chunk, writing.erase, state, number));
  return matmul({writing.solved, {0, 2}}, {left, {2, 1}}, StructuredEmitter::filled(into, 0.0));
}

Value LinearForwardTasks::written(const Chunk &chunk, const Writing &writing, Value state) {
  return asOperand(overColumns({columnsOf(-1, type)}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Value into = columns(carried[0], number), own = state ? columns(state, number) : Value();
    return {insertColumns(writtenColumns(chunk, writing, own, number, into), carried[0], number)};
  })[0]);
}

Value LinearForwardTasks::keysToWrite(const Chunk &chunk) {
  return asOperand(scalesValues ? chunk.keys : decayed(chunk.keys, chunk.decay, chunk.decay.leaving, depth));
}

Value LinearForwardTasks::writeColumns(const Chunk &chunk, Value keys, Value values, Value state) {
  if (scalesValues)
    values = decayed(values, chunk.decay, chunk.decay.leaving, blockColumns);
  return matmul({keys, {2, 0}}, {values, {2, 1}}, decayState(chunk, state));
}

Value LinearForwardTasks::writeSum(const Chunk &chunk, Value sum) {
  if (!sum)
    return sum;
  Value keys = decayed(chunk.keys, chunk.decay, chunk.decay.leaving, depth);
  return rowSums({{keys, {1, 0}}}, decayState(chunk, sum));
}

LinearForwardTasks::State LinearForwardTasks::write(const Chunk &chunk, Value keys, Value values, State state) {
  state.sum = writeSum(chunk, state.sum);
  state.products = overColumns({state.products}, [&](Value number, ValueRange carried) -> SmallVector<Value> {
    Value next = writeColumns(chunk, keys, columns(values, number), columns(carried[0], number));
    return {insertColumns(next, carried[0], number)};
  })[0];
  return state;
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

Value LinearForwardTasks::divisorsOf(Value entering, Value factor, double scale, Value within, Value sum) {
  if (!sum)
    return nullptr;
  Value sums = rowSums({{entering, {0, 1}}, {sum, {1}}}, filled({-1}, 0.0));
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

LinearForwardTasks::Reading LinearForwardTasks::readingOf(Value head, Value begin, const Chunk *chunk, Value sum) {
  double scale = linear.getScale() ? linear.getScale()->convertToDouble() : 1;
  ChunkDecay decay = chunk ? chunk->decay : ChunkDecay();
  bool areShared = chunk && chunk->queries;
  Value queries = areShared ? chunk->queries : loadFeatures(op.getQuery(), op.getQueryDims(), head, begin);
  Reading reading;
  reading.factor = decay.between ? decay.entering : Value();
  Value entering = decay.entering && !reading.factor ? decayed(queries, decay, decay.entering, depth) : queries;
  if (chunk)
    reading.within = scores(queries, *chunk, scale);
  reading.divisors = divisorsOf(entering, reading.factor, scale, reading.within, sum);
  reading.entering = asOperand(entering);
  if (chunk)
    reading.within = asOperand(reading.within);
  return reading;
}

Value LinearForwardTasks::readColumns(Value output, const Reading &reading, Value member, Value begin, Value number,
                                      Value values, Value state) {
  double scale = linear.getScale() ? linear.getScale()->convertToDouble() : 1;
  Value read = matmul({reading.entering, {0, 2}}, {state, {2, 1}}, filled({-1, blockColumns}, 0.0));
  SmallVector<IndexedOperand> inputs = {{read, {0, 1}}};
  if (reading.factor)
    inputs.push_back({reading.factor, {0}});
  if (values)
    inputs.push_back({matmul({reading.within, {0, 2}}, {values, {2, 1}}, filled({-1, blockColumns}, 0.0)), {0, 1}});
  if (reading.divisors)
    inputs.push_back({reading.divisors, {0}});
  return storeColumns(output, op.getOutputDims().getDims(), member, begin, mul(number, blockColumns), blockColumns,
                      inputs, [&](ValueRange args) -> Value {
                        return outputOf(args, reading.factor != nullptr, scale, values != nullptr,
                                        reading.divisors != nullptr);
                      });
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

Value LinearForwardTasks::read(Value output, Value begin, ReadingOfHead readingOfHead, Value values,
                               const State &state) {
  return overQueryHeads({output}, [&](Value head, Value member, ValueRange carried) -> SmallVector<Value> {
    Reading reading = readingOfHead(head, member);
    return overColumns({carried[0]}, [&](Value number, ValueRange before) -> SmallVector<Value> {
      Value own = values ? columns(values, number) : Value();
      return {readColumns(before[0], reading, member, begin, number, own, columns(state.products, number))};
    });
  })[0];
}

LinearForwardTasks::State LinearForwardTasks::initialState(ValueRange parts) {
  Value before = linear.getState();
  if (isInPlace()) {
    Place place = placeOfAll();
    SmallVector<bool> isKept(place.sizes.size() - 2, false);
    isKept.append(2, true);
    Value state = slice(parts[1], place.offsets, place.sizes, isKept);
    return {before ? state : StructuredEmitter::filled(state, 0.0), Value()};
  }
  State state{stateOrZeros(before), Value()};
  if (linear.getNormalize())
    state.sum = before ? loadState(before, b.getIndexAttr(valueDepth), 1, /*isVector=*/true) : filled({depth}, 0.0);
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
    if (heads == 1)
      return visitChunk(loadChunk(begin), before);
    Chunk shared = loadShared(begin);
    return overHeads(before, [&](ValueRange ofHead) {
      Chunk chunk = shared;
      loadHead(chunk);
      return visitChunk(chunk, ofHead);
    });
  });
  done[0] = fromBlocks(done[0], carried[0]);
  return done;
}

SmallVector<Value> LinearForwardTasks::visitChunk(Chunk chunk, ValueRange carried) {
  multiplyTogether(chunk);
  Value sum = stateOf(carried).sum;
  auto reading = [&](Value head, Value) { return readingOf(head, chunk.begin, &chunk, sum); };
  return visitColumns(chunk, writingOf(chunk), reading, keysToWrite(chunk), carried);
}

SmallVector<Value> LinearForwardTasks::visitColumns(const Chunk &chunk, const Writing &writing,
                                                    ReadingOfHead readingOfHead, Value keys, ValueRange carried) {
  State state = stateOf(carried), operands = asOperands(state);
  if (getConstantIntValue(group) != 1 || op.hasDeltaRule()) {
    Value values = written(chunk, writing, operands.products);
    Value output = read(carried.back(), chunk.begin, readingOfHead, values, operands);
    SmallVector<Value> next = valuesOf(write(chunk, keys, values, state));
    next.push_back(output);
    return next;
  }
  // A block of the state is read and written while it is in the L1 cache, which the operands of the delta rule fill.
  Reading reading = readingOfHead(div(stateHead, repetitions), headInTask);
  state.sum = writeSum(chunk, state.sum);
  auto visitBlock = [&](Value number, ValueRange before) -> SmallVector<Value> {
    Value own = columns(before[0], number), operand = blocks() == 1 ? operands.products : own;
    Value values = asOperand(writtenColumns(chunk, writing, operand, number, Value()));
    Value output = readColumns(before[1], reading, headInTask, chunk.begin, number, values, operand);
    return {insertColumns(writeColumns(chunk, keys, values, own), before[0], number), output};
  };
  SmallVector<Value> done = overColumns({state.products, carried.back()}, visitBlock);
  state.products = done[0];
  SmallVector<Value> next = valuesOf(state);
  next.push_back(done[1]);
  return next;
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
    Value values = written(chunk, Writing(), /*state=*/Value());
    return valuesOf(write(chunk, keysToWrite(chunk), values, stateOf(before)));
  });
  length = isDense ? getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Seq) : keys;
  State operands = asOperands(stateOf(done));
  Value output =
      overChunks(/*isForward=*/true, {carried.back()}, [&](Value begin, ValueRange before) -> SmallVector<Value> {
        auto reading = [&](Value head, Value) { return readingOf(head, begin, /*chunk=*/nullptr, operands.sum); };
        return {read(before[0], begin, reading, Value(), operands)};
      })[0];
  done[0] = fromBlocks(done[0], carried[0]);
  done.push_back(output);
  return done;
}

SmallVector<Value> LinearForwardTasks::emitTask(ValueRange parts) {
  SmallVector<Value> results(parts), carried;
  carried = heads == 1 ? valuesOf(initialState(parts)) : SmallVector<Value>{initialStates(parts)};
  carried.push_back(results[0]);
  carried = op.getCausal() ? visitChunksOrPositions(carried) : visitAllKeys(carried);
  results[0] = carried.pop_back_val();
  if (!linear.getFinalState())
    return results;
  State state = stateOf(carried);
  if (isInPlace()) {
    Place place = placeOfAll();
    results[1] = tensor::InsertSliceOp::create(b, loc, state.products, results[1], place.offsets, place.sizes,
                                               SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
    return results;
  }
  results[1] = overHeads({state.products, results[1]}, [&](ValueRange ofHead) -> SmallVector<Value> {
    return {ofHead[0], storeState(ofHead[0], ofHead[1], 0)};
  })[1];
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
  bool isRead = onDevice && hasSplitForm(); // before the final state is written
  if (isInPlace() && linear.getState() && !isRead)
    (*inits)[1] = tensor::CastOp::create(b, loc, (*inits)[1].getType(), linear.getState());
  rewriter.replaceOp(op, hasSplitForm() ? emitForms(*inits) : emitHeads(*inits));
  return success();
}

SmallVector<Value> LinearForwardTasks::emitHeads(ValueRange inits) {
  auto places = [&]() -> SmallVector<Place> {
    SmallVector<Place> found = {placeOfQueries(op.getOutputDims(), valueDepth)};
    if (linear.getFinalState())
      found.push_back(placeOfState(valueDepth + (linear.getNormalize() ? 1 : 0)));
    return found;
  };
  auto body = [&](ValueRange parts) { return emitTask(parts); };
  return SmallVector<Value>(overTasks("linear_attention", inits, places, body).getResults());
}
