//===- TileGradient.cpp - Tile gradients of attention into tasks and tiles ----===//
//
// Replaces attn.gradient by a parallel loop over batches and KV heads whose tasks visit tiles of queries and keys. It
// corresponds to TileQueries and TileKeys for attn.attention. A tile is computed by matmuls and an elementwise op, so
// every code generator of structured ops applies.
//
//===----------------------------------------------------------------------===//
#include "GradientTile.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_TILEGRADIENT
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// Lowers one op.
class GradientTasks : GradientTile {
public:
  GradientTasks(IRRewriter &rewriter, GradientOp op, bool onDevice)
      : GradientTile(rewriter, op, onDevice), rewriter(rewriter) {}
  LogicalResult rewrite();

private:
  LogicalResult check();
  /// The destination of the gradient of `like`, in the type of the sums.
  Value sumsLike(Value like);
  /// `sums`, rounded to the type of `result`.
  Value rounded(Value sums, Value result);
  void emitTask(scf::ForallOp loop);

  IRRewriter &rewriter;
};

LogicalResult GradientTasks::check() {
  for (auto [role, size] : {std::pair("key", depth), std::pair("value", valueDepth)}) {
    if (ShapedType::isDynamic(size))
      return op.emitOpError() << "head size of " << role << " is dynamic, expected a static one";
    if (size == 0)
      return op.emitOpError() << "head size of " << role << " is 0, expected at least 1";
  }
  if (!op.getScheduleAttr())
    return op.emitOpError() << "has no schedule, expected attn-assign-schedule to run first";
  return success();
}

Value GradientTasks::sumsLike(Value like) {
  return tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, like), type);
}

Value GradientTasks::rounded(Value sums, Value result) {
  auto shaped = cast<RankedTensorType>(result.getType());
  if (sums.getType() == shaped)
    return sums;
  Value converted = sums;
  if (shaped.getElementType() != type) {
    Value to = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, sums), shaped.getElementType());
    SmallVector<unsigned> loops = llvm::to_vector(llvm::seq<unsigned>(shaped.getRank()));
    converted = apply(shaped.getRank(), 0, {{sums, loops}}, {{to, loops}}, [&](ValueRange args) -> SmallVector<Value> {
      return {convert(args[0], shaped.getElementType())};
    })[0];
  }
  return converted.getType() == shaped ? converted : tensor::CastOp::create(b, loc, shaped, converted);
}

void GradientTasks::emitTask(scf::ForallOp loop) {
  beginTask(loop.getInductionVar(0), loop.getInductionVar(1));
  // Slices of the results: the query heads of the group, and the KV head.
  SmallVector<Value> results;
  SmallVector<Place> places = {placeOfHeads(op.getQueryDims(), Role::Query, mul(at.kvHead, at.group), at.group, depth),
                               placeOfHeads(op.getKeyDims(), Role::Key, at.kvHead, index(1), depth),
                               placeOfHeads(op.getValueDims(), Role::Key, at.kvHead, index(1), valueDepth)};
  for (auto [shared, place] : llvm::zip(loop.getRegionIterArgs(), places))
    results.push_back(filled(place.slice(*this, shared), 0.0));
  ValueRange accumulators = loop.getRegionIterArgs().drop_front(3);
  for (auto [shared, place] : llvm::zip_equal(accumulators, captures.places(at, accumulators))) {
    places.push_back({place.offsets, place.sizes});
    results.push_back(places.back().slice(*this, shared));
  }

  results = this->loop(index(0), at.group, 1, results, [&](Value member, ValueRange carried) {
    beginHead(member);
    SmallVector<Value> next = this->loop(index(0), validQueries, rows, carried,
                                         [&](Value begin, ValueRange carried) { return overKeys(begin, carried); });
    SmallVector<Value> ended = captures.endHead(at, ArrayRef(next).drop_front(3));
    llvm::copy(ended, next.begin() + 3);
    return next;
  });

  b.setInsertionPointToEnd(loop.getTerminator().getBody());
  for (auto [result, shared, place] : llvm::zip_equal(results, loop.getRegionIterArgs(), places))
    tensor::ParallelInsertSliceOp::create(b, loc, result, shared, place.offsets, place.sizes,
                                          SmallVector<OpFoldResult>(place.sizes.size(), b.getIndexAttr(1)));
}

LogicalResult GradientTasks::rewrite() {
  if (failed(check()))
    return failure();
  SmallVector<Value> inits;
  for (Value operand : {op.getQuery(), op.getKey(), op.getValue()})
    inits.push_back(sumsLike(operand));
  // Queries are converted in the task.
  if (getElementTypeOrSelf(op.getQueryGradient()) != type)
    inits[0] = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, op.getQuery()),
                                       getElementTypeOrSelf(op.getQueryGradient()));
  // Rows of ragged tensors that belong to no sequence have gradient 0.
  for (auto [i, init] : llvm::enumerate(inits))
    if (op.getCuSeqlens(i == 0 ? Role::Query : Role::Key))
      init = filled(init, 0.0);
  llvm::append_range(inits, captures.inits(sequences.sequenceCount));
  SmallVector<OpFoldResult> tasks = {getAsOpFoldResult(sequences.sequenceCount),
                                     getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Head)};
  auto loop = scf::ForallOp::create(b, loc, tasks, inits, /*mapping=*/std::nullopt);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    emitTask(loop);
  }
  SmallVector<Value> results;
  for (auto [sums, result] : llvm::zip(loop.getResults().take_front(3), op.getResults()))
    results.push_back(rounded(sums, result));
  llvm::append_range(results, captures.finish(loop.getResults().drop_front(3)));
  rewriter.replaceOp(op, results);
  return success();
}

struct TileGradient : saccade::impl::TileGradientBase<TileGradient> {
  using TileGradientBase::TileGradientBase;

  void runOnOperation() override {
    SmallVector<GradientOp> ops;
    getOperation().walk([&](GradientOp op) { ops.push_back(op); });
    for (GradientOp op : ops) {
      IRRewriter rewriter(op);
      if (failed(GradientTasks(rewriter, op, gpu).rewrite()))
        return signalPassFailure();
    }
  }
};

} // namespace
