//===- CaptureChecks.cpp - Captured tensors that are read outside -------------===//
//
// A read outside of a captured tensor is harmless to memory and gives anything. Where a call is certain to do so for a pair
// that the mask lets through, it is refused: the index is computed at the corners of the range of positions, where
// what is affine, or grows with each position, has its extremes. What no corner shows is let pass.
//
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade::attn;

/// More ops than this are not computed ahead of a call.
static constexpr unsigned mostOps = 64;

namespace {

/// Values of a region for one pair of positions.
class Corner {
public:
  Corner(OpBuilder &b, Location loc, IRMapping values, Value queryLength, Value keyLength)
      : b(b), loc(loc), values(std::move(values)), queryLength(queryLength), keyLength(keyLength) {}

  /// `value` as code here; null where it depends on elements of tensors or must not be computed for any number.
  Value emit(Value value) {
    if (Value known = values.lookupOrNull(value))
      return known;
    Operation *op = value.getDefiningOp();
    if (!op || op->getNumRegions() != 0 || isa<tensor::ExtractOp>(op))
      return {};
    Value result;
    if (auto length = dyn_cast<LengthOp>(op)) {
      result = length.getRole() == Role::Query ? queryLength : keyLength;
    } else if (op->getNumOperands() == 0 || isSpeculatable(op)) {
      for (Value operand : op->getOperands())
        if (!emit(operand))
          return {};
      result = b.clone(*op, values)->getResult(cast<OpResult>(value).getResultNumber());
    }
    if (result)
      values.map(value, result);
    return result;
  }

private:
  OpBuilder &b;
  Location loc;
  IRMapping values;
  Value queryLength, keyLength; ///< null where they are not one number
};

} // namespace

/// The ops that `value` is computed by.
static void collect(Value value, llvm::SetVector<Operation *> &ops) {
  if (Operation *op = value.getDefiningOp(); op && ops.insert(op))
    for (Value operand : op->getOperands())
      if (!isa<RankedTensorType>(operand.getType()))
        collect(operand, ops);
}

static bool dependsOn(const llvm::SetVector<Operation *> &ops, Value value, Value position) {
  return value == position ||
         llvm::any_of(ops, [&](Operation *op) { return llvm::is_contained(op->getOperands(), position); });
}

/// Whether some choice may leave out what was read: then reading outside may be meant.
static bool isChosen(Value read) {
  llvm::SetVector<Operation *> users(read.user_begin(), read.user_end());
  for (unsigned i = 0; i < users.size(); ++i) {
    if (isa<arith::SelectOp>(users[i]))
      return true;
    for (Value result : users[i]->getResults())
      users.insert(result.user_begin(), result.user_end());
  }
  return false;
}

/// Whether a scalar of the program is known from extents and other scalars, without any element of a tensor.
static bool isKnownAhead(Value value) {
  if (isa<RankedTensorType>(value.getType()))
    return false;
  llvm::SetVector<Operation *> ops;
  collect(value, ops);
  return llvm::all_of(ops, [](Operation *op) {
    bool isScalar = llvm::none_of(op->getOperandTypes(), llvm::IsaPred<RankedTensorType>);
    return isa<tensor::DimOp>(op) || (isScalar && op->getNumRegions() == 0);
  });
}

/// For reads at an index that `addForCapture` leaves: computed ones, and queries and keys that a mask or a length may hold
/// back.
void ShapeChecks::addForComputedRead(AttentionOp op, tensor::ExtractOp read, Region &region) {
  RegionArguments arguments = getRegionArguments(region, /*isScore=*/true);
  auto capture = dyn_cast<BlockArgument>(read.getTensor());
  // Positions in packed sequences are not known ahead of the call.
  if (!capture || op.isPacked() || isChosen(read))
    return;
  unsigned position = capture.getArgNumber() - arguments.captures.front().getArgNumber();
  RegionArguments ofMask = op.getMask().empty() ? arguments : getRegionArguments(op.getMask(), /*isScore=*/false);
  Value condition =
      op.getMask().empty() ? Value() : cast<YieldOp>(op.getMask().front().getTerminator()).getOperand();
  for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
    bool isBounded = op.getQLen() || op.getKvLen() || condition;
    StringRef reader = index == arguments.query ? "query position" : index == arguments.key ? "key position" : "a computed index";
    if (index == arguments.batch || index == arguments.head || (isa<BlockArgument>(index) && !isBounded))
      continue;
    addForIndex(op, ("capture #" + Twine(position) + " is read by " + reader + " in dimension " + Twine(dim)).str(),
                extent(op.getCaptures()[position], dim), {arguments, index}, {ofMask, condition});
  }
}

