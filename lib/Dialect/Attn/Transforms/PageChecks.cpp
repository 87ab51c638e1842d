//===- PageChecks.cpp - Run-time checks of page tables ------------------------===//
//
// Emits the checks that the pages of valid positions are in the pool, and that new rows of two sequences are not in the
// same page. They are part of the shape function, so a call with an invalid page is refused before any kernel runs.
//
//===----------------------------------------------------------------------===//
#include "ScalarRegionEmitter.h"
#include "ShapeChecks.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "saccade/Support/IndexEmitter.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using arith::CmpIPredicate;

/// The result of an elementwise op that reads an operand, as a whole or by element in the body as scales of blocks are,
/// and its dimension along which dimension `seq` of the operand is read; nullopt if another op reads it, or another
/// position.
static std::optional<std::pair<Value, unsigned>> elementwiseReader(OpOperand &use, unsigned seq) {
  Operation *user = use.getOwner();
  auto read = dyn_cast<tensor::ExtractOp>(user);
  auto generic = dyn_cast<linalg::GenericOp>(read ? user->getParentOp() : user);
  if (!generic || !linalg::isElementwise(generic) || generic->getNumResults() != 1)
    return std::nullopt;
  AffineExpr position;
  if (!read)
    position = generic.getMatchingIndexingMap(&use).getResult(seq);
  else if (auto index = read.getIndices()[seq].getDefiningOp<linalg::IndexOp>())
    position = getAffineDimExpr(index.getDim(), use.get().getContext());
  auto result = cast<OpResult>(generic.getResult(0));
  std::optional<unsigned> dim;
  if (position)
    dim = generic.getIndexingMapMatchingResult(result).getResultPosition(position);
  return dim ? std::optional(std::pair<Value, unsigned>(result, *dim)) : std::nullopt;
}

/// Collects the `kv_len` of all ops that read `keys`, directly or through dequantizations, casts and slices. Collects
/// null for an op that may read all positions. `seq`: the dimension of positions.
static void collectLengths(Value keys, unsigned seq, SetVector<Value> &lengths) {
  for (OpOperand &use : keys.getUses()) {
    Operation *user = use.getOwner();
    auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
    bool isSlice = slice && !slice.getDroppedDims().any() && isConstantIntValue(slice.getMixedOffsets()[seq], 0) &&
                   slice.hasUnitStride();
    auto op = dyn_cast<ScoringOpInterface>(user);
    if (auto reader = elementwiseReader(use, seq))
      collectLengths(reader->first, reader->second, lengths);
    else if (isSlice || isa<tensor::CastOp>(user))
      collectLengths(user->getResult(0), seq, lengths);
    else if (!isa<tensor::DimOp>(user))
      lengths.insert(op && op.getQuery() != keys && op.getAt().empty() ? op.getKvLen() : Value());
  }
}

namespace {

/// The entries of a page table that belong to positions of each sequence.
struct PageTable {
  /// The entries [begin, end) of a sequence, within the table.
  using EntriesOf = llvm::function_ref<std::pair<Value, Value>(Value sequence)>;
  using Body = llvm::function_ref<SmallVector<Value>(Value sequence, Value page, ValueRange carried)>;

  IndexEmitter &e;
  Value table, sequences;
  EntriesOf entriesOf;

  /// Emits `body` for each entry of the sequences [0, count), with loop-carried values.
  SmallVector<Value> forEach(Value count, ValueRange inits, Body body) const {
    Value zero = e.index(0);
    return e.loop(zero, count, 1, inits, [&](Value sequence, ValueRange carried) -> SmallVector<Value> {
      auto [begin, end] = entriesOf(sequence);
      return e.loop(begin, end, 1, carried, [&](Value entry, ValueRange inner) {
        Value page = tensor::ExtractOp::create(e.b, e.loc, table, ValueRange{sequence, entry});
        return body(sequence, e.asIndex(page), inner);
      });
    });
  }

  /// The first sequence that has a page outside of [0, pages), −1 if there is none, and this page.
  SmallVector<Value> findInvalid(Value pages) const;

  /// The first sequence that has a page which occurs before, −1 if there is none, this page, and the sequence with its
  /// first occurrence. All pages are in [0, pages), or the result has no meaning.
  SmallVector<Value> findRepeated(Value pages) const;
};

} // namespace

SmallVector<Value> PageTable::findInvalid(Value pages) const {
  Value none = e.index(-1), zero = e.index(0);
  return forEach(sequences, {none, zero}, [&](Value sequence, Value page, ValueRange carried) -> SmallVector<Value> {
    Value isInvalid =
        arith::OrIOp::create(e.b, e.loc, e.isLess(page, zero), e.compare(CmpIPredicate::sge, page, pages));
    Value isFirst = arith::AndIOp::create(e.b, e.loc, isInvalid, e.isLess(carried[0], zero));
    return {e.select(isFirst, sequence, carried[0]), e.select(isFirst, page, carried[1])};
  });
}

