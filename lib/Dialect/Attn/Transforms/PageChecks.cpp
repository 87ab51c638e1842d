//===- PageChecks.cpp - Run-time checks of page tables ------------------------===//
//
// Emits the checks that the pages of valid positions are in the pool. They are part of the shape function, so a call
// with an invalid page is refused before any kernel runs.
//
//===----------------------------------------------------------------------===//
#include "ScalarRegionEmitter.h"
#include "ShapeChecks.h"
#include "saccade/Support/IndexEmitter.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Whether a length is an argument, perhaps converted to another type.
static bool isArgument(Value length) {
  while (isa_and_nonnull<tensor::CastOp, arith::IndexCastOp>(length.getDefiningOp()))
    length = length.getDefiningOp()->getOperand(0);
  return isa<BlockArgument>(length);
}

/// The `kv_len` that limits the positions that all users of `keys` read; null if they differ or read all positions.
static Value findLength(Value keys) {
  Value length;
  for (Operation *user : keys.getUsers()) {
    if (isa<tensor::DimOp>(user))
      continue;
    auto op = dyn_cast<ScoringOpInterface>(user);
    bool isRead = op && op.getQuery() != keys && op.getAt().empty() && op.getKvLen();
    if (!isRead || (length && op.getKvLen() != length))
      return nullptr;
    length = op.getKvLen();
  }
  return length;
}

/// Applies to tables that are arguments, if the host can read their elements; generated code clamps other pages.
void ShapeChecks::addForPages(PagedOp op) {
  Value table = withoutCasts(op.getTable()), length = findLength(op.getResult());
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
