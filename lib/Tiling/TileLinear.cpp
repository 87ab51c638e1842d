//===- TileLinear.cpp - Tile linear attention into tasks and chunks -----------===//
//
// Replaces attn.linear by a parallel loop over batches and KV heads whose tasks carry the state through chunks of
// positions (the chunked form of Yang et al. 2024). It corresponds to TileQueries and TileKeys for attn.attention.
//
//===----------------------------------------------------------------------===//
#include "LinearChunk.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
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
/// Positions per chunk if the decay differs by row of the state: the computation within a chunk is then not a matmul.
static constexpr int64_t chunkRowsOfRowDecay = 16;

namespace {

/// Lowers one op.
class LinearTasks : ChunkEmitter {
public:
  LinearTasks(IRRewriter &rewriter, LinearOp op)
      : ChunkEmitter(rewriter, op.getLoc(), op.getStateType(), 0), rewriter(rewriter), op(op) {}
  LogicalResult rewrite();

private:
  /// Σ φ(k) ⊗ v so far, and Σ φ(k) if outputs are normalized, else null.
  struct State {
    Value products, sum;
  };
  /// The operands of a chunk of keys and its cumulative decays.
  struct Chunk {
    Value keys, values, beta;
    Value decay;   ///< of each position, [positions] or, if it differs by row, [positions, depth]; null without
    Value between; ///< from each position to each later one, [positions, positions]; null if decay differs by row
    Value up;      ///< decay from the beginning of the chunk up to each position, [positions, depth]
    Value down;    ///< from each position to the end of the chunk
  };

  void emitTask(scf::ForallOp loop);
  Chunk loadChunk(Value begin);
  /// The decayed scores x · keysᵀ, [positions, positions], 0 above the diagonal.
  Value scores(Value x, const Chunk &chunk);
  /// x · decay, [positions, depth]; x without decay.
  Value decayed(Value x, Value decay);
  void applyDeltaRule(Chunk &chunk, const State &state);
  State write(const Chunk &chunk, State state);
  /// Computes the outputs of all query heads of this KV head for the chunk at `begin`. `chunk` holds its keys, or null
  /// if the state includes all keys.
  Value read(Value output, Value begin, const Chunk *chunk, const State &state);

  State initialState();
  Value storeState(const State &state, Value into);

  /// The rank-reducing slice of a chunk in a tensor, and the loops that index its kept dimensions.
  struct Rows {
    SmallVector<OpFoldResult> offsets, sizes;
    SmallVector<bool> isKept;
    SmallVector<unsigned> loops;
  };
  Rows rowsAt(ArrayRef<Dim> dims, OpFoldResult inBatch, Value head, Value begin, int64_t columns);
  Value loadRows(Value tensor, DimsAttr dims, Value head, Value begin, bool isFeature);
  Value loadFactor(Value tensor, AxesAttr axes, Value begin, bool isDecay);
  /// Runs `body` over chunks of [0, positions) with `size` set.
  SmallVector<Value> overChunks(OpFoldResult positions, ValueRange inits, CarryingBody body);
  OpFoldResult sizeOf(Value value, DimsAttr dims, Dim dim) { return getDimSize(b, loc, value, dims, dim); }
  State stateOf(ValueRange carried) { return {carried[0], op.getNormalize() ? carried[1] : Value()}; }
  SmallVector<Value> valuesOf(const State &state) {
    return state.sum ? SmallVector<Value>{state.products, state.sum} : SmallVector<Value>{state.products};
  }
  bool hasRowDecay() { return op.getDecay() && op.getDecayAxesAttr().position(Dim::Depth); }

