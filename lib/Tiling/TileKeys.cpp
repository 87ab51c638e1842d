//===- TileKeys.cpp - Tile attention over keys --------------------------------===//
//
// Replaces attention over one batch and head by the online softmax over tiles of keys. The loop is not created through
// TilingInterface, because its bounds follow from the mask and the lengths.
//
//===----------------------------------------------------------------------===//
#include "Sink.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Dialect/Attn/Analysis/Stability.h"
#include "saccade/Support/IndexEmitter.h"
#include "saccade/Tiling/Passes.h"
#include "llvm/Support/MathExtras.h"

namespace saccade {
#define GEN_PASS_DEF_TILEKEYS
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Accumulator columns are rounded up to the widest register (16 lanes), so that no partial register is needed.
static constexpr int64_t columnBlock = 16;

namespace {

/// `dims` without batch and head.
DimsAttr tileDims(DimsAttr dims) {
  SmallVector<Dim> names =
      llvm::filter_to_vector(dims.getDims(), [](Dim d) { return d == Dim::Seq || d == Dim::Depth; });
  return DimsAttr::get(dims.getContext(), ArrayRef<Dim>(names));
}

/// Rewrites one attention op over a single batch and head.
struct KeyLoop : IndexEmitter {
  KeyLoop(IRRewriter &rewriter, AttentionOp op) : IndexEmitter(rewriter, op.getLoc()), rewriter(rewriter), op(op) {}

  IRRewriter &rewriter;
  AttentionOp op;

  Value sizeOf(Value value, DimsAttr dims, Dim dim) {
    return getValueOrCreateConstantIndexOp(b, loc, getDimSize(b, loc, value, dims, dim));
  }

  /// The end position of this batch given by a length operand, not clamped; `extent` without one.
  Value lengthOf(Value length, Value extent) {
    if (!length)
      return extent;
    if (isa<RankedTensorType>(length.getType()))
      length = tensor::ExtractOp::create(b, loc, length, index(0));
    if (!length.getType().isIndex())
      length = arith::IndexCastOp::create(b, loc, b.getIndexType(), length);
    return length;
  }

  /// The 2-D slice of positions [begin, begin + size) of `value`.
  Value rows(Value value, DimsAttr dims, OpFoldResult begin, OpFoldResult size) {
    SmallVector<OpFoldResult> offsets, sizes, strides(dims.size(), b.getIndexAttr(1));
    SmallVector<int64_t> kept;
    for (Dim dim : dims.getDims()) {
      bool isSeq = dim == Dim::Seq, isDepth = dim == Dim::Depth;
      offsets.push_back(isSeq ? begin : b.getIndexAttr(0));
      sizes.push_back(isSeq ? size : isDepth ? getDimSize(b, loc, value, dims, dim) : OpFoldResult(b.getIndexAttr(1)));
      if (isSeq || isDepth) {
        std::optional<int64_t> extent = getConstantIntValue(sizes.back());
        kept.push_back(extent ? *extent : ShapedType::kDynamic);
      }
    }
    auto type = RankedTensorType::get(kept, getElementTypeOrSelf(value));
    return tensor::ExtractSliceOp::create(b, loc, type, value, offsets, sizes, strides);
  }

  FloatType scoreType() { return cast<ScoringOpInterface>(op.getOperation()).getScoreType(); }
  Value scalar(double value) { return arith::ConstantOp::create(b, loc, b.getFloatAttr(scoreType(), value)); }
  Value filled(ArrayRef<int64_t> shape, Value value) {
    Value empty = tensor::EmptyOp::create(b, loc, shape, value.getType());
    return linalg::FillOp::create(b, loc, value, empty).getResult(0);
  }

  LogicalResult rewrite();
  /// The loop bounds and operands common to all steps of a loop.
  struct Steps {
    Value begin, end, step, queryTile, queryLength, keyLength;
    ArrayRef<Value> at;
  };
  /// The state without keys: accumulator, max and sum, which include the sink in valid rows, then tallies, row maximum
  /// and argmax if requested.
  SmallVector<Value> initialState(Value rowCount);
  /// With `isFinal`, max and sum are final, and the weight region is applied to normalized weights.
  SmallVector<Value> loopOverKeys(const Steps &steps, ValueRange state, bool isFinal);
  SmallVector<Value> accumulate(const Steps &steps, Value key, ValueRange state, bool isFinal);

