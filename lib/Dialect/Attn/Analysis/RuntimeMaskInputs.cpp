//===- RuntimeMaskInputs.cpp - Run-time inputs of a mask ----------------------===//
//
// Emits minima and maxima over a box of a captured tensor. Along the last dimension, whole blocks are read from tables
// with a minimum and maximum per block and the remaining elements one by one, so the bounds are exact.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/RuntimeMaskInputs.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade::attn;

/// The maximum number of reads for a box.
static constexpr int64_t maxElementReads = 4096;

/// On an attn.accumulate: the numbers of the captures whose tables are the last captures, two for each.
static constexpr llvm::StringLiteral tablesAttr = "attn.mask_tables";

void RuntimeMaskInputs::attachTables(AccumulateOp op, ArrayRef<unsigned> captures, const BlockMinMax &tables) {
  SmallVector<int64_t> numbers(captures.begin(), captures.end());
  for (unsigned capture : captures) {
    auto [lows, highs] = tables(op.getCaptures()[capture]);
    for (Value table : {lows, highs}) {
      op.getCapturesMutable().append(table);
      for (const NamedRegion &named : getNamedRegions(cast<ScoringOpInterface>(op.getOperation())))
        named.region->addArgument(table.getType(), op.getLoc());
    }
  }
  op->setAttr(tablesAttr, DenseI64ArrayAttr::get(op.getContext(), numbers));
}

RuntimeMaskInputs::BlockMinMax RuntimeMaskInputs::attachedTables(ScoringOpInterface op) {
  return [op](Value source) mutable -> std::pair<Value, Value> {
    auto numbers = op->getAttrOfType<DenseI64ArrayAttr>(tablesAttr);
    if (!numbers)
      return {};
    OperandRange tables = op.getCaptures().take_back(2 * numbers.size());
    for (auto [i, capture] : llvm::enumerate(numbers.asArrayRef()))
      if (op.getCaptures()[capture] == source)
        return {tables[2 * i], tables[2 * i + 1]};
    return {};
  };
}

StagedInt RuntimeMaskInputs::length(StagedIntBuilder &b, Role role) {
  return b.fromValue(role == Role::Query ? op.getQLen() : op.getKvLen());
}

StagedInt RuntimeMaskInputs::scalar(StagedIntBuilder &b, unsigned capture) {
  return b.fromValue(op.getCaptures()[capture]);
}

StagedInt RuntimeMaskInputs::extent(StagedIntBuilder &b, unsigned capture, unsigned dim) {
  Value source = op.getCaptures()[capture];
  auto type = cast<ShapedType>(source.getType());
  if (!type.isDynamicDim(dim))
    return type.getDimSize(dim);
  b.setInsertionPointFor(source);
  Value size = isa<MemRefType>(type) ? b.getBuilder()->createOrFold<memref::DimOp>(b.getLoc(), source, dim)
                                     : b.getBuilder()->createOrFold<tensor::DimOp>(b.getLoc(), source, dim);
  // A tensor has fewer than 2^48 elements.
  return StagedInt(size, 48);
}

namespace {

/// Emits loops that reduce numbers to their minimum and maximum.
struct Search {
  OpBuilder &b;
  Location loc;

  Value read(Value source, ValueRange position) {
    if (isa<MemRefType>(source.getType()))
      return memref::LoadOp::create(b, loc, source, position);
    return tensor::ExtractOp::create(b, loc, source, position);
  }

  Value index(int64_t number) { return arith::ConstantIndexOp::create(b, loc, number); }

  /// Emits a loop over [begin, end) that carries minimum and maximum, starting from `before`.
  SmallVector<Value> over(Value begin, Value end, ValueRange before,
                          function_ref<SmallVector<Value>(Value position, ValueRange before)> step) {
    auto loop = scf::ForOp::create(b, loc, begin, end, index(1), before);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    scf::YieldOp::create(b, loc, step(loop.getInductionVar(), loop.getRegionIterArgs()));
    return loop.getResults();
  }

  SmallVector<Value> join(ValueRange before, Value low, Value high) {
    auto number = [&](Value value) -> Value {
      if (value.getType().isIndex())
        return value;
      if (value.getType().isInteger(1))
        return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), value);
      return arith::IndexCastOp::create(b, loc, b.getIndexType(), value);
    };
    return {arith::MinSIOp::create(b, loc, before[0], number(low)),
            arith::MaxSIOp::create(b, loc, before[1], number(high))};
  }
};

} // namespace