void ShapeChecks::addForIndex(AttentionOp op, StringRef reads, OpFoldResult size, RegionValue index,
                              RegionValue condition) {
  llvm::SetVector<Operation *> ofIndex, ofCondition;
  collect(index.value, ofIndex);
  if (condition.value)
    collect(condition.value, ofCondition);
  if (ofIndex.size() + ofCondition.size() > mostOps)
    return;
  if (!llvm::all_of(op.getAt(), isKnownAhead) || (op.getQLen() && !isKnownAhead(op.getQLen())) ||
      (op.getKvLen() && !isKnownAhead(op.getKvLen())))
    return;
  auto extentOf = [&](Value operand, DimsAttr dims, Dim name) {
    return materialize(getDimSize(builder, loc, operand, dims, name));
  };
  auto add = [&](Value x, Value y) -> Value { return builder.createOrFold<arith::AddIOp>(loc, x, y); };
  auto isLess = [&](Value x, Value y) -> Value {
    return builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y);
  };
  auto both = [&](Value x, Value y) -> Value { return builder.createOrFold<arith::AndIOp>(loc, x, y); };
  Value one = arith::ConstantIndexOp::create(builder, loc, 1), truth = arith::ConstantIntOp::create(builder, loc, 1, 1);

  // Where positions begin and end.
  Value begins[4], ends[4], lengths[2], exists = truth;
  const std::tuple<Value, DimsAttr, Dim> sizes[] = {{op.getQuery(), op.getQueryDims(), Dim::Batch},
                                                    {op.getQuery(), op.getQueryDims(), Dim::Head},
                                                    {op.getQuery(), op.getQueryDims(), Dim::Seq},
                                                    {op.getKey(), op.getKeyDims(), Dim::Seq}};
  for (unsigned i = 0; i < 4; ++i) {
    auto [operand, dims, name] = sizes[i];
    begins[i] = op.getAt().empty() ? zero : Value(op.getAt()[i]);
    ends[i] = add(begins[i], extentOf(operand, dims, name));
    if (i < 2) {
      exists = both(exists, isLess(begins[i], ends[i]));
      continue;
    }
    Value length = i == 2 ? op.getQLen() : op.getKvLen();
    lengths[i - 2] = length ? length : ends[i];
    if (length)
      ends[i] = builder.createOrFold<arith::MinSIOp>(loc, ends[i], length);
    exists = both(exists, isLess(begins[i], ends[i]));
  }

  auto positionsOf = [](const RegionArguments &arguments) {
    return std::array<Value, 4>{arguments.batch, arguments.head, arguments.query, arguments.key};
  };
  std::array<Value, 4> ours = positionsOf(index.arguments), theirs = positionsOf(condition.arguments);
  SmallVector<unsigned> varying;
  for (unsigned i = 0; i < 4; ++i)
    if (dependsOn(ofIndex, index.value, ours[i]) ||
        (condition.value && dependsOn(ofCondition, condition.value, theirs[i])))
      varying.push_back(i);
  Value low = zero, high = arith::ConstantIndexOp::create(builder, loc, -1);
  for (unsigned corner = 0; corner < 1u << varying.size(); ++corner) {
    IRMapping values;
    for (unsigned i = 0; i < 4; ++i) {
      auto *place = llvm::find(varying, i);
      bool isLast = place != varying.end() && (corner >> (place - varying.begin())) & 1;
      Value at = isLast ? builder.createOrFold<arith::SubIOp>(loc, ends[i], one) : begins[i];
      values.map(ours[i], at);
      values.map(theirs[i], at);
    }
    for (const RegionArguments *arguments : {&index.arguments, &condition.arguments})
      for (auto [argument, value] : llvm::zip_equal(arguments->captures, op.getCaptures()))
        if (isa<RankedTensorType>(value.getType()) || isKnownAhead(value))
          values.map(argument, value);
    Corner here(builder, loc, values, lengths[0], lengths[1]);
    Value found = here.emit(index.value), isSeen = condition.value ? here.emit(condition.value) : truth;
    if (!found || !isSeen)
      return;
    isSeen = both(isSeen, exists);
    low = builder.createOrFold<arith::SelectOp>(loc, both(isSeen, isLess(found, low)), found, low);
    high = builder.createOrFold<arith::SelectOp>(loc, both(isSeen, isLess(high, found)), found, high);
  }
  Value there = materialize(size), needed = add(high, one);
  require(builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::sge, low, zero), low, zero,
          reads + " and begins behind it", "at least ");
  require(builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::sge, there, needed), there, needed,
          reads + " and is too small for it", "at least ");
}
