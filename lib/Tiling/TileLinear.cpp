//===- TileLinear.cpp - Tile linear attention into tasks and chunks -----------===//
//
// Replaces attn.linear by a parallel loop over batches and heads of states whose tasks carry the state through chunks
// of positions (the chunked form of Yang et al. 2024). It corresponds to TileQueries and TileKeys for attn.attention.
//
//===----------------------------------------------------------------------===//
#include "LinearTasks.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_TILELINEAR
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Positions per chunk. With 64 the matmuls within a chunk cost about as much as those with the state.
static constexpr int64_t chunkRows = 64;
/// Positions per chunk if the decay differs by row or column of the state: the computation within a chunk is then not a
/// matmul.
static constexpr int64_t chunkRowsOfMatrixDecay = 16;

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

SmallVector<Value> LinearTasks::overChunks(OpFoldResult positions, ValueRange inits, CarryingBody body) {
  std::optional<int64_t> known = getConstantIntValue(positions);
  if (known == 0)
    return SmallVector<Value>(inits);
  return loop(index(0), asIndex(positions), rows, inits, [&](Value begin, ValueRange carried) {
    if (isTransposed) {
      Value last =
          mul(b.createOrFold<arith::DivUIOp>(loc, sub(asIndex(positions), index(1)), index(rows)), index(rows));
      begin = sub(last, begin);
    }
    bool isFixed = known && (*known <= rows || *known % rows == 0);
    size = isFixed ? OpFoldResult(b.getIndexAttr(std::min(*known, rows)))
                   : OpFoldResult(min(sub(asIndex(positions), begin), index(rows)));
    return body(begin, carried);
  });
}

SmallVector<Value> LinearTasks::overHeads(bool isQuery, ValueRange inits,
                                          llvm::function_ref<SmallVector<Value>(Value, Value, ValueRange)> body) {
  if (isQuery == isTransposed)
    return body(taskHead, index(0), inits);
  return loop(index(0), group, 1, inits, [&](Value member, ValueRange carried) {
    return body(add(mul(taskHead, group), member), member, carried);
  });
}

LinearTasks::Chunk LinearTasks::loadDecay(Value begin) {
  Chunk chunk;
  if (!op.getDecay())
    return chunk;
  chunk.decay = loadFactor(op.getDecay(), op.getDecayAxesAttr(), begin, /*isDecay=*/true);
  Value wide = chunk.decay;
  if (!hasMatrixDecay()) {
    wide = apply(2, 0, {{chunk.decay, {0}}}, {{temporary({-1, factors}), {0, 1}}},
                 [&](ValueRange args) -> SmallVector<Value> { return {args[0]}; })[0];
    chunk.between = decayMask(chunk.decay);
  }
  chunk.entering = cumulativeProducts(wide, factors, /*isForward=*/true);
  chunk.leaving = cumulativeProducts(wide, factors, /*isForward=*/false);
  chunk.whole = row(chunk.entering, sub(asIndex(size), index(1)));
  // The transposed state decays after the read and the write of a position.
  if (isTransposed)
    std::swap(chunk.entering, chunk.leaving);
  return chunk;
}

void LinearTasks::loadKeys(Chunk &chunk, Value head, Value begin) {
  chunk.keys = loadRows(op.getKey(), op.getKeyDims(), head, begin, /*isFeature=*/true);
  chunk.values = loadRows(op.getValue(), op.getValueDims(), head, begin, /*isFeature=*/false);
  if (op.getBeta())
    chunk.beta = loadFactor(op.getBeta(), op.getBetaAxesAttr(), begin, /*isDecay=*/false);
}

Value LinearTasks::scores(Value later, Value earlier, const Chunk &chunk) {
  if (hasMatrixDecay() && !op.getDecaysColumns())
    return decayedMatmul(later, earlier, chunk.decay, depth);
  Value products = matmul({later, {0, 2}}, {earlier, {1, 2}}, filled({-1, -1}, 0.0));
  if (chunk.between)
    return scaled(products, {chunk.between, {0, 1}});
  return apply(2, 0, {}, {{products, {0, 1}}}, [&](ValueRange args) -> SmallVector<Value> {
    Value i = linalg::IndexOp::create(b, loc, 0), j = linalg::IndexOp::create(b, loc, 1);
    return {select(isLess(i, j), scalar(0.0), args[0])};
  })[0];
}

