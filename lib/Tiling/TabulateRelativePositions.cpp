//===- TabulateRelativePositions.cpp - Tables over relative positions ---------===//
//
// Computes region code that depends on batch, head and key − query only, such as relative position buckets, once per
// relative position. It runs before the tiling of attention, so that tables are built once per call.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "saccade/Dialect/Attn/Analysis/RelativePositionTerms.h"
#include "saccade/Dialect/Attn/IR/Position.h"
#include "saccade/Tiling/Passes.h"
#include "llvm/Support/Debug.h"

namespace saccade {
#define GEN_PASS_DEF_TABULATERELATIVEPOSITIONS
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Additional relative positions on either side: generated code processes up to 64 keys and 12 queries at a time,
/// without remainders.
static constexpr int64_t padding = 128;

namespace {

/// The tables of one op.
class Tables {
public:
  explicit Tables(ScoringOpInterface op) : op(op), b(op), loc(op.getLoc()) {}

  /// Replaces `terms` of `region` by loads from tables.
  void tabulate(const NamedRegion &region, ArrayRef<RelativePositionTerm> terms);

private:
  ScoringOpInterface op;
  OpBuilder b;
  Location loc;
  /// Set by `makeTable`: the position of element 0, that of the first element of a table relative to it, and the
  /// number of elements.
  Position at;
  Value first, count;

  Value constant(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value extent(Dim dim, Value operand, DimsAttr dims) {
    return getValueOrCreateConstantIndexOp(b, loc, getDimSize(b, loc, operand, dims, dim));
  }
  Value countKeys();
  Value makeTable(const NamedRegion &region, const RelativePositionTerm &term);
  void read(const NamedRegion &region, const RelativePositionTerm &term, Value table);
  /// Adds `value` to the captures; returns the argument of `region` for it.
  Value capture(Value value, Region &region);
};

/// The maximum key length over all batches, which may be much smaller than the capacity of a KV cache.
Value Tables::countKeys() {
  Value keys = extent(Dim::Seq, op.getKey(), op.getKeyDims()), length = op.getKvLen();
  if (!length || op.isRagged())
    return keys;
  if (isa<RankedTensorType>(length.getType())) {
    Value lengths = length, end = tensor::DimOp::create(b, loc, lengths, 0);
    auto longest = scf::ForOp::create(b, loc, constant(0), end, constant(1), constant(0),
                                      [&](OpBuilder &nested, Location, Value i, ValueRange before) {
                                        Value each = tensor::ExtractOp::create(nested, loc, lengths, i);
                                        if (!each.getType().isIndex())
                                          each = arith::IndexCastOp::create(nested, loc, nested.getIndexType(), each);
                                        scf::YieldOp::create(
                                            nested, loc, Value(arith::MaxSIOp::create(nested, loc, each, before[0])));
                                      });
    length = longest.getResult(0);
  }
  // Lengths may be out of range.
  Value count = arith::MinSIOp::create(b, loc, keys, arith::SubIOp::create(b, loc, length, at.key));
  return arith::MaxSIOp::create(b, loc, count, constant(0));
}

Value Tables::makeTable(const NamedRegion &region, const RelativePositionTerm &term) {
  b.setInsertionPoint(op);
  if (!first) {
    at = emitPosition(b, loc, op);
    Value queries = extent(Dim::Seq, op.getQuery(), op.getQueryDims());
    Value keys = countKeys();
    Value lowest = arith::SubIOp::create(b, loc, arith::SubIOp::create(b, loc, at.key, at.query), queries);
    first = arith::SubIOp::create(b, loc, lowest, constant(padding));
    count = arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, queries, keys), constant(2 * padding));
  }
  SmallVector<OpFoldResult> sizes;
  if (term.usesBatch)
    sizes.push_back(getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Batch));
  if (term.usesHead)
    sizes.push_back(getDimSize(b, loc, op.getQuery(), op.getQueryDims(), Dim::Head));
  sizes.push_back(count);
  unsigned rank = sizes.size();
  Value empty = tensor::EmptyOp::create(b, loc, sizes, term.root.getType());
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  RegionArguments args = region.arguments();
  auto table = linalg::GenericOp::create(
      b, loc, empty.getType(), /*inputs=*/ValueRange(), empty, b.getMultiDimIdentityMap(rank), iterators,
      [&](OpBuilder &nested, Location, ValueRange) {
        auto place = [&](unsigned dim, Value origin) -> Value {
          return arith::AddIOp::create(nested, loc, linalg::IndexOp::create(nested, loc, dim), origin);
        };
        IRMapping values;
        values.map(args.captures, op.getCaptures());
        Value zero = arith::ConstantIndexOp::create(nested, loc, 0);
        values.map(args.batch, term.usesBatch ? place(0, at.batch) : zero);
        values.map(args.head, term.usesHead ? place(rank - 2, at.head) : zero);
        // The term depends on key − query only, so evaluate it for query 0.
        values.map(args.query, zero);
        values.map(args.key, place(rank - 1, first));
        for (Operation *each : term.ops)
          nested.clone(*each, values);
        linalg::YieldOp::create(nested, loc, values.lookup(term.root));
      });
  return table.getResult(0);
}

