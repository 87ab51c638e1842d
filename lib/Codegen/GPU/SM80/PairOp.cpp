//===- PairOp.cpp - The elementwise op of a gradient at one pair --------------===//
#include "PairOp.h"
#include "../ElementOp.h"
#include "../ScoreMath.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// The factors of a position in a comparison, and a bound of what is compared.
static constexpr int64_t maxPlaceFactor = 4, maxSum = 1 << 20;

/// A sum of the places of a pair in its tile and of numbers that are equal for all pairs of the tile.
struct PairOp::PlaceSum {
  int64_t factors[2] = {0, 0};
  Value common; ///< index; null for 0
};

std::optional<PairOp::PlaceSum> PairOp::placeSumOf(Value value) {
  Operation *maker = value.getDefiningOp();
  if (!maker || maker->getBlock() != op.getBlock()) {
    bool isCommon = value.getType().isIndex() && !op->isAncestor(value.getParentBlock()->getParentOp());
    return isCommon ? std::optional(PlaceSum{{0, 0}, value}) : std::nullopt;
  }
  PlaceSum sum;
  if (auto index = dyn_cast<linalg::IndexOp>(maker)) {
    sum.factors[index.getDim()] = 1;
    return sum;
  }
  if (!isa<arith::AddIOp, arith::SubIOp>(maker) || !value.getType().isIndex())
    return std::nullopt;
  auto x = placeSumOf(maker->getOperand(0)), y = placeSumOf(maker->getOperand(1));
  if (!x || !y)
    return std::nullopt;
  bool isDifference = isa<arith::SubIOp>(maker);
  for (unsigned i : {0, 1})
    sum.factors[i] = x->factors[i] + (isDifference ? -y->factors[i] : y->factors[i]);
  Value zero = e.index(0), left = x->common ? x->common : zero, right = y->common ? y->common : zero;
  sum.common = isDifference ? e.sub(left, right) : e.add(left, right);
  return sum;
}

/// If `inner` compares sums of the position of a pair and common numbers, such as in a causal mask, its result in 32
/// bits: places in a tile are small, so only the difference of the common numbers needs 64 bits. Null for other ops.
Value PairOp::compareInTile(Operation &inner, ArrayRef<Value> places) {
  auto compare = dyn_cast<arith::CmpIOp>(inner);
  if (!compare || arith::CmpIPredicate::ult <= compare.getPredicate())
    return {};
  auto x = placeSumOf(compare.getLhs()), y = placeSumOf(compare.getRhs());
  if (!x || !y)
    return {};
  Value sum = e.i32(0);
  for (unsigned i : {0, 1}) {
    int64_t factor = x->factors[i] - y->factors[i];
    if (std::abs(factor) > maxPlaceFactor)
      return {};
    if (factor != 0)
      sum = e.add(sum, e.mul(places[i], factor));
  }
  Value zero = e.index(0), limit = e.sub(y->common ? y->common : zero, x->common ? x->common : zero);
  // Beyond these limits all pairs compare alike.
  limit = e.toI32(e.max(e.min(limit, e.index(maxSum)), e.index(-maxSum)));
  return e.compare(compare.getPredicate(), sum, limit);
}

SmallVector<Value> PairOp::evaluate(ArrayRef<Value> places,
                                    function_ref<Value(OpOperand &, ArrayRef<Value> positions)> load) {
  Value positions[] = {e.toIndex(places[0]), e.toIndex(places[1])};
  IRMapping values;
  for (OpOperand *operand : op.getDpsInputOperands())
    if (BlockArgument argument = op.getMatchingBlockArgument(operand); !argument.use_empty())
      values.map(argument, load(*operand, positions));
  for (Operation &inner : op.getBlock()->without_terminator()) {
    auto operands = llvm::map_to_vector(inner.getOperands(), [&](Value x) { return values.lookupOrDefault(x); });
    auto exponential = dyn_cast<math::Exp2Op>(inner);
    if (Value isTrue = compareInTile(inner, places))
      values.map(inner.getResult(0), isTrue);
    else if (exponential && exponential.getType().isF32())
      values.map(exponential.getResult(), e.approxIntrinsic("ex2", operands[0]));
    else if (Value cheaper = emitScoreOp(e, inner, operands, TanhMethod::Quotient))
      values.map(inner.getResult(0), cheaper);
    else
      cloneAt(e, inner, values, positions);
  }
  return llvm::map_to_vector(op.getBlock()->getTerminator()->getOperands(), [&](Value result) -> Value {
    auto rounded = result.getDefiningOp<arith::TruncFOp>();
    if (rounded && rounded.getIn().getType().isF32())
      return values.lookupOrDefault(rounded.getIn());
    return e.extend(values.lookupOrDefault(result));
  });
}