Value LinearTasks::decayed(Value x, Value decay) {
  if (!decay)
    return x;
  return apply(
      2, 0, {{x, {0, 1}}, {decay, {0, 1}}}, {{temporary({-1, factors}), {0, 1}}},
      [&](ValueRange args) -> SmallVector<Value> { return {arith::MulFOp::create(b, loc, args[0], args[1])}; })[0];
}

/// Replaces the values by those that the delta rule writes: beta · (v − prediction), where the prediction is the state
/// read at the key.
void LinearTasks::applyDeltaRule(Chunk &chunk, const State &state) {
  Value keys = decayed(chunk.keys, chunk.entering);
  Value predictions = matmul({keys, {0, 2}}, {state.products, {2, 1}}, filled({-1, valueDepth}, 0.0));
  // Not in place: values without conversion are slices of the caller's tensor.
  Value values = apply(2, 0, {{chunk.values, {0, 1}}, {predictions, {0, 1}}, {chunk.beta, {0}}},
                       {{temporary({-1, valueDepth}), {0, 1}}}, [&](ValueRange args) -> SmallVector<Value> {
                         Value error = arith::SubFOp::create(b, loc, args[0], args[1]);
                         return {arith::MulFOp::create(b, loc, error, args[2])};
                       })[0];
  chunk.values = solveTriangular(scores(chunk.keys, chunk.keys, chunk), chunk.beta, values, valueDepth);
}

LinearTasks::State LinearTasks::decayState(const Chunk &chunk, State state) {
  if (!chunk.whole)
    return state;
  state.products = scaled(state.products, {chunk.whole, {op.getDecaysColumns() ? 1u : 0u}});
  if (state.sum)
    state.sum = scaled(state.sum, {chunk.whole, {0}});
  return state;
}

LinearTasks::State LinearTasks::write(const Chunk &chunk, State state) {
  Value keys = decayedRows(chunk.keys, chunk.leaving), values = decayedColumns(chunk.values, chunk.leaving);
  state.products = matmul({keys, {2, 0}}, {values, {2, 1}}, state.products);
  if (state.sum)
    state.sum = rowSums({{keys, {1, 0}}}, state.sum);
  return state;
}

Value LinearTasks::readChunk(Value within, const Chunk &chunk, Value sums) {
  if (op.getDecaysColumns())
    return decayedSums(within, chunk.values, chunk.decay, valueDepth, /*isForward=*/!isTransposed, sums);
  SmallVector<unsigned> loops = isTransposed ? SmallVector<unsigned>{2, 0} : SmallVector<unsigned>{0, 2};
  return matmul({within, loops}, {chunk.values, {2, 1}}, sums);
}

Value LinearTasks::storeOutput(Value output, Value member, Value begin, ArrayRef<IndexedOperand> sums) {
  Type element = getElementTypeOrSelf(output);
  // The output of the task is a slice of one batch.
  Rows place = rowsAt(op.getOutputDims().getDims(), b.getIndexAttr(0), member, begin, valueDepth);
  Value to = slice(output, place.offsets, place.sizes, place.isKept);
  Value done = apply(2, 0, sums, {{to, place.loops}}, [&](ValueRange args) -> SmallVector<Value> {
    Value result = args[0];
    if (sums.size() == 2) {
      Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[1], scalar(0.0));
      Value quotient = arith::DivFOp::create(b, loc, result, select(isZero, scalar(1.0), args[1]));
      result = select(isZero, scalar(0.0), quotient);
    } else if (op.getScale()) {
      result = arith::MulFOp::create(b, loc, result, scalar(op.getScale()->convertToDouble()));
    }
    return {convert(result, element)};
  })[0];
  SmallVector<OpFoldResult> ones(place.sizes.size(), b.getIndexAttr(1));
  return tensor::InsertSliceOp::create(b, loc, done, output, place.offsets, place.sizes, ones);
}