/// Marks pages in a set of bits on the stack: no memory is allocated, and the time is linear in the number of entries.
/// A pool with more pages than the set has bits takes several rounds. Only the words of the entries are cleared.
SmallVector<Value> PageTable::findRepeated(Value pages) const {
  constexpr int64_t words = 1024, bitsOfWord = 64, bits = words * bitsOfWord;
  OpBuilder &b = e.b;
  Value none = e.index(-1), zero = e.index(0);
  Value set = memref::AllocaOp::create(b, e.loc, MemRefType::get({words}, b.getI64Type()));
  auto wordOf = [&](Value bit) { return e.div(bit, bitsOfWord); };
  SmallVector<Value> found =
      e.loop(zero, pages, bits, {none, zero}, [&](Value base, ValueRange ofRounds) -> SmallVector<Value> {
        // A page that is not in this round counts as its first one, and is not marked.
        auto locate = [&](Value page) {
          Value bit = e.sub(page, base);
          Value isInRound = e.compare(CmpIPredicate::ult, bit, e.index(bits));
          return std::pair(e.select(isInRound, bit, zero), isInRound);
        };
        Value cleared = arith::ConstantIntOp::create(b, e.loc, 0, 64);
        forEach(sequences, zero, [&](Value, Value page, ValueRange unused) -> SmallVector<Value> {
          memref::StoreOp::create(b, e.loc, cleared, set, wordOf(locate(page).first));
          return unused;
        });
        return forEach(sequences, ofRounds, [&](Value sequence, Value page, ValueRange carried) -> SmallVector<Value> {
          auto [bit, isInRound] = locate(page);
          Value shift = arith::IndexCastOp::create(b, e.loc, b.getI64Type(), e.rem(bit, e.index(bitsOfWord)));
          Value one = arith::ConstantIntOp::create(b, e.loc, 1, 64), word = wordOf(bit);
          Value mark = e.select(isInRound, arith::ShLIOp::create(b, e.loc, one, shift), e.constantLike(one, 0));
          Value old = memref::LoadOp::create(b, e.loc, set, word);
          memref::StoreOp::create(b, e.loc, arith::OrIOp::create(b, e.loc, old, mark), set, word);
          Value both = arith::AndIOp::create(b, e.loc, old, mark);
          Value isRepeated = e.compare(CmpIPredicate::ne, both, e.constantLike(one, 0));
          Value isFirst = arith::AndIOp::create(b, e.loc, isRepeated, e.isLess(carried[0], zero));
          return {e.select(isFirst, sequence, carried[0]), e.select(isFirst, page, carried[1])};
        });
      });
  // Without a repeated page the loop is empty.
  SmallVector<Value> first =
      forEach(e.add(found[0], 1), none, [&](Value sequence, Value page, ValueRange carried) -> SmallVector<Value> {
        Value isSame = e.isEqual(page, found[1]);
        Value isFirst = arith::AndIOp::create(b, e.loc, isSame, e.isLess(carried[0], zero));
        return {e.select(isFirst, sequence, carried[0])};
      });
  return {found[0], found[1], first[0]};
}

void ShapeChecks::requireInPool(Value sequence, Value page, Value pages) {
  require(IndexEmitter(builder, loc).isLess(sequence, zero), page, pages, "has a page that is not in the pool",
          "0 or more and less than ", {"sequence", sequence});
}

/// Applies to tables that are arguments, if the host can read their elements; generated code clamps other pages.
void ShapeChecks::addForPages(PagedOp op) {
  SetVector<Value> lengths;
  collectLengths(op.getResult(), *op.getDims().position(Dim::Seq), lengths);
  Value table = withoutCasts(op.getTable()), length = lengths.size() == 1 ? lengths[0] : Value();
  if (!mayReadElements || !isReadableBeforeCall(table) || (length && !findLengthArgument(length)))
    return;
  IndexEmitter e(builder, loc);
  auto poolSize = [&](Dim dim) { return materialize(extent(op.getPool(), *op.getDims().position(dim))); };
  Value pages = poolSize(Dim::Batch), pageSize = e.max(poolSize(Dim::Seq), e.index(1));
  Value sequences = materialize(extent(table, 0)), entries = materialize(extent(table, 1));
  if (length && isa<RankedTensorType>(length.getType())) // Another number of lengths is refused elsewhere.
    sequences = e.min(sequences, materialize(extent(length, 0)));
  auto entriesOf = [&](Value sequence) {
    Value end = length ? e.ceilDiv(e.max(numberOf(length, sequence), zero), pageSize) : entries;
    return std::pair(zero, e.min(entries, end));
  };
  SmallVector<Value> invalid = PageTable{e, table, sequences, entriesOf}.findInvalid(pages);
  requireInPool(invalid[0], invalid[1], pages);
}

void ShapeChecks::addForWrittenPages(AppendOp op, AppendedRows rows) {
  Value table = withoutCasts(op.getTable());
  if (!mayReadElements || !isReadableBeforeCall(table))
    return;
  IndexEmitter e(builder, loc);
  auto poolSize = [&](Dim dim) { return materialize(extent(op.getCache(), *op.getCacheDims().position(dim))); };
  Value pages = poolSize(Dim::Batch), pageSize = e.max(poolSize(Dim::Seq), e.index(1));
  // Positions beyond the table are refused elsewhere.
  auto clamp = [&](Value number, Value limit) { return e.min(e.max(number, zero), limit); };
  auto entriesOf = [&](Value sequence) {
    Value begin = clamp(numberOf(rows.at, sequence), rows.capacity);
    Value count = rows.count ? clamp(numberOf(rows.count, sequence), rows.rows) : rows.rows;
    Value end = e.min(e.add(begin, count), rows.capacity), first = e.div(begin, pageSize);
    return std::pair(first, e.select(e.isLess(begin, end), e.ceilDiv(end, pageSize), first));
  };
  PageTable written{e, table, rows.sequences, entriesOf};
  SmallVector<Value> invalid = written.findInvalid(pages), repeated = written.findRepeated(pages);
  requireInPool(invalid[0], invalid[1], pages);
  require(e.isLess(repeated[0], zero), repeated[1], repeated[2], "writes to a page twice",
          "a page other than those of sequence ", {"sequence", repeated[0]});
}
