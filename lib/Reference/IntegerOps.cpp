//===- IntegerOps.cpp - Integer and affine ops, constants ------------------------===//
#include "ScalarOps.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace saccade::reference;

namespace {

constexpr Problem divisionByZero = "division by zero";

unsigned widthOf(Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

/// Signed and unsigned interpretation of `Scalar::integer` for a type.
struct Integers {
  Type type;
  unsigned width = widthOf(type);
  // A true i1 is stored as 1; as a signed value it is −1.
  int64_t signedOf(int64_t value) const { return width == 1 ? -value : value; }
  uint64_t unsignedOf(int64_t value) const { return value & llvm::maskTrailingOnes<uint64_t>(width); }
  int64_t wrap(uint64_t value) const { return wrapTo(type, value); }
};

template <typename Fn> ScalarFunction onSigned(Type type, Fn fn) {
  return [fn, integers = Integers{type}](const Scalar *operands, Scalar &result) -> Problem {
    result.integer = integers.wrap(fn(integers.signedOf(operands[0].integer), integers.signedOf(operands[1].integer)));
    return nullptr;
  };
}

template <typename Fn> ScalarFunction onUnsigned(Type type, Fn fn) {
  return [fn, integers = Integers{type}](const Scalar *operands, Scalar &result) -> Problem {
    result.integer =
        integers.wrap(fn(integers.unsignedOf(operands[0].integer), integers.unsignedOf(operands[1].integer)));
    return nullptr;
  };
}

/// A division or remainder, with an error for divisor 0. `fn` handles −1 separately, since INT64_MIN / −1 overflows.
template <typename Fn> ScalarFunction dividing(Type type, bool isSigned, Fn fn) {
  ScalarFunction divide = isSigned ? onSigned(type, fn) : onUnsigned(type, fn);
  return [divide](const Scalar *operands, Scalar &result) -> Problem {
    return operands[1].integer == 0 ? divisionByZero : divide(operands, result);
  };
}

uint64_t negate(int64_t a) { return -uint64_t(a); }
uint64_t divideSigned(int64_t a, int64_t b) { return b == -1 ? negate(a) : a / b; }
uint64_t floorDivide(int64_t a, int64_t b) { return b == -1 ? negate(a) : llvm::divideFloorSigned(a, b); }
uint64_t ceilDivide(int64_t a, int64_t b) { return b == -1 ? negate(a) : llvm::divideCeilSigned(a, b); }
uint64_t remainderSigned(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }

ScalarFunction convert(Type from, Type to, bool isSigned) {
  return [=, source = Integers{from}](const Scalar *operands, Scalar &result) -> Problem {
    int64_t value = operands[0].integer;
    result.integer = wrapTo(to, isSigned ? source.signedOf(value) : int64_t(source.unsignedOf(value)));
    return nullptr;
  };
}

ScalarFunction fromFloat(Type to, bool isSigned) {
  return [=](const Scalar *operands, Scalar &result) -> Problem {
    APSInt integer(widthOf(to), !isSigned);
    bool isExact;
    APFloat(operands[0].real).convertToInteger(integer, APFloat::rmTowardZero, &isExact);
    result.integer = wrapTo(to, APInt(integer).getSExtValue());
    return nullptr;
  };
}

bool compare(arith::CmpIPredicate predicate, const Integers &integers, int64_t a, int64_t b) {
  int64_t sa = integers.signedOf(a), sb = integers.signedOf(b);
  uint64_t ua = integers.unsignedOf(a), ub = integers.unsignedOf(b);
  switch (predicate) {
  case arith::CmpIPredicate::eq:
    return a == b;
  case arith::CmpIPredicate::ne:
    return a != b;
  case arith::CmpIPredicate::slt:
    return sa < sb;
  case arith::CmpIPredicate::sle:
    return sa <= sb;
  case arith::CmpIPredicate::sgt:
    return sa > sb;
  case arith::CmpIPredicate::sge:
    return sa >= sb;
  case arith::CmpIPredicate::ult:
    return ua < ub;
  case arith::CmpIPredicate::ule:
    return ua <= ub;
  case arith::CmpIPredicate::ugt:
    return ua > ub;
  case arith::CmpIPredicate::uge:
    return ua >= ub;
  }
  llvm_unreachable("unknown predicate");
}

bool compare(arith::CmpFPredicate predicate, double a, double b) {
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (predicate) {
  case arith::CmpFPredicate::AlwaysFalse:
    return false;
  case arith::CmpFPredicate::OEQ:
    return a == b;
  case arith::CmpFPredicate::OGT:
    return a > b;
  case arith::CmpFPredicate::OGE:
    return a >= b;
  case arith::CmpFPredicate::OLT:
    return a < b;
  case arith::CmpFPredicate::OLE:
    return a <= b;
  case arith::CmpFPredicate::ONE:
    return !unordered && a != b;
  case arith::CmpFPredicate::ORD:
    return !unordered;
  case arith::CmpFPredicate::UEQ:
    return unordered || a == b;
  case arith::CmpFPredicate::UGT:
    return unordered || a > b;
  case arith::CmpFPredicate::UGE:
    return unordered || a >= b;
  case arith::CmpFPredicate::ULT:
    return unordered || a < b;
  case arith::CmpFPredicate::ULE:
    return unordered || a <= b;
  case arith::CmpFPredicate::UNE:
    return a != b;
  case arith::CmpFPredicate::UNO:
    return unordered;
  case arith::CmpFPredicate::AlwaysTrue:
    return true;
  }
  llvm_unreachable("unknown predicate");
}

template <typename Fn> ScalarFunction classify(Fn fn) {
  return [fn](const Scalar *operands, Scalar &result) -> Problem {
    result.integer = fn(operands[0].real);
    return nullptr;
  };
}

template <typename Fn> ScalarFunction onBits(Type type, Fn fn) {
  return [fn, integers = Integers{type}](const Scalar *operands, Scalar &result) -> Problem {
    result.integer = integers.wrap(fn(integers.unsignedOf(operands[0].integer), integers.width));
    return nullptr;
  };
}

/// The results of `map`, reduced by `choose`.
template <typename Choose> ScalarFunction affineFunction(AffineMap map, Choose choose) {
  return [=](const Scalar *operands, Scalar &result) -> Problem {
    SmallVector<int64_t> inputs;
    for (unsigned i = 0; i < map.getNumInputs(); ++i)
      inputs.push_back(operands[i].integer);
    ArrayRef<int64_t> dims = ArrayRef(inputs).take_front(map.getNumDims());
    ArrayRef<int64_t> symbols = ArrayRef(inputs).drop_front(map.getNumDims());
    bool bad = false;
    map.walkExprs([&](AffineExpr expr) {
      auto division = dyn_cast<AffineBinaryOpExpr>(expr);
      bad |= division && division.getKind() != AffineExprKind::Add && division.getKind() != AffineExprKind::Mul &&
             evaluateAffine(division.getRHS(), dims, symbols) <= 0;
    });
    if (bad)
      return "division by a value that is not positive";
    result.integer = evaluateAffine(map.getResult(0), dims, symbols);
    for (AffineExpr expr : map.getResults().drop_front())
      result.integer = choose(result.integer, evaluateAffine(expr, dims, symbols));
    return nullptr;
  };
}

ScalarFunction select() {
  return [](const Scalar *operands, Scalar &result) -> Problem {
    result = operands[0].integer ? operands[1] : operands[2];
    return nullptr;
  };
}

} // namespace

int64_t saccade::reference::wrapTo(Type type, int64_t value) {
  unsigned width = widthOf(type);
  return width == 1 ? value & 1 : width >= 64 ? value : llvm::SignExtend64(value, width);
}

int64_t saccade::reference::evaluateAffine(AffineExpr expr, ArrayRef<int64_t> dims, ArrayRef<int64_t> symbols) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return symbols[symbol.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  auto both = cast<AffineBinaryOpExpr>(expr);
  int64_t left = evaluateAffine(both.getLHS(), dims, symbols), right = evaluateAffine(both.getRHS(), dims, symbols);
  switch (both.getKind()) {
  case AffineExprKind::Add:
    return left + right;
  case AffineExprKind::Mul:
    return left * right;
  case AffineExprKind::FloorDiv:
    return right > 0 ? llvm::divideFloorSigned(left, right) : 0;
  case AffineExprKind::CeilDiv:
    return right > 0 ? llvm::divideCeilSigned(left, right) : 0;
  case AffineExprKind::Mod:
    return right > 0 ? llvm::mod(left, right) : 0;
  default:
    llvm_unreachable("unknown affine expression");
  }
}

FailureOr<Scalar> saccade::reference::scalarOf(Attribute attribute) {
  if (auto real = dyn_cast<FloatAttr>(attribute))
    return Scalar{.real = real.getValueAsDouble()};
  if (auto integer = dyn_cast<IntegerAttr>(attribute); integer && integer.getValue().getBitWidth() <= 64)
    return Scalar{.integer = wrapTo(integer.getType(), integer.getValue().getSExtValue())};
  return failure();
}

ScalarFunction saccade::reference::integerFunction(Operation *op) {
  Type type = getElementTypeOrSelf(op->getResult(0));
  Type from = op->getNumOperands() ? getElementTypeOrSelf(op->getOperand(0)) : type;
  return llvm::TypeSwitch<Operation *, ScalarFunction>(op)
      .Case([&](arith::AddIOp) { return onSigned(type, [](uint64_t a, uint64_t b) { return a + b; }); })
      .Case([&](arith::SubIOp) { return onSigned(type, [](uint64_t a, uint64_t b) { return a - b; }); })
      .Case([&](arith::MulIOp) { return onSigned(type, [](uint64_t a, uint64_t b) { return a * b; }); })
      .Case([&](arith::DivSIOp) { return dividing(type, true, divideSigned); })
      .Case([&](arith::FloorDivSIOp) { return dividing(type, true, floorDivide); })
      .Case([&](arith::CeilDivSIOp) { return dividing(type, true, ceilDivide); })
      .Case([&](arith::RemSIOp) { return dividing(type, true, remainderSigned); })
      .Case([&](arith::DivUIOp) { return dividing(type, false, [](uint64_t a, uint64_t b) { return a / b; }); })
      .Case([&](arith::CeilDivUIOp) {
        return dividing(type, false, [](uint64_t a, uint64_t b) { return a / b + (a % b != 0); });
      })
      .Case([&](arith::RemUIOp) { return dividing(type, false, [](uint64_t a, uint64_t b) { return a % b; }); })
      .Case([&](arith::AndIOp) { return onUnsigned(type, [](uint64_t a, uint64_t b) { return a & b; }); })
      .Case([&](arith::OrIOp) { return onUnsigned(type, [](uint64_t a, uint64_t b) { return a | b; }); })
      .Case([&](arith::XOrIOp) { return onUnsigned(type, [](uint64_t a, uint64_t b) { return a ^ b; }); })
      .Case([&](arith::ShLIOp) { return onUnsigned(type, [](uint64_t a, uint64_t b) { return b < 64 ? a << b : 0; }); })
      .Case(
          [&](arith::ShRUIOp) { return onUnsigned(type, [](uint64_t a, uint64_t b) { return b < 64 ? a >> b : 0; }); })
      .Case([&](arith::ShRSIOp) {
        return onSigned(type, [](int64_t a, int64_t b) { return a >> (uint64_t(b) < 64 ? b : 63); });
      })
      .Case([&](arith::MaxSIOp) { return onSigned(type, [](int64_t a, int64_t b) { return std::max(a, b); }); })
      .Case([&](arith::MinSIOp) { return onSigned(type, [](int64_t a, int64_t b) { return std::min(a, b); }); })
      .Case([&](arith::MaxUIOp) { return onUnsigned(type, [](uint64_t a, uint64_t b) { return std::max(a, b); }); })
      .Case([&](arith::MinUIOp) { return onUnsigned(type, [](uint64_t a, uint64_t b) { return std::min(a, b); }); })
      .Case<arith::ExtSIOp, arith::IndexCastOp>([&](auto) { return convert(from, type, true); })
      .Case<arith::ExtUIOp, arith::IndexCastUIOp, arith::TruncIOp>([&](auto) { return convert(from, type, false); })
      .Case([&](arith::FPToSIOp) { return fromFloat(type, true); })
      .Case([&](arith::FPToUIOp) { return fromFloat(type, false); })
      .Case([&](arith::CmpIOp op) -> ScalarFunction {
        return [predicate = op.getPredicate(), integers = Integers{from}](const Scalar *operands, Scalar &result) {
          result.integer = compare(predicate, integers, operands[0].integer, operands[1].integer);
          return Problem(nullptr);
        };
      })
      .Case([&](arith::CmpFOp op) -> ScalarFunction {
        return [predicate = op.getPredicate()](const Scalar *operands, Scalar &result) {
          result.integer = compare(predicate, operands[0].real, operands[1].real);
          return Problem(nullptr);
        };
      })
      .Case([&](arith::SelectOp) { return select(); })
      .Case([&](math::IsFiniteOp) { return classify([](double a) { return std::isfinite(a); }); })
      .Case([&](math::IsInfOp) { return classify([](double a) { return std::isinf(a); }); })
      .Case([&](math::IsNormalOp) {
        APFloat smallest = APFloat::getSmallestNormalized(cast<FloatType>(from).getFloatSemantics());
        bool losesInfo;
        smallest.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
        return classify(
            [bound = smallest.convertToDouble()](double a) { return std::isfinite(a) && std::fabs(a) >= bound; });
      })
      .Case([&](math::IsNaNOp) { return classify([](double a) { return std::isnan(a); }); })
      .Case([&](math::AbsIOp) {
        return onBits(type, [=](uint64_t a, unsigned) { return wrapTo(type, a) < 0 ? negate(a) : a; });
      })
      .Case([&](math::CtPopOp) { return onBits(type, [](uint64_t a, unsigned) { return llvm::popcount(a); }); })
      .Case([&](math::CountLeadingZerosOp) {
        return onBits(type, [](uint64_t a, unsigned width) { return llvm::countl_zero(a) - (64 - int(width)); });
      })
      .Case([&](math::CountTrailingZerosOp) {
        return onBits(type, [](uint64_t a, unsigned width) { return std::min<int>(llvm::countr_zero(a), width); });
      })
      .Case([&](affine::AffineApplyOp op) { return affineFunction(op.getMap(), [](int64_t a, int64_t) { return a; }); })
      .Case([&](affine::AffineMinOp op) {
        return affineFunction(op.getMap(), [](int64_t a, int64_t b) { return std::min(a, b); });
      })
      .Case([&](affine::AffineMaxOp op) {
        return affineFunction(op.getMap(), [](int64_t a, int64_t b) { return std::max(a, b); });
      })
      .Default([](Operation *) { return ScalarFunction(); });
}

ScalarFunction saccade::reference::wideIntegerFunction(Operation *op, unsigned result) {
  Integers integers{getElementTypeOrSelf(op->getOperand(0))};
  unsigned width = integers.width;
  auto halfOf = [=](auto widen) -> ScalarFunction {
    return [=](const Scalar *operands, Scalar &half) -> Problem {
      APInt product = widen(operands[0].integer) * widen(operands[1].integer);
      half.integer = integers.wrap(product.extractBits(width, result * width).getZExtValue());
      return nullptr;
    };
  };
  if (isa<arith::MulUIExtendedOp>(op))
    return halfOf([=](int64_t a) { return APInt(2 * width, integers.unsignedOf(a)); });
  if (isa<arith::MulSIExtendedOp>(op))
    return halfOf([=](int64_t a) { return APInt(2 * width, integers.signedOf(a), /*isSigned=*/true); });
  if (!isa<arith::AddUIExtendedOp>(op))
    return {};
  return [=](const Scalar *operands, Scalar &part) -> Problem {
    uint64_t a = integers.unsignedOf(operands[0].integer), b = integers.unsignedOf(operands[1].integer);
    uint64_t sum = integers.unsignedOf(a + b);
    part.integer = result == 0 ? integers.wrap(sum) : sum < a;
    return nullptr;
  };
}

ScalarFunction saccade::reference::scalarFunction(Operation *op, unsigned result) {
  if (op->getNumResults() == 0 || op->getNumResults() > 2 || op->getNumRegions() != 0)
    return {};
  auto isNumber = [](Value value) {
    if (isa<ShapedType>(value.getType()) && !isa<RankedTensorType>(value.getType()))
      return false;
    Type type = getElementTypeOrSelf(value);
    return isa<FloatType, IndexType>(type) || (isa<IntegerType>(type) && type.getIntOrFloatBitWidth() <= 64);
  };
  if (!llvm::all_of(op->getOperands(), isNumber) || !llvm::all_of(op->getResults(), isNumber))
    return {};
  if (ScalarFunction function = floatFunction(op, result))
    return function;
  return op->getNumResults() == 2 ? wideIntegerFunction(op, result) : integerFunction(op);
}
