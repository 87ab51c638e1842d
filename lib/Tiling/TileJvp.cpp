//===- TileJvp.cpp - Tile tangents of attention into tasks and tiles ----------===//
//
// Replaces attn.jvp by a parallel loop over batches, query heads and tiles of queries. A task adds the tiles of keys in
// their order; a tile is computed by matmuls and an elementwise op, as those of gradients are.
//
//===----------------------------------------------------------------------===//
#include "DerivativeTile.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_TILEJVP
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// Lowers one op.
class JvpTasks : DerivativeTile {
public:
  JvpTasks(IRRewriter &rewriter, JvpOp op, bool onDevice)
      : DerivativeTile(rewriter, cast<DerivativeOpInterface>(op.getOperation()), onDevice), op(op), rewriter(rewriter) {
  }
  LogicalResult rewrite();

private:
  /// An operand and its tangent, which may be missing.
  struct Operand {
    Matrix primal;
    std::optional<Matrix> tangent;
  };
  /// Stores the results for the tile of queries at `begin` of the current head in `parts`, at `to`.
  SmallVector<Value> ofQueries(Value begin, ValueRange parts, Value to);
  /// Adds the tile to `sums`: output, row and tallies.
  SmallVector<Value> addTile(const PairTile &tile, const Operand &query, const RowLse &row, ValueRange sums);
  /// Matrices of pairs.
  struct Terms {
    Value ofRow;                ///< dp
    Value ofWeight;             ///< dw
    Value weight;               ///< null if no value has a tangent
    SmallVector<Value> tallies; ///< of each tally: the bins, unless all are equal, and the numbers
  };
  /// The elementwise op of a tile, from the products of queries and keys and the tangents of these, null for 0.
  Terms evaluate(const PairTile &tile, const RowLse &row, Value products, Value tangents);
  /// dp, dw, the weight and what the region yields further, from the product of query and key, its tangent by query and
  /// key, and the log-sum-exp.
  SmallVector<Value> evaluatePair(Value i, Value j, Value product, Value tangent, const RowLse &row);
  /// The bin of tally `number` if it is the same for all pairs.
  std::optional<int64_t> constantBin(unsigned number);
  Value addToBin(int64_t bin, Value amounts, const PairTile &tile, Value sums);
  /// sums[i, bins[i, j]] += amounts[i, j]
  Value addToBins(Value bins, Value amounts, const PairTile &tile, Value sums);

  JvpOp op;
  IRRewriter &rewriter;
  SmallVector<RowResult> results; ///< of the op
};

SmallVector<Value> JvpTasks::evaluatePair(Value i, Value j, Value product, Value tangent, const RowLse &row) {
  Pair pair = DerivativeTile::evaluatePair(i, j, product, row);
  Value ds = tangent ? arith::MulFOp::create(b, loc, tangent, scale()).getResult() : scalar(0.0);
  if (Value ofScale = op.getScaleTangent()) {
    Value term = arith::MulFOp::create(b, loc, product, convert(ofScale, type));
    ds = arith::AddFOp::create(b, loc, ds, term);
  }
  SmallVector<Value> results;
  if (op.getTangent().empty())
    results.assign(2, arith::MulFOp::create(b, loc, pair.probability, ds));
  else
    results = inlineRegion(op.getTangent(), {pair.probability, pair.score, ds}, i, j);
  for (Value &result : results)
    if (isa<FloatType>(result.getType()))
      result = ifVisible(pair, result);
  results.insert(results.begin() + 2, pair.weight);
  return results;
}

