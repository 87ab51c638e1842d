//===- TileKeys.cpp - Tile attention over keys --------------------------------===//
//
// Replaces attention over one batch and head by the online softmax over tiles of keys. The loop is not created through
// TilingInterface, because its bounds follow from the mask and the lengths.
//
//===----------------------------------------------------------------------===//
#include "OutputEpilogue.h"
#include "UpperBound.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_TILEKEYS
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// Rewrites one attention op over a single batch and head.
struct KeyLoop : AttentionSteps {
  KeyLoop(RewriterBase &rewriter, AttentionOp op)
      : AttentionSteps(rewriter, op), rewriter(rewriter), epilogue(OutputEpilogue::find(op.getOutput())) {}

  RewriterBase &rewriter;
  std::optional<OutputEpilogue> epilogue;
  SmallVector<scf::ForOp, 1> loops; ///< those that were created
  Heads head{index(0), Value()};

  void rewrite();
  /// The bounds of the loop over keys, relative to element 0. Tiles start at absolute multiples of the step.
  struct Bounds {
    Value begin, end, step;
  };
  Bounds bounds();
  State loopOverKeys(const Bounds &bounds, Value query, const State &state, bool isFinal);

  /// Applies the epilogue to the tile of the output.
  Value applyEpilogue(Value tile);
  /// `result`, or that of its epilogue.
  Value lastOf(Value result) { return epilogue && result == op.getOutput() ? epilogue->result() : result; }
  /// The op by which the enclosing task inserts `result`, or null. If it exists, the result is written in place.
  tensor::ParallelInsertSliceOp insertionOf(Value result);
  /// The destination of `result`, without batch and head.
  Value destination(Value result);
  void replaceResult(Value result, Value tile);
};

KeyLoop::Bounds KeyLoop::bounds() {
  KeyRange range = visibleKeys(index(0));
  Value step = index(op.getScheduleAttr().getCols());
  // The first tile may start before element 0.
  Value first = add(at.key, max(index(0), sub(range.begin, at.key)));
  Value tile = b.createOrFold<arith::FloorDivSIOp>(loc, first, step);
  Value begin = sub(b.createOrFold<arith::MulIOp>(loc, tile, step), at.key);
  // Clamp the loop to the operand, at any position. A range that ends before the operand has no tile.
  Value last = min(keys, sub(range.end, at.key));
  Value isEmpty = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, min(validQueries, last), index(0));
  // The rounding of quantized keys depends on all keys of their tile, which is the same for all tasks if tiles are
  // whole.
  if (op.getQkTypeAttr())
    last = min(min(keys, sub(keyEnd, at.key)), add(begin, mul(ceilDiv(sub(last, begin), step), step)));
  return {begin, arith::SelectOp::create(b, loc, isEmpty, begin, last), step};
}

State KeyLoop::loopOverKeys(const Bounds &bounds, Value query, const State &state, bool isFinal) {
  auto loop = scf::ForOp::create(b, loc, bounds.begin, bounds.end, bounds.step, state.getParts(),
                                 [&](OpBuilder &nested, Location, Value key, ValueRange carried) {
                                   OpBuilder::InsertionGuard guard(b);
                                   b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
                                   Value start = max(index(0), key),
                                         count = sub(min(add(key, bounds.step), bounds.end), start);
                                   Step step{op.getScheduleAttr(), /*unpacked=*/false, isFinal, getFiniteMax(op)};
                                   State next = accumulate(State(carried), query, head, index(0), start, count, step);
                                   scf::YieldOp::create(b, loc, next.getParts());
                                 });
  loops.push_back(loop);
  return State(loop.getResults());
}

void KeyLoop::rewrite() {
  Bounds range = bounds();
  State state = newState(op.getScheduleAttr().getRows());
  addSinks(state, head, Value());
  Value query = tile(op.getQuery(), op.getQueryDims(), head, index(0), validQueries);
  state = loopOverKeys(range, query, state, /*isFinal=*/false);
  if (needsSoftmaxWeights(op)) {
    // The region requires normalized weights, so a second pass over all keys follows.
    State second;
    second.acc = newState(op.getScheduleAttr().getRows()).acc;
    second.max = state.max, second.sum = state.sum;
    second = loopOverKeys(range, query, second, /*isFinal=*/true);
    state.acc = second.acc, state.max = second.max, state.sum = second.sum;
  }
  SmallVector<Value> results = orderedResults();
  SmallVector<Value> destinations = llvm::map_to_vector(results, [&](Value result) { return destination(result); });
  SmallVector<Value> done = finalize(state, destinations, op.getScheduleAttr());
  if (epilogue)
    done[0] = applyEpilogue(done[0]);
  for (auto [result, tile] : llvm::zip_equal(results, done))
    replaceResult(result, tile);
  if (epilogue)
    rewriter.eraseOp(epilogue->op);
  rewriter.eraseOp(op);
}

Value KeyLoop::applyEpilogue(Value tile) {
  OpBuilder::InsertionGuard guard(b);
  // Its operands are computed before it.
  b.setInsertionPoint(epilogue->op);
  Slice place;
  unsigned next = 0;
  for (Dim dim : op.getOutputDims().getDims()) {
    if (dim == Dim::Batch || dim == Dim::Head)
      place.addPosition(b.getIndexAttr(0));
    else
      place.add(b.getIndexAttr(0), tensor::getMixedSize(b, loc, tile, next++), b.getIndexAttr(1));
  }
  return epilogue->emit(b, tile, place);
}

tensor::ParallelInsertSliceOp KeyLoop::insertionOf(Value result) {
  result = lastOf(result);
  return result.hasOneUse() ? dyn_cast<tensor::ParallelInsertSliceOp>(*result.getUsers().begin()) : nullptr;
}

