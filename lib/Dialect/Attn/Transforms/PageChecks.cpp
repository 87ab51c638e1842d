//===- PageChecks.cpp - Run-time checks of page tables ------------------------===//
//
// Emits the checks that the pages of valid positions are in the pool. They are part of the shape function, so a call
// with an invalid page is refused before any kernel runs.
//
//===----------------------------------------------------------------------===//
#include "ScalarRegionEmitter.h"
#include "ShapeChecks.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "saccade/Support/IndexEmitter.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Whether a length is an argument, perhaps converted to another type.
static bool isArgument(Value length) {
  while (isa_and_nonnull<tensor::CastOp, arith::IndexCastOp>(length.getDefiningOp()))
    length = length.getDefiningOp()->getOperand(0);
  return isa<BlockArgument>(length);
}

/// Collects the `kv_len` of all ops that read `keys`, directly or through dequantizations, casts and slices. Collects
/// null for an op that may read all positions. `seq`: the dimension of positions.
static void collectLengths(Value keys, unsigned seq, SetVector<Value> &lengths) {
  for (Operation *user : keys.getUsers()) {
    auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
    bool isSlice = slice && !slice.getDroppedDims().any() && isConstantIntValue(slice.getMixedOffsets()[seq], 0) &&
                   slice.hasUnitStride();
    auto generic = dyn_cast<linalg::GenericOp>(user);
    bool isElementwise =
        generic && linalg::isElementwise(generic) && generic->getNumResults() == 1 &&
        cast<ShapedType>(generic.getResult(0).getType()).getRank() == cast<ShapedType>(keys.getType()).getRank();
    auto op = dyn_cast<ScoringOpInterface>(user);
    if (isSlice || isElementwise || isa<tensor::CastOp>(user))
      collectLengths(user->getResult(0), seq, lengths);
    else if (!isa<tensor::DimOp>(user))
      lengths.insert(op && op.getQuery() != keys && op.getAt().empty() ? op.getKvLen() : Value());
  }
}

/// Applies to tables that are arguments, if the host can read their elements; generated code clamps other pages.
void ShapeChecks::addForPages(PagedOp op) {
  SetVector<Value> lengths;
  collectLengths(op.getResult(), *op.getDims().position(Dim::Seq), lengths);
  Value table = withoutCasts(op.getTable()), length = lengths.size() == 1 ? lengths[0] : Value();
  if (!mayReadElements || !isReadableBeforeCall(table) || (length && !isArgument(length)))
    return;
  IndexEmitter e(builder, loc);
  auto poolSize = [&](Dim dim) { return materialize(extent(op.getPool(), *op.getDims().position(dim))); };
  Value pages = poolSize(Dim::Batch), pageSize = e.max(poolSize(Dim::Seq), e.index(1));
  Value sequences = materialize(extent(table, 0)), entries = materialize(extent(table, 1)), minusOne = e.index(-1);
  auto asIndex = [&](Value value) -> Value {
    return value.getType().isIndex() ? value : arith::IndexCastOp::create(builder, loc, builder.getIndexType(), value);
  };
  if (length && isa<RankedTensorType>(length.getType())) // Another number of lengths is refused elsewhere.
    sequences = e.min(sequences, materialize(extent(length, 0)));
  // The last sequence with an invalid page, or −1, and this page.
  SmallVector<Value> invalid =
      e.loop(zero, sequences, 1, {minusOne, zero}, [&](Value sequence, ValueRange carried) -> SmallVector<Value> {
        Value end = entries;
        if (length) {
          Value own = isa<RankedTensorType>(length.getType())
                          ? Value(tensor::ExtractOp::create(builder, loc, length, sequence))
                          : length;
          end = e.min(entries, e.ceilDiv(e.max(asIndex(own), zero), pageSize));
        }
        return e.loop(zero, end, 1, carried, [&](Value entry, ValueRange inner) -> SmallVector<Value> {
          Value page = asIndex(tensor::ExtractOp::create(builder, loc, table, ValueRange{sequence, entry}));
          Value isValid = arith::AndIOp::create(builder, loc, e.isLess(minusOne, page), e.isLess(page, pages));
          return {e.select(isValid, inner[0], sequence), e.select(isValid, inner[1], page)};
        });
      });
  require(e.isLess(invalid[0], zero), invalid[1], invalid[0], "has a page that is not in the pool",
          "a page of the pool for sequence ");
}