JvpTasks::Terms JvpTasks::evaluate(const PairTile &tile, const RowLse &row, Value products, Value tangents) {
  // Operands of 16-bit matmuls are rounded, and dp is not. Other results replace the products.
  Type element = getElementTypeOrSelf(op.getQuery());
  bool isWide = element == type, needsWeights = bool(op.getValueTangent()), hasTangents = bool(tangents);
  ValueRange yielded = op.getTangent().empty() ? ValueRange() : op.getTangent().front().getTerminator()->getOperands();
  bool isOfRow = isWide && (yielded.empty() || yielded[0] == yielded[1]);
  auto temporary = [&](Type of) {
    return IndexedOperand{DerivativeTile::temporary({tile.queries, tile.keys}, of), {0, 1}};
  };
  IndexedOperand pairs{products, {0, 1}};
  SmallVector<IndexedOperand> inputs, outputs;
  for (Value ofRows : {row.lse, row.low})
    if (ofRows)
      inputs.push_back({ofRows, {0}});
  outputs.push_back(hasTangents ? IndexedOperand{tangents, {0, 1}} : temporary(type));
  bool isReplaced = isWide && needsWeights;
  if (!isReplaced)
    inputs.push_back(pairs);
  if (needsWeights)
    outputs.push_back(isReplaced ? pairs : temporary(element));
  if (!isOfRow)
    outputs.push_back(temporary(element));
  for (unsigned i = 0; i < op.getTallies().size(); ++i) {
    if (!constantBin(i))
      outputs.push_back(temporary(b.getI32Type()));
    outputs.push_back(temporary(type));
  }
  Value firstQuery = add(at.firstQuery, tile.query), firstKey = add(at.firstKey, tile.key);
  SmallVector<Value> found = apply(2, 0, inputs, outputs, [&](ValueRange args) {
    Value i = add(linalg::IndexOp::create(b, loc, 0), firstQuery),
          j = add(linalg::IndexOp::create(b, loc, 1), firstKey);
    ValueRange before = args.drop_front(inputs.size());
    SmallVector<Value> values =
        evaluatePair(i, j, isReplaced ? before[1] : args[inputs.size() - 1], hasTangents ? before[0] : Value(),
                     {row.lse ? args[0] : Value(), row.low ? args[1] : Value()});
    SmallVector<Value> results = {values[0]};
    if (needsWeights)
      results.push_back(convert(values[2], element));
    if (!isOfRow)
      results.push_back(convert(values[1], element));
    for (unsigned tally = 0; tally < op.getTallies().size(); ++tally) {
      if (!constantBin(tally))
        results.push_back(arith::IndexCastOp::create(b, loc, b.getI32Type(), values[3 + 2 * tally]));
      results.push_back(values[4 + 2 * tally]);
    }
    return results;
  });
  Terms terms;
  ArrayRef<Value> rest = found;
  auto take = [&] {
    Value first = rest.front();
    rest = rest.drop_front();
    return first;
  };
  terms.ofRow = take();
  terms.weight = needsWeights ? take() : Value();
  terms.ofWeight = isOfRow ? terms.ofRow : take();
  terms.tallies.assign(rest.begin(), rest.end());
  return terms;
}

//===----------------------------------------------------------------------===//
// Tallies
//===----------------------------------------------------------------------===//

std::optional<int64_t> JvpTasks::constantBin(unsigned number) {
  return getConstantIntValue(op.getTangent().front().getTerminator()->getOperand(2 + 2 * number));
}

Value JvpTasks::addToBin(int64_t bin, Value amounts, const PairTile &tile, Value sums) {
  if (bin < 0 || bin >= cast<RankedTensorType>(sums.getType()).getShape().back())
    return sums;
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  OpFoldResult offsets[] = {zero, b.getIndexAttr(bin)}, sizes[] = {tile.queries.size, one}, strides[] = {one, one};
  Value before = slice(sums, offsets, sizes, {true, false});
  Value after = sum(2, 1, {amounts, {0, 1}}, {before, {0}});
  return tensor::InsertSliceOp::create(b, loc, after, sums, offsets, sizes, strides);
}

Value JvpTasks::addToBins(Value bins, Value amounts, const PairTile &tile, Value sums) {
  Value zero = index(0), count = index(cast<RankedTensorType>(sums.getType()).getShape().back());
  return loop(zero, asIndex(tile.queries.size), 1, sums, [&](Value i, ValueRange carried) {
    return loop(zero, asIndex(tile.keys.size), 1, carried, [&](Value j, ValueRange carried) -> SmallVector<Value> {
      Value bin = arith::IndexCastOp::create(b, loc, b.getIndexType(),
                                             tensor::ExtractOp::create(b, loc, bins, ValueRange{i, j}));
      // A negative bin is a large unsigned number.
      Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, bin, count);
      Value position[] = {i, select(exists, bin, zero)};
      Value amount = select(exists, tensor::ExtractOp::create(b, loc, amounts, ValueRange{i, j}), scalar(0.0));
      Value before = tensor::ExtractOp::create(b, loc, carried[0], position);
      Value after = arith::AddFOp::create(b, loc, before, amount);
      return {tensor::InsertOp::create(b, loc, after, carried[0], position)};
    });
  })[0];
}

//===----------------------------------------------------------------------===//
// Tiles and tasks
//===----------------------------------------------------------------------===//