  /// The op by which the enclosing task inserts `result`, or null. If it exists, the result is written in place.
  tensor::ParallelInsertSliceOp insertionOf(Value result);
  /// The destination of `result`, without batch and head.
  Value destination(Value result);
  void replaceResult(Value result, Value tile);
  /// Replaces the results of `op` by the finalized state and erases `op`.
  void finalize(ValueRange state);
};

LogicalResult KeyLoop::rewrite() {
  int64_t depth = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Depth);
  int64_t valueDepth = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  for (auto [role, size] : {std::pair("key", depth), std::pair("value", valueDepth)})
    if (ShapedType::isDynamic(size))
      return op.emitOpError() << "head size of " << role << " is dynamic, expected a static one";
  for (Dim dim : {Dim::Batch, Dim::Head})
    if (getStaticDimSize(op.getQuery(), op.getQueryDims(), dim) != 1)
      return op.emitOpError() << "has more than one " << (dim == Dim::Batch ? "batch" : "head")
                              << ", expected attn-tile-queries to run first";
  ScheduleAttr schedule = op.getScheduleAttr();
  b.setInsertionPoint(op);

  SmallVector<Value> at(4);
  for (unsigned i = 0; i < 4; ++i)
    at[i] = op.getAt().empty() ? index(0) : Value(op.getAt()[i]);
  Value queries = sizeOf(op.getQuery(), op.getQueryDims(), Dim::Seq);
  Value keys = sizeOf(op.getKey(), op.getKeyDims(), Dim::Seq);
  Value queryLength = lengthOf(op.getQLen(), add(at[2], queries));
  Value keyLength = lengthOf(op.getKvLen(), add(at[3], keys));

  // The valid rows of this tile, relative to element 0, and the keys visible to some of them.
  Value rowCount = max(index(0), min(queries, sub(queryLength, at[2])));
  IRMapping values;
  if (!op.getMask().empty()) {
    RegionArguments args = getRegionArguments(op.getMask(), /*isScore=*/false);
    values.map(args.batch, at[0]);
    values.map(args.head, at[1]);
    values.map(args.captures, op.getCaptures());
  }
  Value lastQuery = add(at[2], sub(rowCount, index(1)));
  KeyRange range = KeyBounds(op).computeKeyRange(b, loc, values, queryLength, keyLength, at[2], lastQuery,
                                                 {at[3], min(keyLength, add(at[3], keys))});
  Value step = index(schedule.getCols());
  // Tiles start at absolute multiples of the step, so the first one may start before element 0.
  Value first = add(at[3], max(index(0), sub(range.begin, at[3])));
  Value tile = b.createOrFold<arith::FloorDivSIOp>(loc, first, step);
  Value begin = sub(b.createOrFold<arith::MulIOp>(loc, tile, step), at[3]);
  // Clamp the loop to the operand, at any position. A range that ends before the operand has no tile.
  Value last = min(keys, sub(range.end, at[3]));
  Value isEmpty = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, min(rowCount, last), index(0));
  Value end = arith::SelectOp::create(b, loc, isEmpty, begin, last);

  SmallVector<Value> state = initialState(rowCount);
  Value queryTile = rows(op.getQuery(), op.getQueryDims(), b.getIndexAttr(0), rowCount);
  Steps steps{begin, end, step, queryTile, queryLength, keyLength, at};
  state = loopOverKeys(steps, state, /*isFinal=*/false);
  if (!op.getWeight().empty() && !isProportional(op.getWeight())) {
    // The region requires normalized weights, so a second pass over all keys follows.
    Value empty = filled(cast<ShapedType>(state[0].getType()).getShape(), scalar(0.0));
    llvm::copy(loopOverKeys(steps, {empty, state[1], state[2]}, /*isFinal=*/true), state.begin());
  }
  finalize(state);
  return success();
}

SmallVector<Value> KeyLoop::initialState(Value rowCount) {
  int64_t rows = op.getScheduleAttr().getRows();
  int64_t valueDepth = getStaticDimSize(op.getValue(), op.getValueDims(), Dim::Depth);
  int64_t columns = llvm::alignTo(std::max<int64_t>(valueDepth, 1), columnBlock);
  Value minusInfinity = scalar(-std::numeric_limits<double>::infinity()), zero = scalar(0.0);
  SmallVector<Value> state = {filled({rows, columns}, zero), filled({rows}, minusInfinity), filled({rows}, zero)};
  if (Value sink = op.getSink()) {
    auto [max, sum] = emitSinkStart(b, loc, sink, index(0), scoreType());
    Value starts[] = {max, sum};
    SmallVector<OpFoldResult> offset = {b.getIndexAttr(0)}, size = {rowCount}, stride = {b.getIndexAttr(1)};
    for (auto [part, start] : llvm::zip_equal(MutableArrayRef(state).drop_front(), starts)) {
      Value counting = tensor::ExtractSliceOp::create(b, loc, part, offset, size, stride);
      counting = linalg::FillOp::create(b, loc, start, counting).getResult(0);
      part = tensor::InsertSliceOp::create(b, loc, counting, part, offset, size, stride);
    }
  }
  for (Value tally : op.getTallies())
    state.push_back(filled({rows, cast<ShapedType>(tally.getType()).getShape().back()}, zero));
  if (op.getRowMax() || op.getArgmax())
    state.push_back(filled({rows}, minusInfinity));
  if (op.getArgmax())
    state.push_back(filled({rows}, arith::ConstantIntOp::create(b, loc, -1, 64)));
  return state;
}

