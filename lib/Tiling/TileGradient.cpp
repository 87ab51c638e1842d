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
  /// A part of a result with 0 for the keys beyond the length. The tiles store all others.
  Value withoutInvalidKeys(Value part, DimsAttr dims);
  /// Emits the tasks that compute all gradients but those of the queries; these as well unless `query` is null.
  scf::ForallOp ofKeys(Value query, Value key, Value value, ValueRange accumulators);
  scf::ForallOp ofQueries(Value query);

  IRRewriter &rewriter;
};

Value GradientTasks::withoutInvalidKeys(Value part, DimsAttr dims) {
  Place place{SmallVector<OpFoldResult>(dims.size(), b.getIndexAttr(0)), tensor::getMixedSizes(b, loc, part)};
  unsigned position = *dims.position(Dim::Seq);
  place.offsets[position] = validKeys;
  place.sizes[position] = getAsOpFoldResult(sub(at.keys, validKeys));
  return insert(filled(slice(part, place), 0.0), part, place);
}

scf::ForallOp GradientTasks::ofKeys(Value query, Value key, Value value, ValueRange accumulators) {
  // The accumulators of captures, and the gradients of queries, belong to one task of a head.
  bool isTiled = onDevice && !op.isRagged() && !query && accumulators.empty();
  SmallVector<Value> inits = {key, value};
  if (query)
    inits.insert(inits.begin(), query);
  llvm::append_range(inits, accumulators);
  Value keys = asIndex(getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Seq));
  auto loop = tasks(getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Head), keys, isTiled ? columns : 0, inits);
  loop->setAttr(tiledFromAttr, b.getStringAttr(query ? "attention_gradient" : "attention_gradient.key_value"));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  beginTask(loop.getInductionVar(0), loop.getInductionVar(1));
  SmallVector<Place> places = {
      placeOf(loop, op.getKeyDims().getDims(), Role::Key, at.kvHead, index(1), depth, isTiled, columns),
      placeOf(loop, op.getValueDims().getDims(), Role::Key, at.kvHead, index(1), valueDepth, isTiled, columns)};
  if (query)
    places.insert(places.begin(),
                  placeOfHeads(op.getQueryDims().getDims(), Role::Query, mul(at.kvHead, at.group), at.group, depth));
  ValueRange shared = loop.getRegionIterArgs().take_back(accumulators.size());
  llvm::append_range(places, captures.places(at, shared));
  SmallVector<Value> results;
  for (auto [i, place, shared] : llvm::enumerate(places, loop.getRegionIterArgs())) {
    Value part = slice(shared, place);
    bool isCapture = i >= places.size() - accumulators.size(), isQuery = query && i == 0;
    if (isCapture || op.getCuSeqlens(isQuery ? Role::Query : Role::Key))
      results.push_back(part); // begins with 0
    else if (isQuery || isTiled || op.getStickBreaking())
      results.push_back(filled(part, 0.0));
    else
      results.push_back(withoutInvalidKeys(part, i == (query ? 1 : 0) ? op.getKeyDims() : op.getValueDims()));
  }
  Gradients gradients;
  gradients.query = query, gradients.key = key, gradients.value = value;
  gradients = gradients.with(results);
  if (op.getStickBreaking()) {
    SmallVector<Value> done =
        this->loop(index(0), at.group, 1, gradients.getValues(), [&](Value member, ValueRange carried) {
          beginHead(member);
          SmallVector<Value> next =
              this->loop(index(0), validQueries, rows, carried, [&](Value begin, ValueRange inner) {
                return overSticks(member, begin, gradients.with(inner)).getValues();
              });
          Gradients ended = gradients.with(next);
          ended.captures = captures.endHead(at, ended.captures);
          return ended.getValues();
        });
    gradients = gradients.with(done);
  } else if (isTiled) {
    gradients = overQueries(loop.getInductionVar(2), gradients, index(0));
  } else {
    SmallVector<Value> done =
        this->loop(index(0), validKeys, columns, gradients.getValues(), [&](Value begin, ValueRange carried) {
          return overQueries(begin, gradients.with(carried), begin).getValues();
        });
    gradients = gradients.with(done);
  }
  insertSlices(loop, gradients.getValues(), places);
  return loop;
}

scf::ForallOp GradientTasks::ofQueries(Value query) {
  RowResult result{query, SmallVector<Dim>(op.getQueryDims().getDims()), depth};
  scf::ForallOp loop = overQueryTiles(result, [&](Value begin, ValueRange results, Value to) -> SmallVector<Value> {
    return {overKeys(begin, results[0], to)};
  });
  loop->setAttr(tiledFromAttr, b.getStringAttr("attention_gradient.query"));
  return loop;
}

LogicalResult GradientTasks::rewrite() {
  if (failed(check()))
    return failure();
  convertLse();
  auto elementOf = [](Value result) { return getElementTypeOrSelf(result); };
  auto emptyLike = [&](Value like, Type element, Role role) {
    return emptyResult(tensor::getMixedSizes(b, loc, like), element, role);
  };
  Value query = emptyLike(op.getQuery(), onDevice ? elementOf(op.getQueryGradient()) : type, Role::Query);
  // With stick_breaking tiles add to the gradients of keys and values, which are rounded in the end.
  auto elementOfSums = [&](Value result) { return op.getStickBreaking() ? Type(type) : elementOf(result); };
  Value key = emptyLike(op.getKey(), elementOfSums(op.getKeyGradient()), Role::Key);
  Value value = emptyLike(op.getValue(), elementOfSums(op.getValueGradient()), Role::Key);
  SmallVector<Value> accumulators = captures.inits(sequences.sequenceCount), results;
  if (onDevice)
    results.push_back(ofQueries(query).getResult(0));
  llvm::append_range(results, ofKeys(onDevice ? Value() : query, key, value, accumulators).getResults());
  for (auto [sums, result] : llvm::zip(results, op.getResults().take_front(3)))
    sums = round(sums, cast<RankedTensorType>(result.getType()));
  SmallVector<Value> gradients = captures.finish(ArrayRef(results).drop_front(3));
  results.resize(3);
  llvm::append_range(results, gradients);
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