Value LinearTasks::read(Value output, Value begin, const Chunk *chunk, const State &state) {
  auto readHead = [&](Value head, Value member, ValueRange carried) -> SmallVector<Value> {
    Value queries = loadRows(op.getQuery(), op.getQueryDims(), head, begin, /*isFeature=*/true);
    Value entering = chunk ? chunk->entering : Value(), decayedQueries = decayedRows(queries, entering);
    Value sums = matmul({decayedQueries, {0, 2}}, {state.products, {2, 1}}, filled({-1, valueDepth}, 0.0));
    sums = decayedColumns(sums, entering);
    Value within = chunk ? scores(queries, chunk->keys, *chunk) : Value();
    if (chunk)
      sums = readChunk(within, *chunk, sums);
    SmallVector<IndexedOperand> inputs = {{sums, {0, 1}}};
    if (state.sum) {
      Value divisors = rowSums({{decayedQueries, {0, 1}}, {state.sum, {1}}}, filled({-1}, 0.0));
      inputs.push_back({chunk ? rowSums({{within, {0, 1}}}, divisors) : divisors, {0}});
    }
    return {storeOutput(carried[0], member, begin, inputs)};
  };
  return overHeads(/*isQuery=*/true, {output}, readHead)[0];
}

SmallVector<Value> LinearTasks::visit(Value begin, const State &state, Value output) {
  Chunk chunk = loadDecay(begin);
  loadKeys(chunk, taskHead, begin);
  if (op.getBeta())
    applyDeltaRule(chunk, state);
  output = read(output, begin, &chunk, state);
  SmallVector<Value> next = valuesOf(write(chunk, decayState(chunk, state)));
  next.push_back(output);
  return next;
}

