//===- CaptureChecks.cpp - Bounds checks of reads of captured tensors ---------===//
//
// Kernels clamp out-of-bounds reads of captured tensors. A call is rejected if such a read is certain for a visible
// pair. An index computed from positions is evaluated at the corners of the position ranges, which are the extremes of
// affine and monotone indices. An index read from integer tensors of the caller is evaluated for every position it
// depends on, except for queries and keys together. Other indices are not checked; plain positions are checked in
// ShapeChecks.
//
//===----------------------------------------------------------------------===//
#include "ScalarRegionEmitter.h"
#include "ShapeChecks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace saccade::attn;

/// The maximum number of ops that are computed before a call.
static constexpr unsigned maxOps = 64;

using Ops = llvm::SetVector<Operation *>;

static bool dependsOn(const Ops &ops, Value value, Value position) {
  return value == position ||
         llvm::any_of(ops, [&](Operation *op) { return llvm::is_contained(op->getOperands(), position); });
}

/// Whether a scalar is computed from extents and scalars only, not from elements of tensors.
static bool isKnownBeforeCall(Value value) {
  if (isa<RankedTensorType>(value.getType()))
    return false;
  Ops ops;
  collectProducers(value, ops);
  return llvm::all_of(ops, [](Operation *op) {
    bool isScalar = llvm::none_of(op->getOperandTypes(), llvm::IsaPred<RankedTensorType>);
    return isa<tensor::DimOp>(op) || (isScalar && op->getNumRegions() == 0);
  });
}

static unsigned captureNumber(Value tensor, const RegionArguments &arguments) {
  return cast<BlockArgument>(tensor).getArgNumber() - arguments.captures.front().getArgNumber();
}

namespace {

/// An index of a read of a captured tensor, and the pairs for which it is read.
class IndexCheck {
public:
  IndexCheck(OpBuilder &b, Location loc, ScoringOpInterface op, tensor::ExtractOp read, const NamedRegion &region,
             unsigned dim);

  /// Whether the index can be computed before the call; `mayReadElements`: from elements of captured tensors as well.
  bool isKnown(bool mayReadElements);
  /// Captured tensors whose elements the index is computed from.
  SmallVector<unsigned> getTables() { return tablesOf(ofIndex, regionArgs); }
  /// The minimum (or 0) and the maximum (or −1) index that is read; nullopt if it cannot be computed before the call.
  std::optional<std::pair<Value, Value>> findBounds(bool mayReadElements);

private:
  static SmallVector<unsigned> tablesOf(const Ops &ops, const RegionArguments &arguments) {
    SmallVector<unsigned> tables;
    for (Operation *op : ops)
      if (auto read = dyn_cast<tensor::ExtractOp>(op))
        tables.push_back(captureNumber(read.getTensor(), arguments));
    return tables;
  }
  void findPositions();
  bool extend(std::array<Value, 4> at, Value &low, Value &high);
  bool extendAll(const std::array<Value, 4> &at, Value &low, Value &high);

  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
  Value both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); }
  Value select(Value c, Value x, Value y) { return b.createOrFold<arith::SelectOp>(loc, c, x, y); }
  Value isLess(Value x, Value y) { return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y); }
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }

  OpBuilder &b;
  Location loc;
  ScoringOpInterface op;
  tensor::ExtractOp read;
  Region &region;
  unsigned dim;
  bool hasCondition; ///< a mask selects the pairs
  RegionArguments regionArgs, maskArgs;
  Ops ofIndex, ofCondition, ofResult;
  Value begins[4], ends[4], lengths[2], exists;
  SmallVector<unsigned> enumerated, varying;        ///< positions that are enumerated; those evaluated at their ends
  llvm::SmallSetVector<Value, 4> *tables = nullptr; ///< the tensors that are read, while set
};

} // namespace

IndexCheck::IndexCheck(OpBuilder &b, Location loc, ScoringOpInterface op, tensor::ExtractOp read,
                       const NamedRegion &region, unsigned dim)
    : b(b), loc(loc), op(op), read(read), region(*region.region), dim(dim),
      hasCondition(!region.isMask() && !op.getMask().empty()), regionArgs(region.arguments()),
      maskArgs(hasCondition ? getRegionArguments(op.getMask(), /*numbers=*/0) : regionArgs) {
  collectProducers(read.getIndices()[dim], ofIndex);
  for (Value yielded : this->region.front().getTerminator()->getOperands())
    collectProducers(yielded, ofResult);
  if (hasCondition)
    collectProducers(op.getMask().front().getTerminator()->getOperand(0), ofCondition);
}

