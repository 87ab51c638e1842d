//===- AppendChecks.cpp - Run-time checks of attn.append ----------------------===//
//
// Emits the checks that new rows are within their cache. They are part of the shape function, so a call whose rows do
// not fit is refused before anything is written.
//
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"
#include "saccade/Support/IndexEmitter.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using arith::CmpIPredicate;

void ShapeChecks::addForAppend(AppendOp op) {
  auto rows = [&](Dim dim) { return getDimSize(builder, loc, op.getRows(), op.getRowsDims(), dim); };
  auto cache = [&](Dim dim) { return getDimSize(builder, loc, op.getCache(), op.getCacheDims(), dim); };
  StringRef whole = op.getTable() ? "page table" : "cache";
  OpFoldResult batches = op.getBatches(builder);
  if (!op.getFrom())
    requireSame(rows(Dim::Batch), batches, "new rows have another batch size than " + whole);
  requireSame(rows(Dim::Head), cache(Dim::Head), "new rows have another head count than cache");
  requireSame(rows(Dim::Depth), cache(Dim::Depth), "new rows have another head size than cache");
  for (auto [clause, number] :
       {std::pair("at", op.getAt()), std::pair("count", op.getCount()), std::pair("from", op.getFrom())})
    if (number && isa<RankedTensorType>(number.getType()))
      requireSame(extent(number, 0), batches, Twine(clause) + " has another batch size than " + whole);
  if (op.getRing()) {
    IndexEmitter e(builder, loc);
    Value pinned = e.index(*op.getRing()), capacity = materialize(cache(Dim::Seq));
    require(e.isLess(pinned, capacity), pinned, capacity, "ring keeps as many first rows as the cache has",
            "less than ");
  }
  addForAppendedRows(op);
}

/// A loop over the sequences carries, for each check, the first sequence that violates it, −1 at first, and the number
/// found there.
void ShapeChecks::addForAppendedRows(AppendOp op) {
  IndexEmitter e(builder, loc);
  Value at = findLengthArgument(op.getAt()), count = findLengthArgument(op.getCount());
  Value from = findLengthArgument(op.getFrom());
  auto size = [&](Value tensor, DimsAttr dims, Dim dim) {
    return materialize(getDimSize(builder, loc, tensor, dims, dim));
  };
  Value rows = size(op.getRows(), op.getRowsDims(), Dim::Seq);
  Value capacity = size(op.getCache(), op.getCacheDims(), Dim::Seq);
  if (op.getTable())
    capacity = e.mul(capacity, materialize(extent(op.getTable(), 1)));
  Value sequences = materialize(op.getBatches(builder));
  // Another number of elements is refused elsewhere.
  for (Value lengths : {at, count, from})
    if (lengths && isa<RankedTensorType>(lengths.getType()))
      sequences = e.min(sequences, materialize(extent(lengths, 0)));

  struct Check {
    StringRef message, relation;
    CmpIPredicate violation;
    Value limit;
  };
  SmallVector<Check> checks;
  if (at)
    checks.push_back({"position of the first new row is negative", "at least ", CmpIPredicate::slt, zero});
  if (count) {
    checks.push_back({"count of new rows is negative", "at least ", CmpIPredicate::slt, zero});
    checks.push_back({"count exceeds the new rows", "at most ", CmpIPredicate::sgt, rows});
  }
  bool isLastKnown = from && count;
  if (isLastKnown) {
    checks.push_back({"first new row is negative", "at least ", CmpIPredicate::slt, zero});
    checks.push_back({"new rows of a sequence exceed those of all: their end", "at most ", CmpIPredicate::sgt, rows});
  }
  // If one of the two is computed, the kernel clamps.
  bool isEndKnown = at && (count || !op.getCount()) && !op.getRing();
  if (isEndKnown)
    checks.push_back({op.getTable() ? "page table is full: end of the new rows" : "cache is full: end of the new rows",
                      "at most ", CmpIPredicate::sgt, capacity});
  if (checks.empty())
    return;

  SmallVector<Value> inits;
  for (size_t i = 0; i < checks.size(); ++i)
    inits.append({e.index(-1), zero});
  SmallVector<Value> violations =
      e.loop(zero, sequences, 1, inits, [&](Value sequence, ValueRange carried) -> SmallVector<Value> {
        SmallVector<Value> numbers, next;
        if (at)
          numbers.push_back(numberOf(at, sequence));
        if (count)
          numbers.append(2, numberOf(count, sequence));
        if (isLastKnown) {
          Value first = numberOf(from, sequence);
          numbers.append(
              {first, e.add(e.min(first, e.index(int64_t(1) << 62)), e.min(numberOf(count, sequence), rows))});
        }
        if (isEndKnown) // The limit avoids an overflow of the addition.
          numbers.push_back(e.add(e.min(numbers[0], e.index(int64_t(1) << 62)), count ? numbers[1] : rows));
        for (auto [i, check, number] : llvm::enumerate(checks, numbers)) {
          Value where = carried[2 * i], isFirst = e.isLess(where, zero);
          Value applies =
              builder.createOrFold<arith::AndIOp>(loc, isFirst, e.compare(check.violation, number, check.limit));
          next.append({e.select(applies, sequence, where), e.select(applies, number, carried[2 * i + 1])});
        }
        return next;
      });
  for (auto [i, check] : llvm::enumerate(checks))
    require(e.isLess(violations[2 * i], zero), violations[2 * i + 1], check.limit, check.message, check.relation,
            {"sequence", violations[2 * i]});
  if (op.getTable() && isEndKnown)
    addForWrittenPages(op, {at, count, rows, capacity, sequences});
}