  IRRewriter &rewriter;
  LinearOp op;
  int64_t depth = 0, valueDepth = 0;
  Value batch, kvHead, group; ///< indices of the task; query heads per KV head
};

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
  Rows place = rowsAt(axes.getDims(), batch, kvHead, begin, depth);
  Value source = slice(tensor, place.offsets, place.sizes, place.isKept);
  IndexedOperand to = isMatrix ? IndexedOperand{temporary({-1, depth}), {0, 1}} : IndexedOperand{temporary({-1}), {0}};
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
    offsets.push_back(dim == Dim::Batch ? batch : kvHead), sizes.push_back(b.getIndexAttr(1));
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

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

SmallVector<Value> LinearTasks::overChunks(OpFoldResult positions, ValueRange inits, CarryingBody body) {
  std::optional<int64_t> known = getConstantIntValue(positions);
  if (known == 0)
    return SmallVector<Value>(inits);
  return loop(index(0), asIndex(positions), rows, inits, [&](Value begin, ValueRange carried) {
    bool isFixed = known && (*known <= rows || *known % rows == 0);
    size = isFixed ? OpFoldResult(b.getIndexAttr(std::min(*known, rows)))
                   : OpFoldResult(min(sub(asIndex(positions), begin), index(rows)));
    return body(begin, carried);
  });
}

LinearTasks::Chunk LinearTasks::loadChunk(Value begin) {
  Chunk chunk;
  chunk.keys = loadRows(op.getKey(), op.getKeyDims(), kvHead, begin, /*isFeature=*/true);
  chunk.values = loadRows(op.getValue(), op.getValueDims(), kvHead, begin, /*isFeature=*/false);
  if (op.getBeta())
    chunk.beta = loadFactor(op.getBeta(), op.getBetaAxesAttr(), begin, /*isDecay=*/false);
  if (!op.getDecay())
    return chunk;
  chunk.decay = loadFactor(op.getDecay(), op.getDecayAxesAttr(), begin, /*isDecay=*/true);
  Value wide = chunk.decay;
  if (!hasRowDecay()) {
    wide = apply(2, 0, {{chunk.decay, {0}}}, {{temporary({-1, depth}), {0, 1}}},
                 [&](ValueRange args) -> SmallVector<Value> { return {args[0]}; })[0];
    chunk.between = decayMask(chunk.decay);
  }
  chunk.up = cumulativeProducts(wide, depth, /*isForward=*/true);
  chunk.down = cumulativeProducts(wide, depth, /*isForward=*/false);
  return chunk;
}

Value LinearTasks::scores(Value x, const Chunk &chunk) {
  if (hasRowDecay())
    return decayedMatmul(x, chunk.keys, chunk.decay, depth);
  Value products = matmul({x, {0, 2}}, {chunk.keys, {1, 2}}, filled({-1, -1}, 0.0));
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
      2, 0, {{x, {0, 1}}, {decay, {0, 1}}}, {{temporary({-1, depth}), {0, 1}}},
      [&](ValueRange args) -> SmallVector<Value> { return {arith::MulFOp::create(b, loc, args[0], args[1])}; })[0];
}

/// Replaces the values by those that the delta rule writes: beta · (v − prediction), where the prediction is the state
/// read at the key.
void LinearTasks::applyDeltaRule(Chunk &chunk, const State &state) {
  Value keys = decayed(chunk.keys, chunk.up);
  Value predictions = matmul({keys, {0, 2}}, {state.products, {2, 1}}, filled({-1, valueDepth}, 0.0));
  // Not in place: values without conversion are slices of the caller's tensor.
  Value values = apply(2, 0, {{chunk.values, {0, 1}}, {predictions, {0, 1}}, {chunk.beta, {0}}},
                       {{temporary({-1, valueDepth}), {0, 1}}}, [&](ValueRange args) -> SmallVector<Value> {
                         Value error = arith::SubFOp::create(b, loc, args[0], args[1]);
                         return {arith::MulFOp::create(b, loc, error, args[2])};
                       })[0];
  chunk.values = solveTriangular(scores(chunk.keys, chunk), chunk.beta, values, valueDepth);
}

LinearTasks::State LinearTasks::write(const Chunk &chunk, State state) {
  if (chunk.up) {
    Value last = row(chunk.up, sub(asIndex(size), index(1)));
    state.products = scaled(state.products, {last, {0}});
    if (state.sum)
      state.sum = scaled(state.sum, {last, {0}});
  }
  Value keys = decayed(chunk.keys, chunk.down);
  state.products = matmul({keys, {2, 0}}, {chunk.values, {2, 1}}, state.products);
  if (state.sum)
    state.sum = rowSums({{keys, {1, 0}}}, state.sum);
  return state;
}