bool IndexCheck::isKnown(bool mayReadElements) {
  bool isShort = ofIndex.size() + ofCondition.size() <= maxOps && ofResult.size() <= 2 * maxOps;
  auto isKnownOrNone = [](Value length) { return !length || isKnownBeforeCall(length); };
  auto areReadable = [&](const Ops &ops, const RegionArguments &arguments) {
    return llvm::all_of(tablesOf(ops, arguments), [&](unsigned table) {
      return mayReadElements && isReadableBeforeCall(op.getCaptures()[table]);
    });
  };
  return isShort && llvm::all_of(op.getAt(), isKnownBeforeCall) && isKnownOrNone(op.getQLen()) &&
         isKnownOrNone(op.getKvLen()) && areReadable(ofIndex, regionArgs) && areReadable(ofCondition, maskArgs);
}

/// Computes the ranges of positions, whether they are non-empty, and which positions are enumerated.
void IndexCheck::findPositions() {
  exists = arith::ConstantIntOp::create(b, loc, 1, 1);
  const std::tuple<Value, DimsAttr, Dim> sizes[] = {{op.getQuery(), op.getQueryDims(), Dim::Batch},
                                                    {op.getQuery(), op.getQueryDims(), Dim::Head},
                                                    {op.getQuery(), op.getQueryDims(), Dim::Seq},
                                                    {op.getKey(), op.getKeyDims(), Dim::Seq}};
  const Value positions[] = {regionArgs.batch, regionArgs.head, regionArgs.query, regionArgs.key},
              ofMask[] = {maskArgs.batch, maskArgs.head, maskArgs.query, maskArgs.key};
  bool isLookedUp = !getTables().empty();
  Value indexValue = read.getIndices()[dim];
  bool usesBoth = dependsOn(ofIndex, indexValue, regionArgs.query) && dependsOn(ofIndex, indexValue, regionArgs.key);
  for (unsigned i = 0; i < 4; ++i) {
    auto [operand, dims, name] = sizes[i];
    begins[i] = op.getAt().empty() ? index(0) : Value(op.getAt()[i]);
    Value size = getValueOrCreateConstantIndexOp(b, loc, getDimSize(b, loc, operand, dims, name));
    ends[i] = add(begins[i], size);
    if (i >= 2) {
      Value length = i == 2 ? op.getQLen() : op.getKvLen();
      lengths[i - 2] = length ? length : ends[i];
      if (length)
        ends[i] = b.createOrFold<arith::MinSIOp>(loc, ends[i], length);
    }
    exists = both(exists, isLess(begins[i], ends[i]));
    bool isOfIndex = dependsOn(ofIndex, indexValue, positions[i]);
    if (isOfIndex && isLookedUp && !usesBoth)
      enumerated.push_back(i);
    else if (isOfIndex || dependsOn(ofResult, {}, positions[i]) ||
             (hasCondition && dependsOn(ofCondition, {}, ofMask[i])))
      varying.push_back(i);
  }
}

/// Extends [low, high] by the index of a pair, if the pair is visible and its result depends on the read.
bool IndexCheck::extend(std::array<Value, 4> at, Value &low, Value &high) {
  IRMapping values;
  for (const RegionArguments *arguments : {&regionArgs, &maskArgs}) {
    const Value positions[] = {arguments->batch, arguments->head, arguments->query, arguments->key};
    values.map(positions, at);
    for (auto [argument, value] : llvm::zip_equal(arguments->captures, op.getCaptures()))
      if (isa<RankedTensorType>(value.getType()) || isKnownBeforeCall(value))
        values.map(argument, value);
  }
  ScalarRegionEmitter here(b, loc, values, lengths[0], lengths[1], tables);
  Value found = here.emit(read.getIndices()[dim]), isSeen = exists;
  Value condition = hasCondition ? here.emit(op.getMask().front().getTerminator()->getOperand(0)) : exists;
  if (!found || !condition)
    return false;
  isSeen = both(isSeen, condition);
  Value affectsResult = arith::ConstantIntOp::create(b, loc, 0, 1);
  for (Value yielded : region.front().getTerminator()->getOperands()) {
    Value one = here.affectsResult(yielded, read);
    if (!one)
      return false;
    affectsResult = b.createOrFold<arith::OrIOp>(loc, affectsResult, one);
  }
  isSeen = both(isSeen, affectsResult);
  low = select(both(isSeen, isLess(found, low)), found, low);
  high = select(both(isSeen, isLess(high, found)), found, high);
  return true;
}