Value KeyLoop::destination(Value result) {
  SmallVector<OpFoldResult> sizes;
  SmallVector<int64_t> shape;
  for (auto [dim, extent] : llvm::zip_equal(op.getResultDims(result), cast<ShapedType>(result.getType()).getShape())) {
    if (dim == Dim::Batch || dim == Dim::Head)
      continue;
    sizes.push_back(dim != Dim::Depth          ? getDimSize(b, loc, op.getQuery(), op.getQueryDims(), dim)
                    : result == op.getOutput() ? getDimSize(b, loc, op.getValue(), op.getValueDims(), dim)
                                               : OpFoldResult(b.getIndexAttr(extent)));
    shape.push_back(getConstantIntValue(sizes.back()).value_or(ShapedType::kDynamic));
  }
  auto type = RankedTensorType::get(shape, getElementTypeOrSelf(result));
  tensor::ParallelInsertSliceOp insertion = insertionOf(result);
  if (!insertion)
    return tensor::EmptyOp::create(b, loc, sizes, type.getElementType());
  return tensor::ExtractSliceOp::create(b, loc, type, insertion.getDest(), insertion.getMixedOffsets(),
                                        insertion.getMixedSizes(), insertion.getMixedStrides());
}

void KeyLoop::replaceResult(Value result, Value tile) {
  if (tensor::ParallelInsertSliceOp insertion = insertionOf(result)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(insertion);
    rewriter.replaceOpWithNewOp<tensor::ParallelInsertSliceOp>(insertion, tile, insertion.getDest(),
                                                               insertion.getMixedOffsets(), insertion.getMixedSizes(),
                                                               insertion.getMixedStrides());
    return;
  }
  OpBuilder::InsertionGuard guard(b);
  if (lastOf(result) != result)
    b.setInsertionPointAfterValue(tile);
  auto type = cast<RankedTensorType>(result.getType());
  auto tileType = cast<RankedTensorType>(tile.getType());
  SmallVector<OpFoldResult> sizes, strides(type.getRank(), b.getIndexAttr(1)),
      offsets(type.getRank(), b.getIndexAttr(0));
  unsigned next = 0;
  for (int64_t i = 0; i < type.getRank(); ++i) {
    bool isUnit = llvm::is_contained({Dim::Batch, Dim::Head}, op.getResultDims(result)[i]);
    sizes.push_back(isUnit ? OpFoldResult(b.getIndexAttr(1)) : tensor::getMixedSize(b, loc, tile, next++));
  }
  Value whole = tile;
  if (type.getRank() != tileType.getRank()) {
    whole = tensor::EmptyOp::create(b, loc, sizes, type.getElementType());
    whole = tensor::InsertSliceOp::create(b, loc, tile, whole, offsets, sizes, strides);
  }
  if (whole.getType() != type)
    whole = tensor::CastOp::create(b, loc, type, whole);
  rewriter.replaceAllUsesWith(lastOf(result), whole);
}

/// Verifies that the state of a task has a row for each of its queries.
LogicalResult verifyQueries(AttentionOp op) {
  if (!op->getParentOfType<scf::ForallOp>() || !op.getQueryDims().position(Dim::Seq))
    return success();
  unsigned position = *op.getQueryDims().position(Dim::Seq);
  auto slice = op.getQuery().getDefiningOp<tensor::ExtractSliceOp>();
  int64_t extent = op.getQuery().getType().getDimSize(position), rows = op.getScheduleAttr().getRows();
  std::optional<int64_t> bound;
  if (!ShapedType::isDynamic(extent))
    bound = extent;
  else if (slice && slice.getDroppedDims().none())
    bound = findUpperBound(slice.getMixedSizes()[position]);
  if (!bound)
    return op.emitOpError() << "is a tile of an unbounded number of queries, expected at most " << rows
                            << ", the rows of its schedule";
  if (*bound > rows)
    return op.emitOpError() << "is a tile of up to " << *bound << " queries, expected at most " << rows
                            << ", the rows of its schedule";
  return success();
}

/// Verifies that `op` has a schedule, static head sizes, one batch and head, and no more queries than rows.
LogicalResult verify(AttentionOp op) {
  if (!op.getScheduleAttr())
    return op.emitOpError() << "has no schedule, expected attn-assign-schedule to run first";
  for (auto [role, operand, dims] :
       {std::tuple("key", op.getKey(), op.getKeyDims()), std::tuple("value", op.getValue(), op.getValueDims())})
    if (ShapedType::isDynamic(getStaticDimSize(operand, dims, Dim::Depth)))
      return op.emitOpError() << "head size of " << role << " is dynamic, expected a static one";
  for (Dim dim : {Dim::Batch, Dim::Head})
    if (getStaticDimSize(op.getQuery(), op.getQueryDims(), dim) != 1)
      return op.emitOpError() << "has more than one " << (dim == Dim::Batch ? "batch" : "head")
                              << ", expected attn-tile-queries to run first";
  return verifyQueries(op);
}

struct TileKeys : saccade::impl::TileKeysBase<TileKeys> {
  void runOnOperation() override {
    SmallVector<AttentionOp> ops;
    getOperation().walk([&](AttentionOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (AttentionOp op : ops)
      if (failed(tileKeys(rewriter, op)))
        return signalPassFailure();
  }
};

} // namespace

FailureOr<SmallVector<scf::ForOp, 1>> saccade::tileKeys(RewriterBase &rewriter, AttentionOp op) {
  if (failed(verify(op)))
    return failure();
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  KeyLoop tiling(rewriter, op);
  tiling.rewrite();
  return tiling.loops;
}