SmallVector<Value> JvpTasks::addTile(const PairTile &tile, const Operand &query, const RowLse &row, ValueRange sums) {
  ArrayRef<Dim> keyDims = op.getKeyDims().getDims(), valueDims = op.getValueDims().getDims();
  Matrix key = keysOf(op.getKey(), keyDims, tile, depth), value = keysOf(op.getValue(), valueDims, tile, valueDepth);
  Value products = product(tile, query.primal, key, depth), tangents;
  if (query.tangent)
    tangents = product(tile, *query.tangent, key, depth);
  if (Value keyTangent = op.getKeyTangent()) {
    Matrix tangent = keysOf(keyTangent, keyDims, tile, depth);
    tangents =
        tangents ? matmul(query.primal.over(0, 2), tangent.over(1, 2), {tangents, {0, 1}}, block(rows, columns, depth))
                 : product(tile, query.primal, tangent, depth);
  }
  Terms terms = evaluate(tile, row, products, tangents);
  SmallVector<Value> next(sums);
  auto addWeighted = [&](Value weights, const Matrix &values) {
    next[0] = matmul({weights, {0, 2}}, values.over(2, 1), {next[0], {0, 1}}, block(rows, valueDepth, columns));
  };
  addWeighted(terms.ofWeight, value);
  if (Value valueTangent = op.getValueTangent())
    addWeighted(terms.weight, keysOf(valueTangent, valueDims, tile, valueDepth));
  next[1] = sum(2, 1, {terms.ofRow, {0, 1}}, {next[1], {0}});
  ArrayRef<Value> tallies = terms.tallies;
  for (unsigned i = 0; i < op.getTallies().size(); ++i) {
    std::optional<int64_t> bin = constantBin(i);
    next[2 + i] =
        bin ? addToBin(*bin, tallies[0], tile, next[2 + i]) : addToBins(tallies[0], tallies[1], tile, next[2 + i]);
    tallies = tallies.drop_front(bin ? 1 : 2);
  }
  return next;
}

SmallVector<Value> JvpTasks::ofQueries(Value begin, ValueRange parts, Value to) {
  Extent count = queryExtent(begin);
  PairTile queries{begin, nullptr, count, {}};
  Operand query{queriesOf(op.getQuery(), op.getQueryDims().getDims(), queries, depth), std::nullopt};
  if (Value tangent = op.getQueryTangent())
    query.tangent = queriesOf(tangent, op.getQueryDims().getDims(), queries, depth);
  RowLse row = lseOf(queries);
  SmallVector<Value> sums;
  for (const RowResult &result : results) {
    SmallVector<Extent> extents = {count};
    if (llvm::is_contained(result.dims, Dim::Depth))
      extents.push_back({b.getIndexAttr(result.headSize), result.headSize});
    sums.push_back(filled(temporary(extents), 0.0));
  }
  SmallVector<Value> done = overKeyTiles(
      begin, count, sums, [&](const PairTile &tile, ValueRange carried) { return addTile(tile, query, row, carried); });
  for (auto [result, part, sum] : llvm::zip_equal(results, parts, done))
    sum = store(sum, part, result.dims, index(0), to, count.size, result.headSize);
  return done;
}

LogicalResult JvpTasks::rewrite() {
  if (failed(check()))
    return failure();
  convertLse();
  ReifiedRankedShapedTypeDims shapes;
  if (failed(op.reifyResultShapes(b, shapes)))
    return failure();
  SmallVector<Dim> rowDims = op.getRowDims(), tallyDims = rowDims;
  tallyDims.push_back(Dim::Depth);
  for (auto [i, result] : llvm::enumerate(op.getResults())) {
    SmallVector<Dim> dims = i == 0 ? SmallVector<Dim>(op.getOutputDims().getDims()) : i == 1 ? rowDims : tallyDims;
    int64_t headSize = i == 0 ? valueDepth : cast<RankedTensorType>(result.getType()).getShape().back();
    results.push_back({emptyResult(shapes[i], type, Role::Query), dims, i == 1 ? 1 : headSize});
  }
  scf::ForallOp loop =
      overQueryTiles(results, [&](Value begin, ValueRange parts, Value to) { return ofQueries(begin, parts, to); });
  loop->setAttr(tiledFromAttr, b.getStringAttr("attention_tangent"));
  SmallVector<Value> made(loop.getResults());
  for (auto [value, result] : llvm::zip_equal(made, op.getResults()))
    value = round(value, cast<RankedTensorType>(result.getType()));
  rewriter.replaceOp(op, made);
  return success();
}

struct TileJvp : saccade::impl::TileJvpBase<TileJvp> {
  using TileJvpBase::TileJvpBase;

  void runOnOperation() override {
    SmallVector<JvpOp> ops;
    getOperation().walk([&](JvpOp op) { ops.push_back(op); });
    for (JvpOp op : ops) {
      IRRewriter rewriter(op);
      if (failed(JvpTasks(rewriter, op, gpu).rewrite()))
        return signalPassFailure();
    }
  }
};

} // namespace
