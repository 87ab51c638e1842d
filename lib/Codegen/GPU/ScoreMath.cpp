//===- ScoreMath.cpp - Cheaper arithmetic of score regions --------------------===//
//
// Rewrites single ops while they are cloned. The values that become unused are removed by LLVM, which also computes
// equal ones once.
//
//===----------------------------------------------------------------------===//
#include "ScoreMath.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// The value of a constant that is a normal number, as are products with it by which others are replaced.
static std::optional<double> normalConstant(Value x) {
  APFloat value(0.0f);
  if (!x.getType().isF32() || !matchPattern(x, m_ConstantFloat(&value)) || !value.isNormal())
    return std::nullopt;
  return value.convertToDouble();
}

static bool isNormal(double value) { return std::fpclassify(static_cast<float>(value)) == FP_NORMAL; }

/// The operand that x multiplies by a constant, and the constant.
static std::optional<std::pair<Value, double>> matchScaled(Value x) {
  auto product = x.getDefiningOp<arith::MulFOp>();
  if (!product)
    return std::nullopt;
  for (auto [variable, constant] :
       {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())})
    if (std::optional<double> factor = normalConstant(constant))
      return std::pair(variable, *factor);
  return std::nullopt;
}

Value device::permitFusion(Value x) {
  Operation *op = x.getDefiningOp();
  if (isa_and_present<arith::AddFOp, arith::SubFOp, arith::MulFOp>(op))
    op->setAttr("fastmath", arith::FastMathFlagsAttr::get(op->getContext(), arith::FastMathFlags::contract));
  return x;
}

Value device::scaleBy(Emitter &e, Value x, double factor) {
  if (auto inner = matchScaled(x); inner && isNormal(inner->second * factor))
    return scaleBy(e, inner->first, inner->second * factor);
  return factor == 1.0 ? x : permitFusion(e.mulf(x, e.scalar(factor)));
}

double device::takeCommonFactor(MutableArrayRef<Value> values) {
  SmallVector<Value> variables;
  std::optional<double> common;
  for (Value value : values) {
    auto scaled = matchScaled(value);
    if (!scaled || scaled->second < 0 || (common && *common != scaled->second))
      return 1.0;
    common = scaled->second;
    variables.push_back(scaled->first);
  }
  llvm::copy(variables, values.begin());
  return common.value_or(1.0);
}

namespace {

/// An integer as a sum; the value is null if the constant is all of it.
struct Sum {
  Value value;
  int64_t constant;
};

} // namespace

/// Whether an addition cannot overflow: positions have 64 bits, and offsets in a tile, which the kernel adds to opaque
/// values, are small.
static bool isExact(Operation *addition) {
  Type type = addition->getResult(0).getType();
  return type.isIndex() || type.isInteger(64) ||
         (type.isInteger(32) && isa_and_present<LLVM::InlineAsmOp>(addition->getOperand(0).getDefiningOp()));
}

/// Whether an integer type has all positions of a tensor.
static bool isWide(Type type) { return type.isIndex() || type.isInteger(32) || type.isInteger(64); }

/// Separates the constants that an integer adds.
static Sum splitSum(Emitter &e, Value x) {
  APInt constant;
  if (matchPattern(x, m_ConstantInt(&constant)))
    return {Value(), constant.getSExtValue()};
  Operation *op = x.getDefiningOp();
  if (isa_and_present<arith::AddIOp, arith::SubIOp>(op) && isExact(op)) {
    bool subtracts = isa<arith::SubIOp>(op);
    Sum lhs = splitSum(e, op->getOperand(0)), rhs = splitSum(e, op->getOperand(1));
    int64_t sum = subtracts ? lhs.constant - rhs.constant : lhs.constant + rhs.constant;
    if (sum == 0 && lhs.constant == 0)
      return {x, 0};
    if (!rhs.value)
      return {lhs.value, sum};
    if (!lhs.value && !subtracts)
      return {rhs.value, sum};
    Value first = lhs.value ? lhs.value : e.constantLike(x, 0);
    return {subtracts ? e.sub(first, rhs.value) : e.add(first, rhs.value), sum};
  }
  if (isa_and_present<arith::IndexCastOp, arith::TruncIOp, arith::ExtSIOp>(op) && isWide(x.getType())) {
    Sum inner = splitSum(e, op->getOperand(0));
    if (inner.value && inner.value != op->getOperand(0)) {
      IRMapping operand;
      operand.map(op->getOperand(0), inner.value);
      return {e.b.clone(*op, operand)->getResult(0), inner.constant};
    }
  }
  return {x, 0};
}