/// Calls `extend` for all corners of the positions that are not enumerated.
bool IndexCheck::extendAll(const std::array<Value, 4> &at, Value &low, Value &high) {
  bool enumeratesRows = llvm::any_of(enumerated, [](unsigned i) { return i >= 2; });
  // For an enumerated query, the key at its own position is evaluated as well: a mask may hide both ends.
  for (unsigned corner = 0; corner < 1u << varying.size(); ++corner) {
    std::array<Value, 4> place = at;
    for (auto [bit, i] : llvm::enumerate(varying))
      place[i] = (corner >> bit) & 1 ? sub(ends[i], index(1)) : begins[i];
    if (!extend(place, low, high))
      return false;
    unsigned last = varying.empty() ? 0 : varying.back();
    if (!enumeratesRows || last < 2 || (corner >> (varying.size() - 1)) & 1)
      continue;
    Value own = b.createOrFold<arith::MinSIOp>(loc, place[5 - last], sub(ends[last], index(1)));
    place[last] = b.createOrFold<arith::MaxSIOp>(loc, own, begins[last]);
    if (!extend(place, low, high))
      return false;
  }
  return true;
}

std::optional<std::pair<Value, Value>> IndexCheck::findBounds(bool mayReadElements) {
  findPositions();
  Value zero = index(0), one = index(1), none = index(-1), low = zero, high = none;
  std::array<Value, 4> at = {begins[0], begins[1], begins[2], begins[3]};
  if (enumerated.empty() && extendAll(at, low, high))
    return std::pair(low, high);
  if (!mayReadElements)
    return std::nullopt;

  // A loop over all enumerated positions; it has trip count zero if a tensor to read is empty.
  llvm::SmallSetVector<Value, 4> read;
  tables = &read;
  bool isKnown = false;
  auto loop = scf::ForOp::create(
      b, loc, zero, zero, one, ValueRange{zero, none}, [&](OpBuilder &, Location, Value item, ValueRange carried) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(item.getParentBlock());
        Value rest = item, least = carried[0], greatest = carried[1];
        for (unsigned i : llvm::reverse(enumerated)) {
          Value size = sub(ends[i], begins[i]);
          bool isLast = i == enumerated.front();
          at[i] = add(begins[i], isLast ? rest : Value(arith::RemUIOp::create(b, loc, rest, size)));
          if (!isLast)
            rest = arith::DivUIOp::create(b, loc, rest, size);
        }
        isKnown = extendAll(at, least, greatest);
        scf::YieldOp::create(b, loc, ValueRange{least, greatest});
      });
  tables = nullptr;
  if (!isKnown) {
    loop.erase();
    return std::nullopt;
  }
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(loop);
  Value isThere = exists, count = one;
  for (Value table : read)
    for (int64_t i = 0, rank = cast<RankedTensorType>(table.getType()).getRank(); i < rank; ++i)
      isThere = both(isThere, isLess(zero, tensor::DimOp::create(b, loc, table, i)));
  for (unsigned i : enumerated)
    count = b.createOrFold<arith::MulIOp>(loc, count, sub(ends[i], begins[i]));
  loop.setUpperBound(select(isThere, count, zero));
  return std::pair(loop.getResult(0), loop.getResult(1));
}

/// Checks the indices that `addForCapture` does not: computed ones, and query and key positions that a mask or a length
/// may exclude.
void ShapeChecks::addForComputedRead(ScoringOpInterface op, tensor::ExtractOp read, const NamedRegion &region) {
  RegionArguments arguments = region.arguments();
  // Positions in ragged sequences are not known before the call.
  if (!isa<BlockArgument>(read.getTensor()) || op.isRagged())
    return;
  unsigned position = captureNumber(read.getTensor(), arguments);
  bool isBounded = op.getQLen() || op.getKvLen() || (!region.isMask() && !op.getMask().empty());
  for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
    if (index == arguments.batch || index == arguments.head || (isa<BlockArgument>(index) && !isBounded))
      continue;
    IndexCheck check(builder, loc, op, read, region, dim);
    if (!check.isKnown(mayReadElements))
      continue;
    auto bounds = check.findBounds(mayReadElements);
    if (!bounds)
      continue;
    SmallVector<unsigned> tables = check.getTables();
    std::string reads = ("capture #" + Twine(position) + " is read by ").str();
    reads += index == arguments.query ? "query position"
             : index == arguments.key ? "key position"
             : tables.empty()         ? "a computed index"
                                      : ("an index out of capture #" + Twine(tables.back())).str();
    reads += (" in dimension " + Twine(dim)).str();
    Value there = materialize(extent(op.getCaptures()[position], dim));
    Value needed = arith::AddIOp::create(builder, loc, bounds->second, arith::ConstantIndexOp::create(builder, loc, 1));
    require(builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::sge, bounds->first, zero), bounds->first,
            zero, reads + " and starts after it", "at least ");
    require(builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::sge, there, needed), there, needed,
            reads + " and is too small for it", "at least ");
  }
}
