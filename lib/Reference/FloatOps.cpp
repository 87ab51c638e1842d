//===- FloatOps.cpp - Scalar ops with float results -----------------------------===//
#include "ScalarOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace saccade::reference;

namespace {

template <typename Fn> ScalarFunction unary(Fn fn) {
  return [fn](const Scalar *operands, Scalar &result) -> Problem {
    result.real = fn(operands[0].real);
    return nullptr;
  };
}

template <typename Fn> ScalarFunction binary(Fn fn) {
  return [fn](const Scalar *operands, Scalar &result) -> Problem {
    result.real = fn(operands[0].real, operands[1].real);
    return nullptr;
  };
}

template <typename Fn> ScalarFunction ternary(Fn fn) {
  return [fn](const Scalar *operands, Scalar &result) -> Problem {
    result.real = fn(operands[0].real, operands[1].real, operands[2].real);
    return nullptr;
  };
}

/// IEEE 754-2019 maximum and minimum: they propagate NaN, and −0 is less than +0.
double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return NAN;
  return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
}
double minimum(double a, double b) { return -maximum(-a, -b); }

/// The bits of `value`, which is representable in `type`.
APInt bitsOf(FloatType type, double value) {
  APFloat number(value);
  bool losesInfo;
  number.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &losesInfo);
  return number.bitcastToAPInt();
}

double ofBits(FloatType type, const APInt &bits) {
  APFloat number(type.getFloatSemantics(), bits);
  bool losesInfo;
  number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
  return number.convertToDouble();
}

ScalarFunction bitcast(Type from, Type to) {
  auto fromFloat = dyn_cast<FloatType>(from), toFloat = dyn_cast<FloatType>(to);
  unsigned width = to.isIndex() ? 64 : to.getIntOrFloatBitWidth();
  return [=](const Scalar *operands, Scalar &result) -> Problem {
    APInt bits = fromFloat ? bitsOf(fromFloat, operands[0].real)
                           : APInt(width, operands[0].integer, /*isSigned=*/true, /*implicitTrunc=*/true);
    if (toFloat)
      result.real = ofBits(toFloat, bits);
    else
      result.integer = wrapTo(to, bits.getSExtValue());
    return nullptr;
  };
}

ScalarFunction fromInteger(Type from, bool isSigned) {
  unsigned width = from.getIntOrFloatBitWidth();
  return [=](const Scalar *operands, Scalar &result) -> Problem {
    APInt bits(width, operands[0].integer, /*isSigned=*/true, /*implicitTrunc=*/true);
    result.real = bits.roundToDouble(isSigned);
    return nullptr;
  };
}

ScalarFunction integerPower() {
  return [](const Scalar *operands, Scalar &result) -> Problem {
    result.real = std::pow(operands[0].real, double(operands[1].integer));
    return nullptr;
  };
}

} // namespace