Value Tables::capture(Value value, Region &region) {
  op.getCapturesMutable().append(value);
  Value result;
  for (const NamedRegion &named : getNamedRegions(op)) {
    Value argument = named.region->front().addArgument(value.getType(), loc);
    if (named.region == &region)
      result = argument;
  }
  return result;
}

void Tables::tabulate(const NamedRegion &region, ArrayRef<RelativePositionTerm> terms) {
  // Build all tables first: the code of a term may use another term.
  SmallVector<Value> tables =
      llvm::map_to_vector(terms, [&](const RelativePositionTerm &term) { return makeTable(region, term); });
  for (auto [term, table] : llvm::zip_equal(terms, tables))
    read(region, term, table);
}

void Tables::read(const NamedRegion &region, const RelativePositionTerm &term, Value table) {
  SmallVector<std::pair<unsigned, Value>> origins;
  if (!op.getAt().empty() && term.usesBatch)
    origins.push_back({0, at.batch});
  if (!op.getAt().empty() && term.usesHead)
    origins.push_back({1, at.head});
  Value rows = capture(table, *region.region), start = capture(first, *region.region);
  RegionArguments args = region.arguments();
  Value place[2] = {args.batch, args.head};
  for (auto [dim, origin] : origins) {
    Value from = capture(origin, *region.region);
    OpBuilder inside = OpBuilder::atBlockBegin(&region.region->front());
    place[dim] = arith::SubIOp::create(inside, loc, place[dim], from);
  }
  OpBuilder inside(term.root.getDefiningOp());
  Value relativePosition = arith::SubIOp::create(inside, loc, args.key, args.query);
  SmallVector<Value> indices;
  if (term.usesBatch)
    indices.push_back(place[0]);
  if (term.usesHead)
    indices.push_back(place[1]);
  indices.push_back(arith::SubIOp::create(inside, loc, relativePosition, start));
  auto read = tensor::ExtractOp::create(inside, loc, rows, indices);
  read->setAttr(inBoundsName, inside.getUnitAttr());
  Value(term.root).replaceAllUsesWith(read);
}

/// Terms up to this cost are as cheap to compute as to load.
constexpr unsigned maxCost = 8;

struct TabulateRelativePositions : saccade::impl::TabulateRelativePositionsBase<TabulateRelativePositions> {
  void runOnOperation() override {
    SmallVector<ScoringOpInterface> ops;
    getOperation().walk([&](ScoringOpInterface op) {
      // A task would build the tables of its tile each time.
      if (!op->getParentOfType<scf::ForallOp>())
        ops.push_back(op);
    });
    for (ScoringOpInterface op : ops)
      tabulateRelativePositions(op);
  }
};

} // namespace

void saccade::tabulateRelativePositions(ScoringOpInterface op) {
  Tables tables(op);
  // Mask regions must stay readable for the mask analyses.
  for (const NamedRegion &named : getNamedRegions(op))
    if (!named.isMask()) {
      SmallVector<RelativePositionTerm> terms = findRelativePositionTerms(*named.region, named.numbers());
      // The number of ragged sequences is not an extent of an operand, and a table row per sequence may be large.
      llvm::erase_if(terms, [&](const RelativePositionTerm &term) {
        return term.cost <= maxCost || (term.usesBatch && op.isRagged());
      });
      DEBUG_WITH_TYPE("attn-tabulate-relative-positions",
                      llvm::dbgs() << "tabulating " << terms.size() << " terms of the " << named.name << " region\n");
      tables.tabulate(named, terms);
    }
}