Value LinearTasks::read(Value output, Value begin, const Chunk *chunk, const State &state) {
  Type element = getElementTypeOrSelf(output);
  return loop(index(0), group, 1, {output}, [&](Value member, ValueRange carried) -> SmallVector<Value> {
    Value head = add(mul(kvHead, group), member);
    Value queries = loadRows(op.getQuery(), op.getQueryDims(), head, begin, /*isFeature=*/true);
    Value decayedQueries = decayed(queries, chunk ? chunk->up : Value());
    Value sums = matmul({decayedQueries, {0, 2}}, {state.products, {2, 1}}, filled({-1, valueDepth}, 0.0));
    Value within = chunk ? scores(queries, *chunk) : Value();
    if (chunk)
      sums = matmul({within, {0, 2}}, {chunk->values, {2, 1}}, sums);
    SmallVector<IndexedOperand> inputs = {{sums, {0, 1}}};
    if (state.sum) {
      Value divisors = rowSums({{decayedQueries, {0, 1}}, {state.sum, {1}}}, filled({-1}, 0.0));
      inputs.push_back({chunk ? rowSums({{within, {0, 1}}}, divisors) : divisors, {0}});
    }
    // The output of the task is a slice of one batch.
    Rows place = rowsAt(op.getOutputDims().getDims(), b.getIndexAttr(0), member, begin, valueDepth);
    Value to = slice(carried[0], place.offsets, place.sizes, place.isKept);
    Value done = apply(2, 0, inputs, {{to, place.loops}}, [&](ValueRange args) -> SmallVector<Value> {
      Value result = args[0];
      if (state.sum) {
        Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[1], scalar(0.0));
        Value quotient = arith::DivFOp::create(b, loc, result, select(isZero, scalar(1.0), args[1]));
        result = select(isZero, scalar(0.0), quotient);
      } else if (op.getScale()) {
        result = arith::MulFOp::create(b, loc, result, scalar(op.getScale()->convertToDouble()));
      }
      return {convert(result, element)};
    })[0];
    SmallVector<OpFoldResult> ones(place.sizes.size(), b.getIndexAttr(1));
    return {tensor::InsertSliceOp::create(b, loc, done, carried[0], place.offsets, place.sizes, ones)};
  })[0];
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

void LinearTasks::emitTask(scf::ForallOp loop) {
  batch = loop.getInductionVar(0), kvHead = loop.getInductionVar(1);
  OpFoldResult queries = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Seq),
               keys = sizeOf(op.getKey(), op.getKeyDims(), Dim::Seq);
  // The number of KV heads is not zero inside of a task.
  Value kvHeads = asIndex(sizeOf(op.getKey(), op.getKeyDims(), Dim::Head));
  group = b.createOrFold<arith::DivUIOp>(loc, asIndex(sizeOf(op.getQuery(), op.getQueryDims(), Dim::Head)), kvHeads);

  struct Place {
    SmallVector<OpFoldResult> offsets, sizes;
  };
  SmallVector<Place> places(loop.getRegionIterArgs().size());
  for (Dim dim : op.getOutputDims().getDims()) {
    bool isBatch = dim == Dim::Batch, isHead = dim == Dim::Head;
    places[0].offsets.push_back(isBatch  ? OpFoldResult(batch)
                                : isHead ? OpFoldResult(mul(kvHead, group))
                                         : b.getIndexAttr(0));
    places[0].sizes.push_back(isBatch           ? OpFoldResult(b.getIndexAttr(1))
                              : isHead          ? getAsOpFoldResult(group)
                              : dim == Dim::Seq ? queries
                                                : b.getIndexAttr(valueDepth));
  }
  if (op.getFinalState()) {
    for (Dim dim : op.getStateDims()) {
      places[1].offsets.push_back(dim == Dim::Batch ? batch : kvHead);
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
      Chunk chunk = loadChunk(begin);
      if (op.getBeta())
        applyDeltaRule(chunk, state);
      Value output = read(before.back(), begin, &chunk, state);
      SmallVector<Value> next = valuesOf(write(chunk, state));
      next.push_back(output);
      return next;
    });
    results[0] = carried.pop_back_val();
  } else {
    carried = overChunks(keys, carried, [&](Value begin, ValueRange before) {
      return valuesOf(write(loadChunk(begin), stateOf(before)));
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
  rows = hasRowDecay() ? chunkRowsOfRowDecay : chunkRows;
  SmallVector<OpFoldResult> tasks = {sizeOf(op.getQuery(), op.getQueryDims(), Dim::Batch),
                                     sizeOf(op.getKey(), op.getKeyDims(), Dim::Head)};
  auto loop = scf::ForallOp::create(b, loc, tasks, inits, /*mapping=*/std::nullopt);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    emitTask(loop);
  }
  rewriter.replaceOp(op, loop.getResults());
  return success();
}

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