std::optional<Interval> RuntimeMaskInputs::elements(StagedIntBuilder &b, unsigned capture, ArrayRef<Interval> place) {
  Value source = op.getCaptures()[capture];
  auto type = cast<ShapedType>(source.getType());
  unsigned rank = type.getRank();
  bool isInteger =
      type.getElementType().isIndex() || (type.getElementType().isInteger() && type.getElementTypeBitWidth() <= 64);
  if (!isInteger)
    return std::nullopt;
  if (rank == 0) {
    b.setInsertionPointFor(source);
    return Interval(b.fromValue(Search{*b.getBuilder(), b.getLoc()}.read(source, {})));
  }

  auto [lows, highs] = blockMinMax ? blockMinMax(source) : std::pair<Value, Value>();
  // [begin, end) along every dimension, clamped to the extents.
  SmallVector<StagedInt> begins, ends;
  StagedInt count = 1;
  for (auto [dim, interval] : llvm::enumerate(place)) {
    StagedInt last = b.sub(extent(b, capture, dim), 1);
    begins.push_back(b.max(b.min(interval.low, last), 0));
    ends.push_back(b.add(b.max(b.min(interval.high, last), 0), 1));
    StagedInt extent = b.sub(ends.back(), begins.back());
    if (lows && dim + 1 == rank) // whole blocks, and the elements before and after them
      extent = b.add(b.floorDiv(extent, minMaxBlock), 2 * minMaxBlock);
    // Clamped, so that the product does not overflow.
    count = b.mul(count, b.min(extent, int64_t(1) << 20));
    count = b.min(count, int64_t(1) << 20);
  }
  StagedInt isCheap = b.both(b.isAtMost(count, maxElementReads), b.isLess(0, this->extent(b, capture, rank - 1)));
  // If there are too many elements, or none, the loops have trip count zero.
  for (auto [begin, end] : llvm::zip_equal(begins, ends))
    end = b.select(isCheap, end, begin);

  StagedInt firstBlock = b.floorDiv(b.add(begins.back(), minMaxBlock - 1), minMaxBlock);
  StagedInt endBlock = b.floorDiv(ends.back(), minMaxBlock);
  StagedInt hasBlocks = lows ? b.isLess(firstBlock, endBlock) : StagedInt(0);
  StagedInt headEnd = b.select(hasBlocks, b.mul(firstBlock, minMaxBlock), ends.back());
  StagedInt tailBegin = b.select(hasBlocks, b.mul(endBlock, minMaxBlock), ends.back());
  endBlock = b.select(hasBlocks, endBlock, firstBlock);

  auto integer = [&](StagedInt number) { return b.materialize(number, /*isTruth=*/false); };
  SmallVector<Value> operands = {source};
  for (ArrayRef<StagedInt> numbers : {ArrayRef(begins), ArrayRef(ends)})
    for (StagedInt number : numbers)
      operands.push_back(number.getValue());
  b.setInsertionPointFor(operands);
  Search search{*b.getBuilder(), b.getLoc()};
  unsigned width = type.getElementType().isIndex() ? 64 : type.getElementTypeBitWidth();
  SmallVector<Value> position;
  auto at = [&](Value last) {
    SmallVector<Value> full(position);
    full.push_back(last);
    return full;
  };
  std::function<SmallVector<Value>(unsigned, ValueRange)> along = [&, lows = lows, highs = highs](unsigned dim,
                                                                                                  ValueRange before) {
    if (dim + 1 < rank)
      return search.over(integer(begins[dim]), integer(ends[dim]), before, [&](Value i, ValueRange inner) {
        position.push_back(i);
        SmallVector<Value> found = along(dim + 1, inner);
        position.pop_back();
        return found;
      });
    auto readOne = [&](Value i, ValueRange inner) {
      Value number = search.read(source, at(i));
      return search.join(inner, number, number);
    };
    SmallVector<Value> found = search.over(integer(begins.back()), integer(headEnd), before, readOne);
    if (!lows)
      return found;
    found = search.over(integer(firstBlock), integer(endBlock), found,
                        [&, lows = lows, highs = highs](Value i, ValueRange inner) {
                          return search.join(inner, search.read(lows, at(i)), search.read(highs, at(i)));
                        });
    return search.over(integer(tailBegin), integer(ends.back()), found, readOne);
  };
  SmallVector<Value> nothing = {search.index(INT64_MAX), search.index(INT64_MIN)};
  SmallVector<Value> found = along(0, nothing);
  unsigned bits = width == 1 ? 0 : width - 1;
  int64_t lowest = width == 1 ? 0 : llvm::minIntN(width), highest = width == 1 ? 1 : llvm::maxIntN(width);
  StagedInt isFound = b.both(isCheap, b.isAtMost(StagedInt(found[0]), StagedInt(found[1])));
  return Interval(b.select(isFound, StagedInt(found[0]), lowest).withBits(bits),
                  b.select(isFound, StagedInt(found[1]), highest).withBits(bits));
}