SmallVector<Value> KeyLoop::loopOverKeys(const Steps &steps, ValueRange state, bool isFinal) {
  auto loop = scf::ForOp::create(b, loc, steps.begin, steps.end, steps.step, state,
                                 [&](OpBuilder &nested, Location, Value key, ValueRange carried) {
                                   OpBuilder::InsertionGuard guard(b);
                                   b.setInsertionPoint(nested.getInsertionBlock(), nested.getInsertionPoint());
                                   scf::YieldOp::create(b, loc, accumulate(steps, key, carried, isFinal));
                                 });
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value> KeyLoop::accumulate(const Steps &steps, Value key, ValueRange state, bool isFinal) {
  Value start = max(index(0), key);
  Value count = sub(min(add(key, index(op.getScheduleAttr().getCols())), steps.end), start);
  Value keyTile = rows(op.getKey(), op.getKeyDims(), start, count);
  Value valueTile = rows(op.getValue(), op.getValueDims(), start, count);
  SmallVector<Value> tileAt(steps.at);
  tileAt[3] = add(steps.at[3], start);
  // The state holds accumulator, max and sum, then the tallies, row maximum and argmax.
  unsigned tallies = isFinal ? 0 : op.getTallyRegions().size();
  ValueRange others = state.drop_front(3 + tallies);
  auto tile = AccumulateOp::create(b, loc, TypeRange(state), steps.queryTile, keyTile, valueTile, op.getCaptures(),
                                   steps.queryLength, steps.keyLength, op.getScaleValue(), tileAt, state[0], state[1],
                                   state[2], state.slice(3, tallies), others.empty() ? Value() : others[0],
                                   others.size() < 2 ? Value() : others[1], tileDims(op.getQueryDims()),
                                   tileDims(op.getKeyDims()), tileDims(op.getValueDims()), op.getScaleAttr(), isFinal,
                                   op.getScheduleAttr(), /*unpacked=*/false, tallies);
  if (getFiniteMax(op) != FiniteMax::Never)
    tile->setAttr(finiteMaxAttr, b.getUnitAttr());
  auto copy = [](Region &from, Region &to) {
    IRMapping mapping;
    from.cloneInto(&to, mapping);
  };
  copy(op.getScore(), tile.getScore());
  copy(op.getMask(), tile.getMask());
  if (!op.getWeight().empty() && (isFinal || isProportional(op.getWeight())))
    copy(op.getWeight(), tile.getWeight());
  for (unsigned i = 0; i < tallies; ++i)
    copy(op.getTallyRegions()[i], tile.getTallyRegions()[i]);
  return SmallVector<Value>(tile->getResults());
}

tensor::ParallelInsertSliceOp KeyLoop::insertionOf(Value result) {
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
  rewriter.replaceAllUsesWith(result, whole);
}

void KeyLoop::finalize(ValueRange state) {
  SmallVector<Value> results = {op.getOutput()}, others, otherResults;
  if (op.getLse())
    results.push_back(op.getLse());
  otherResults.append(op.getTallies().begin(), op.getTallies().end());
  others.append(state.begin() + 3, state.begin() + 3 + otherResults.size());
  ValueRange maxima = state.drop_front(3 + otherResults.size());
  for (auto [i, result] : llvm::enumerate(SmallVector<Value>{op.getRowMax(), op.getArgmax()}))
    if (result) {
      otherResults.push_back(result);
      others.push_back(maxima[i]);
    }
  llvm::append_range(results, otherResults);
  SmallVector<Value> destinations = llvm::map_to_vector(results, [&](Value result) { return destination(result); });
  auto tile = FinalizeOp::create(b, loc, TypeRange(ValueRange(destinations)), state[0], state[1], state[2], others,
                                 destinations[0], op.getLse() ? destinations[1] : Value(),
                                 ArrayRef(destinations).take_back(others.size()), tileDims(op.getOutputDims()),
                                 op.getScheduleAttr());
  for (auto [result, done] : llvm::zip_equal(results, tile->getResults()))
    replaceResult(result, done);
  rewriter.eraseOp(op);
}

struct TileKeys : saccade::impl::TileKeysBase<TileKeys> {
  void runOnOperation() override {
    SmallVector<AttentionOp> ops;
    getOperation().walk([&](AttentionOp op) { ops.push_back(op); });
    for (AttentionOp op : ops) {
      if (!op.getScheduleAttr()) {
        op.emitOpError() << "has no schedule, expected attn-assign-schedule to run first";
        return signalPassFailure();
      }
      IRRewriter rewriter(op);
      if (failed(KeyLoop(rewriter, op).rewrite()))
        return signalPassFailure();
    }
  }
};

} // namespace