static Value emitTanh(Emitter &e, Value x, TanhMethod method) {
  if (method == TanhMethod::Instruction)
    return LLVM::InlineAsmOp::create(e.b, e.loc, x.getType(), ValueRange{x}, "tanh.approx.f32 $0, $1;", "=f,f",
                                     /*has_side_effects=*/false, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                                     LLVM::AsmDialectAttr(), ArrayAttr())
        .getResult(0);
  Value power = e.exp2(scaleBy(e, x, 2 * std::numbers::log2e));
  Value inverse = e.approxIntrinsic("rcp", e.addf(power, e.scalar(1.0)));
  return e.fma(inverse, e.scalar(-2.0), e.scalar(1.0));
}

bool device::isUsedContinuously(Value x) {
  return llvm::all_of(x.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (user->hasTrait<OpTrait::IsTerminator>())
      return true;
    bool isContinuous =
        isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::NegFOp, arith::MaximumFOp, arith::MinimumFOp,
            arith::MaxNumFOp, arith::MinNumFOp, math::TanhOp, math::ExpOp, math::Exp2Op, math::AbsFOp>(user) ||
        (isa<arith::DivFOp>(user) && use.getOperandNumber() == 0) ||
        (isa<arith::SelectOp>(user) && use.getOperandNumber() != 0) ||
        (isa<arith::TruncFOp>(user) &&
         llvm::all_of(user->getUsers(), [](Operation *end) { return end->hasTrait<OpTrait::IsTerminator>(); }));
    return isContinuous && isUsedContinuously(user->getResult(0));
  });
}

/// How many times the error of x, of at most 1, may be that of the result, by the constants that multiply it on the way
/// and by squares; infinity if it is multiplied by a variable in a score region. In the elementwise op of a gradient
/// (`isGradient`) such a variable is a weight or its gradient, to which errors are relative.
static double errorFactor(Value x, bool isGradient) {
  double largest = 1;
  for (Operation *user : x.getUsers()) {
    double factor = 1;
    if (auto product = dyn_cast<arith::MulFOp>(user)) {
      std::optional<double> constant = normalConstant(product.getLhs() == x ? product.getRhs() : product.getLhs());
      factor = product.getLhs() == product.getRhs() ? 2
               : constant                           ? std::abs(*constant)
               : isGradient                         ? 1
                                                    : std::numeric_limits<double>::infinity();
      factor *= errorFactor(product.getResult(), isGradient);
    } else if (isa<arith::AddFOp, arith::SubFOp, arith::NegFOp, arith::SelectOp, arith::MaximumFOp, arith::MinimumFOp,
                   arith::MaxNumFOp, arith::MinNumFOp, math::AbsFOp>(user)) {
      factor = errorFactor(user->getResult(0), isGradient);
    }
    largest = std::max(largest, factor);
  }
  return largest;
}

Value device::emitScoreOp(Emitter &e, Operation &op, ValueRange operands, TanhMethod tanh) {
  if (op.getNumResults() != 1 || !op.getResult(0).getType().isF32() || !isUsedContinuously(op.getResult(0)))
    return {};
  if (isa<math::TanhOp>(op)) {
    // The errors are multiplied by the factor; that of the instruction is relative.
    constexpr double maxCap = 256, maxCapOfInstruction = 64;
    double cap = errorFactor(op.getResult(0), /*isGradient=*/isa<linalg::GenericOp>(op.getParentOp()));
    if (tanh == TanhMethod::Exact || cap > maxCap)
      return {};
    return emitTanh(e, operands[0], cap > maxCapOfInstruction ? TanhMethod::Quotient : tanh);
  }
  if (isa<arith::DivFOp>(op)) {
    std::optional<double> divisor = normalConstant(operands[1]);
    return divisor && isNormal(1 / *divisor) ? scaleBy(e, operands[0], 1 / *divisor) : Value();
  }
  if (isa<arith::MulFOp>(op)) {
    for (unsigned i : {0, 1})
      if (std::optional<double> factor = normalConstant(operands[1 - i]))
        return scaleBy(e, operands[i], *factor);
    return {};
  }
  if (isa<arith::SIToFPOp>(op)) {
    Sum sum = splitSum(e, operands[0]);
    // Larger constants could cancel a number of more than 24 bits.
    constexpr int64_t maxConstant = 1 << 16;
    if (!sum.value || sum.value == operands[0] || std::abs(sum.constant) > maxConstant)
      return {};
    Value number = arith::SIToFPOp::create(e.b, e.loc, op.getResult(0).getType(), sum.value);
    return sum.constant == 0 ? number : e.addf(number, e.scalar(static_cast<double>(sum.constant)));
  }
  return {};
}