ScalarFunction saccade::reference::floatFunction(Operation *op, unsigned result) {
  return llvm::TypeSwitch<Operation *, ScalarFunction>(op)
      .Case([](arith::AddFOp) { return binary([](double a, double b) { return a + b; }); })
      .Case([](arith::SubFOp) { return binary([](double a, double b) { return a - b; }); })
      .Case([](arith::MulFOp) { return binary([](double a, double b) { return a * b; }); })
      .Case([](arith::DivFOp) { return binary([](double a, double b) { return a / b; }); })
      .Case([](arith::RemFOp) { return binary([](double a, double b) { return std::fmod(a, b); }); })
      .Case([](arith::NegFOp) { return unary([](double a) { return -a; }); })
      .Case([](arith::MaximumFOp) { return binary(maximum); })
      .Case([](arith::MinimumFOp) { return binary(minimum); })
      .Case([](arith::MaxNumFOp) { return binary([](double a, double b) { return std::fmax(a, b); }); })
      .Case([](arith::MinNumFOp) { return binary([](double a, double b) { return std::fmin(a, b); }); })
      // The caller rounds to the result type.
      .Case<arith::ExtFOp, arith::TruncFOp>([](auto) { return unary([](double a) { return a; }); })
      .Case([](arith::SIToFPOp op) { return fromInteger(getElementTypeOrSelf(op.getIn()), true); })
      .Case([](arith::UIToFPOp op) { return fromInteger(getElementTypeOrSelf(op.getIn()), false); })
      .Case([](arith::BitcastOp op) { return bitcast(getElementTypeOrSelf(op.getIn()), getElementTypeOrSelf(op)); })
      .Case([](math::AbsFOp) { return unary([](double a) { return std::fabs(a); }); })
      .Case([](math::AcosOp) { return unary([](double a) { return std::acos(a); }); })
      .Case([](math::AcoshOp) { return unary([](double a) { return std::acosh(a); }); })
      .Case([](math::AsinOp) { return unary([](double a) { return std::asin(a); }); })
      .Case([](math::AsinhOp) { return unary([](double a) { return std::asinh(a); }); })
      .Case([](math::AtanOp) { return unary([](double a) { return std::atan(a); }); })
      .Case([](math::AtanhOp) { return unary([](double a) { return std::atanh(a); }); })
      .Case([](math::Atan2Op) { return binary([](double a, double b) { return std::atan2(a, b); }); })
      .Case([](math::CbrtOp) { return unary([](double a) { return std::cbrt(a); }); })
      .Case([](math::CeilOp) { return unary([](double a) { return std::ceil(a); }); })
      .Case([](math::ClampFOp) {
        return ternary([](double a, double low, double high) { return minimum(maximum(a, low), high); });
      })
      .Case([](math::CopySignOp) { return binary([](double a, double b) { return std::copysign(a, b); }); })
      .Case([](math::CosOp) { return unary([](double a) { return std::cos(a); }); })
      .Case([](math::CoshOp) { return unary([](double a) { return std::cosh(a); }); })
      .Case([](math::ErfOp) { return unary([](double a) { return std::erf(a); }); })
      .Case([](math::ErfcOp) { return unary([](double a) { return std::erfc(a); }); })
      .Case([](math::ExpOp) { return unary([](double a) { return std::exp(a); }); })
      .Case([](math::Exp2Op) { return unary([](double a) { return std::exp2(a); }); })
      .Case([](math::ExpM1Op) { return unary([](double a) { return std::expm1(a); }); })
      .Case([](math::FloorOp) { return unary([](double a) { return std::floor(a); }); })
      .Case([](math::FmaOp) { return ternary([](double a, double b, double c) { return std::fma(a, b, c); }); })
      .Case([](math::FPowIOp) { return integerPower(); })
      .Case([](math::LogOp) { return unary([](double a) { return std::log(a); }); })
      .Case([](math::Log10Op) { return unary([](double a) { return std::log10(a); }); })
      .Case([](math::Log1pOp) { return unary([](double a) { return std::log1p(a); }); })
      .Case([](math::Log2Op) { return unary([](double a) { return std::log2(a); }); })
      .Case([](math::PowFOp) { return binary([](double a, double b) { return std::pow(a, b); }); })
      .Case([](math::RoundOp) { return unary([](double a) { return std::round(a); }); })
      .Case([](math::RoundEvenOp) { return unary([](double a) { return std::nearbyint(a); }); })
      .Case([](math::RsqrtOp) { return unary([](double a) { return 1.0 / std::sqrt(a); }); })
      .Case([](math::SinOp) { return unary([](double a) { return std::sin(a); }); })
      .Case([=](math::SincosOp) {
        return result == 0 ? unary([](double a) { return std::sin(a); }) : unary([](double a) { return std::cos(a); });
      })
      .Case([](math::SinhOp) { return unary([](double a) { return std::sinh(a); }); })
      .Case([](math::SqrtOp) { return unary([](double a) { return std::sqrt(a); }); })
      .Case([](math::TanOp) { return unary([](double a) { return std::tan(a); }); })
      .Case([](math::TanhOp) { return unary([](double a) { return std::tanh(a); }); })
      .Case([](math::TruncOp) { return unary([](double a) { return std::trunc(a); }); })
      .Default([](Operation *) { return ScalarFunction(); });
}
