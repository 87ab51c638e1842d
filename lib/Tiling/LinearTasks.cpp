//===- LinearTasks.cpp - The tasks of linear attention ------------------------===//
//
// Emits the loops over tasks and chunks, and the computations of a chunk that forward and gradient share.
//
//===----------------------------------------------------------------------===//
#include "LinearTasks.h"
#include "Sequences.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The largest head size of keys with 64 positions in a chunk on a GPU, if rows of the state decay on their own.
static constexpr int64_t smallDepth = 32;

FloatType saccade::getProductType(LinearOpInterface op) {
  Type element = getElementTypeOrSelf(op.getQuery());
  return element.isBF16() ? cast<FloatType>(element) : op.getStateType();
}

LinearTasks::LinearTasks(IRRewriter &rewriter, LinearOpInterface op, bool onDevice)
    : ChunkEmitter(rewriter, op.getLoc(), op.getStateType(), getProductType(op)), rewriter(rewriter), op(op),
      onDevice(onDevice) {
  // What a chunk of 64 positions needs beside a large state would not fit in shared memory.
  if (onDevice && op.hasMatrixDecay() && getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth) > smallDepth)
    rows = 32;
}

LogicalResult LinearTasks::checkSizes() {
  depth = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
  valueDepth = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  for (auto [role, extent] : {std::pair("key", depth), std::pair("value", valueDepth)}) {
    if (ShapedType::isDynamic(extent))
      return op->emitOpError() << "head size of " << role << " is dynamic, expected a static one";
    if (extent == 0)
      return op->emitOpError() << "head size of " << role << " is 0, expected at least 1";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

FailureOr<SmallVector<Value>> LinearTasks::prepare(unsigned filledResults, bool &isEmpty) {
  if (failed(checkSizes()))
    return failure();
  SmallVector<Value> inits;
  b.setInsertionPoint(op);
  if (failed(tensor::getOrCreateDestinations(b, loc, op, inits)))
    return op->emitOpError() << "has results of unknown shape, expected shapes derived from the operands";
  for (auto [init, result] :
       llvm::zip_equal(inits, op->getResults())) // an operand may tell an extent that a result hides
    if (init.getType() != result.getType())
      init = tensor::CastOp::create(b, loc, result.getType(), init);
  auto hasNone = [](Value tensor, DimsAttr dims) {
    return getStaticDimSize(tensor, dims, Dim::Batch) == 0 || getStaticDimSize(tensor, dims, Dim::Head) == 0;
  };
  batches = getBatches(b, op);
  isEmpty = isConstantIntValue(batches, 0) || hasNone(op.getQuery(), op.getQueryDims()) ||
            hasNone(op.getKey(), op.getKeyDims()) || hasNone(op.getValue(), op.getValueDims());
  if (isEmpty)
    return inits;
  if (op.getCuSeqlens() || op.getKvLen())
    for (Value &init : MutableArrayRef(inits).take_front(filledResults))
      init = StructuredEmitter::filled(init, 0.0);
  if (op.getCuSeqlens())
    starts = emitStarts(b, loc, op.getCuSeqlens(), asIndex(getBatches(b, op)),
                        extentOf(op.getValue(), op.getValueDims(), Dim::Seq), onDevice);
  return inits;
}

void LinearTasks::beginTask(scf::ForallOp loop) {
  sequence = loop.getInductionVar(0);
  stateHead = firstHead = heads == 1 ? Value(loop.getInductionVar(1)) : mul(loop.getInductionVar(1), heads);
  headInTask = firstColumn = index(0);
  partOfTask = loop.getRank() == 3 ? Value(loop.getInductionVar(2)) : Value();
  taskColumns = valueDepth;
  start = Value();
  length = getDimSize(b, loc, op.getValue(), op.getValueDims(), Dim::Seq);
  if (starts) {
    start = tensor::ExtractOp::create(b, loc, starts, sequence);
    Value end = tensor::ExtractOp::create(b, loc, starts, ValueRange{add(sequence, 1)});
    length = getAsOpFoldResult(sub(end, start));
  } else if (Value lengths = op.getKvLen()) {
    Value given = IndexEmitter::asIndex(tensor::ExtractOp::create(b, loc, lengths, sequence).getResult());
    length = getAsOpFoldResult(max(index(0), min(given, asIndex(length))));
  }
  if (getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Seq) == 0)
    length = b.getIndexAttr(0);
  // Neither divisor is zero inside of a task.
  Value heads = extentOf(op.getValue(), op.getValueDims(), Dim::Head),
        queries = extentOf(op.getQuery(), op.getQueryDims(), Dim::Head);
  group = max(div(queries, heads), index(1));
  repetitions = max(div(heads, queries), index(1));
}

scf::ForallOp LinearTasks::overTasks(StringRef name, ValueRange inits, Places places, TaskBody body,
                                     OpFoldResult parts) {
  OpFoldResult states = getDimSize(b, loc, op.getValue(), op.getValueDims(), Dim::Head);
  SmallVector<OpFoldResult> tasks = {
      batches, heads == 1 ? states : OpFoldResult(b.getIndexAttr(*getConstantIntValue(states) / heads))};
  if (parts)
    tasks.push_back(parts);
  auto loop = scf::ForallOp::create(b, loc, tasks, inits, taskMapping(b.getContext(), tasks.size()));
  loop->setAttr(tiledFromAttr, b.getStringAttr(name));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  beginTask(loop);
  SmallVector<Place> at = places();
  SmallVector<Value> slices;
  for (auto [shared, place] : llvm::zip_equal(loop.getRegionIterArgs(), at))
    slices.push_back(llvm::is_contained(cast<ShapedType>(shared.getType()).getShape(), 0) ? Value(shared)
                                                                                          : slice(shared, place));
  SmallVector<Value> results = body(slices);
  b.setInsertionPointToEnd(loop.getTerminator().getBody());
  for (auto [result, shared, place] : llvm::zip_equal(results, loop.getRegionIterArgs(), at))
    if (result != shared)
      tensor::ParallelInsertSliceOp::create(b, loc, result, shared, place.offsets, place.sizes,
                                            SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
  return loop;
}

void LinearTasks::beginChunk(Value begin) {
  std::optional<int64_t> known = getConstantIntValue(length);
  bool isFixed = known && (*known <= rows || *known % rows == 0);
  present = isFixed ? OpFoldResult(b.getIndexAttr(std::min(*known, rows)))
                    : OpFoldResult(min(sub(asIndex(length), begin), index(rows)));
  size = arePadded && !isFixed ? OpFoldResult(b.getIndexAttr(rows)) : present;
}

SmallVector<Value> LinearTasks::overChunks(bool isForward, ValueRange inits, CarryingBody body, Value first,
                                           Value end) {
  if (getConstantIntValue(length) == 0)
    return SmallVector<Value>(inits);
  Value positions = asIndex(length);
  Value from = first ? first : index(0), to = end ? min(positions, end) : positions;
  return loop(from, to, rows, inits, [&](Value begin, ValueRange carried) {
    if (!isForward)
      begin = sub(mul(div(sub(positions, index(1)), rows), rows), begin);
    beginChunk(begin);
    return body(begin, carried);
  });
}

SmallVector<Value> LinearTasks::overQueryHeads(ValueRange inits,
                                               llvm::function_ref<SmallVector<Value>(Value, Value, ValueRange)> body) {
  if (getConstantIntValue(group) == 1)
    return body(div(stateHead, repetitions), headInTask, inits);
  return loop(index(0), group, 1, inits, [&](Value member, ValueRange carried) {
    return body(div(add(mul(stateHead, group), member), repetitions), member, carried);
  });
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

Value LinearTasks::decayState(const Chunk &chunk, Value state) {
  if (!chunk.decay.whole)
    return state;
  return scaled(state, {chunk.decay.whole, chunk.decay.loopsOfWhole(0)});
}

Value LinearTasks::productsWithKeys(Value x, const Chunk &chunk) {
  if (op.hasMatrixDecay())
    return decayedScores(x, chunk.keys, chunk.decay.each)[0];
  return matmul({x, {0, 2}}, {chunk.keys, {1, 2}}, filled({-1, -1}, 0.0));
}

Value LinearTasks::scores(Value queries, const Chunk &chunk, double scale) {
  Value products = chunk.queryProducts ? chunk.queryProducts : productsWithKeys(queries, chunk);
  return weighted(products, heads > 1 && chunk.queryProducts, chunk, /*isStrict=*/false, scale, /*factor=*/Value(), 0);
}

Value LinearTasks::negativeSystem(const Chunk &chunk, bool ofEarlier) {
  Value products = chunk.eraseProducts ? chunk.eraseProducts : productsWithKeys(chunk.erase, chunk);
  return weighted(products, heads > 1 && chunk.eraseProducts, chunk, /*isStrict=*/true, -1, chunk.beta,
                  ofEarlier ? 1 : 0);
}

Value LinearTasks::weighted(Value products, bool areShared, const Chunk &chunk, bool isStrict, double scale,
                            Value factor, unsigned loopOfFactor) {
  SmallVector<IndexedOperand> inputs;
  if (chunk.decay.between)
    inputs.push_back({chunk.decay.between, {0, 1}});
  if (factor)
    inputs.push_back({factor, {loopOfFactor}});
  bool isMasked = isStrict || (!chunk.decay.between && !op.hasMatrixDecay());
  if (inputs.empty() && !isMasked && scale == 1)
    return products;
  // The last argument is the element of the products.
  SmallVector<IndexedOperand> outputs = {{products, {0, 1}}};
  if (areShared) {
    inputs.push_back({products, {0, 1}});
    outputs = {{temporary({-1, -1}), {0, 1}}};
  }
  return apply(2, 0, inputs, outputs, [&](ValueRange args) -> SmallVector<Value> {
    if (areShared)
      args = args.drop_back();
    Value element = args.back();
    for (Value each : args.drop_back())
      element = arith::MulFOp::create(b, loc, element, each);
    if (scale != 1)
      element = arith::MulFOp::create(b, loc, element, scalar(scale));
    return {isMasked ? elementOfTriangle(element, isStrict) : element};
  })[0];
}

Value LinearTasks::remainders(const Chunk &chunk, Value state) {
  // v − Sᵀ e, before the writes of the chunk.
  // An elementwise op without effect would be folded, and the values may be a slice of the caller's tensor.
  Value errors = temporary({-1, taskColumns});
  if (getElementTypeOrSelf(chunk.values) == type)
    errors = linalg::CopyOp::create(b, loc, chunk.values, errors).getResult(0);
  else
    errors = apply(2, 0, {{chunk.values, {0, 1}}}, {{errors, {0, 1}}},
                   [&](ValueRange args) -> SmallVector<Value> { return {convert(args[0], type)}; })[0];
  Value erase = decayed(chunk.erase, chunk.decay, chunk.decay.entering, depth, /*scale=*/-1);
  errors = matmul({erase, {0, 2}}, {state, {2, 1}}, errors);
  Value solved = inverse(negativeSystem(chunk, /*ofEarlier=*/true));
  return matmul({solved, {0, 2}}, {errors, {2, 1}}, filled({-1, taskColumns}, 0.0));
}

Value LinearTasks::timesBeta(const Chunk &chunk, Value x) {
  if (!chunk.beta)
    return x;
  return apply(
      2, 0, {{x, {0, 1}}, {chunk.beta, {0}}}, {{temporary({-1, taskColumns}), {0, 1}}},
      [&](ValueRange args) -> SmallVector<Value> { return {arith::MulFOp::create(b, loc, args[0], args[1])}; })[0];
}