SmallVector<Value> LinearTasks::visitTransposed(Value begin, const State &state, Value output) {
  Chunk chunk = loadDecay(begin);
  Value queries = loadRows(op.getQuery(), op.getQueryDims(), taskHead, begin, /*isFeature=*/true);
  Value sums =
      matmul({decayedRows(queries, chunk.entering), {0, 2}}, {state.products, {2, 1}}, filled({-1, valueDepth}, 0.0));
  SmallVector<Value> carried = {decayedColumns(sums, chunk.entering), decayState(chunk, state).products};
  auto addHead = [&](Value head, Value, ValueRange before) -> SmallVector<Value> {
    loadKeys(chunk, head, begin);
    Value read = readChunk(scores(chunk.keys, queries, chunk), chunk, before[0]);
    return {read, write(chunk, {before[1], Value()}).products};
  };
  carried = overHeads(/*isQuery=*/false, carried, addHead);
  return {carried[1], storeOutput(output, index(0), begin, {{carried[0], {0, 1}}})};
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

void LinearTasks::emitTask(scf::ForallOp loop) {
  batch = loop.getInductionVar(0), taskHead = loop.getInductionVar(1);
  OpFoldResult queries = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Seq),
               keys = sizeOf(op.getKey(), op.getKeyDims(), Dim::Seq);
  // The divisor is not zero inside of a task.
  group = b.createOrFold<arith::DivUIOp>(loc, asIndex(sizeOf(op.getGrouped(), Dim::Head)),
                                         asIndex(sizeOf(op.getStateOwner(), Dim::Head)));
  Value outputHeads = isTransposed ? index(1) : group;

  struct Place {
    SmallVector<OpFoldResult> offsets, sizes;
  };
  SmallVector<Place> places(loop.getRegionIterArgs().size());
  for (Dim dim : op.getOutputDims().getDims()) {
    bool isBatch = dim == Dim::Batch, isHead = dim == Dim::Head;
    places[0].offsets.push_back(isBatch  ? OpFoldResult(batch)
                                : isHead ? OpFoldResult(mul(taskHead, outputHeads))
                                         : b.getIndexAttr(0));
    places[0].sizes.push_back(isBatch           ? OpFoldResult(b.getIndexAttr(1))
                              : isHead          ? getAsOpFoldResult(outputHeads)
                              : dim == Dim::Seq ? queries
                                                : b.getIndexAttr(valueDepth));
  }
  if (op.getFinalState()) {
    for (Dim dim : op.getStateDims()) {
      places[1].offsets.push_back(dim == Dim::Batch ? batch : taskHead);
      places[1].sizes.push_back(b.getIndexAttr(1));
    }
    places[1].offsets.append(2, b.getIndexAttr(0));
    places[1].sizes.append({b.getIndexAttr(depth), b.getIndexAttr(valueDepth + (op.getNormalize() ? 1 : 0))});
  }
  // A statically empty output has no slices.
  bool isEmpty = getConstantIntValue(queries) == 0;
  SmallVector<Value> results;
  for (auto [shared, place] : llvm::zip_equal(loop.getRegionIterArgs(), places))
    results.push_back(isEmpty && results.empty()
                          ? Value(shared)
                          : slice(shared, place.offsets, place.sizes, SmallVector<bool>(place.sizes.size(), true)));

  SmallVector<Value> carried = valuesOf(initialState());
  if (op.getCausal()) {
    carried.push_back(results[0]);
    carried = overChunks(keys, carried, [&](Value begin, ValueRange before) {
      State state = stateOf(before);
      return isTransposed ? visitTransposed(begin, state, before.back()) : visit(begin, state, before.back());
    });
    results[0] = carried.pop_back_val();
  } else {
    carried = overChunks(keys, carried, [&](Value begin, ValueRange before) {
      return overHeads(/*isQuery=*/false, before, [&](Value head, Value, ValueRange sums) {
        Chunk chunk;
        loadKeys(chunk, head, begin);
        return valuesOf(write(chunk, stateOf(sums)));
      });
    });
    results[0] = overChunks(queries, {results[0]}, [&](Value begin, ValueRange before) -> SmallVector<Value> {
      return {read(before[0], begin, /*chunk=*/nullptr, stateOf(carried))};
    })[0];
  }
  if (op.getFinalState())
    results[1] = storeState(stateOf(carried), results[1]);

  b.setInsertionPointToEnd(loop.getTerminator().getBody());
  for (auto [result, shared, place] : llvm::zip_equal(results, loop.getRegionIterArgs(), places))
    if (result != shared)
      tensor::ParallelInsertSliceOp::create(b, loc, result, shared, place.offsets, place.sizes,
                                            SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
}

LogicalResult LinearTasks::rewrite() {
  depth = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
  valueDepth = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  for (auto [role, size] : {std::pair("key", depth), std::pair("value", valueDepth)}) {
    if (ShapedType::isDynamic(size))
      return op.emitOpError() << "head size of " << role << " is dynamic, expected a static one";
    if (size == 0)
      return op.emitOpError() << "head size of " << role << " is 0, expected at least 1";
  }
  SmallVector<Value> inits;
  b.setInsertionPoint(op);
  if (failed(tensor::getOrCreateDestinations(b, loc, op, inits)))
    return op.emitOpError() << "has results of unknown shape, expected shapes derived from the operands";
  rows = hasMatrixDecay() ? chunkRowsOfMatrixDecay : chunkRows;
  factors = op.getDecaysColumns() ? valueDepth : depth;
  SmallVector<OpFoldResult> tasks = {sizeOf(op.getQuery(), op.getQueryDims(), Dim::Batch),
                                     sizeOf(op.getStateOwner(), Dim::Head)};
  if (llvm::any_of(tasks, [](OpFoldResult count) { return isConstantIntValue(count, 0); })) {
    rewriter.replaceOp(op, inits); // without elements
    return success();
  }
  auto loop = scf::ForallOp::create(b, loc, tasks, inits, taskMapping(b.getContext(), tasks.size()));
  loop->setAttr(tiledFromAttr, b.getStringAttr("linear_attention"));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    emitTask(loop);
  }
  rewriter.replaceOp(op, loop.getResults());
  return success();
}

namespace {

struct TileLinear : saccade::impl::TileLinearBase<TileLinear> {
  void runOnOperation() override {
    SmallVector<LinearOp> ops;
    getOperation().walk([&](LinearOp op) { ops.push_back(op); });
    for (LinearOp op : ops) {
      IRRewriter rewriter(op);
      if (failed(LinearTasks(rewriter, op).rewrite()))
        return signalPassFailure();
    }
  }
};

} // namespace
