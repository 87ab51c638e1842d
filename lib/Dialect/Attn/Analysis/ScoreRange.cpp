//===- ScoreRange.cpp - Bounds of the scores ----------------------------------===//
//
// A rule for each kind of op. Bounds are computed in f64 and widened by more than the rounding errors of f32 or f64;
// bounds that may overflow the type are infinite.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/ScoreRange.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include <algorithm>
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace saccade::attn;

static constexpr double infinity = std::numeric_limits<double>::infinity();

bool FloatRange::isFinite() const { return std::isfinite(low) && std::isfinite(high); }

bool FloatRange::contains(double number) const {
  return std::isnan(number) ? mayBeNaN : low <= number && number <= high;
}

namespace {

/// Evaluates the values of a region. Results are cached.
class RangeEvaluator {
public:
  FloatRange range(Value value) {
    auto known = ranges.find(value);
    if (known != ranges.end())
      return known->second;
    FloatRange computed = compute(value);
    return ranges[value] = computed;
  }

private:
  FloatRange compute(Value value);
  FloatRange computeOp(Operation *op, FloatType type);
  /// Of the functions of the math dialect that are not arithmetic or rounding.
  FloatRange computeFunction(Operation *op, FloatType type);
  FloatRange ofInteger(Value value, FloatType type, bool isUnsigned);

  /// The range widened by rounding to `type`: a few units relative to the bounds, and the smallest normal number at 0.
  static FloatRange rounded(FloatRange exact, FloatType type) {
    double unit = std::ldexp(1.0, 4 - int(type.getFPMantissaWidth()));
    auto toDouble = [](APFloat number) {
      bool lost;
      number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
      return number.convertToDouble();
    };
    double largest = toDouble(APFloat::getLargest(type.getFloatSemantics()));
    double tiny = toDouble(APFloat::getSmallestNormalized(type.getFloatSemantics()));
    auto widen = [&](double bound, double sign) {
      if (std::isinf(bound))
        return bound;
      double wide = bound + sign * (std::abs(bound) * unit + tiny);
      return std::abs(wide) > largest ? std::copysign(infinity, wide) : wide;
    };
    FloatRange range{widen(exact.low, -1), widen(exact.high, 1), exact.mayBeNaN};
    // A result that overflows may also be rounded to the largest finite number.
    if (range.low == infinity)
      range.low = largest;
    if (range.high == -infinity)
      range.high = -largest;
    return range;
  }

  static FloatRange hull(FloatRange x, FloatRange y) {
    return {std::min(x.low, y.low), std::max(x.high, y.high), x.mayBeNaN || y.mayBeNaN};
  }
  static FloatRange negated(FloatRange x) { return {-x.high, -x.low, x.mayBeNaN}; }
  static FloatRange absolute(FloatRange x) {
    return {std::max({0.0, x.low, -x.high}), std::max(std::abs(x.low), std::abs(x.high)), x.mayBeNaN};
  }
  static FloatRange sum(FloatRange x, FloatRange y) {
    bool meets = (x.low == -infinity && y.high == infinity) || (x.high == infinity && y.low == -infinity);
    return {x.low == -infinity || y.low == -infinity ? -infinity : x.low + y.low,
            x.high == infinity || y.high == infinity ? infinity : x.high + y.high, x.mayBeNaN || y.mayBeNaN || meets};
  }
  static FloatRange product(FloatRange x, FloatRange y) {
    // 0 · ∞ is NaN; as a bound of finite products it is 0.
    auto touches = [](FloatRange of) { return of.low <= 0 && of.high >= 0; };
    bool mayBeNaN = x.mayBeNaN || y.mayBeNaN || (touches(x) && !y.isFinite()) || (touches(y) && !x.isFinite());
    FloatRange result{infinity, -infinity, mayBeNaN};
    for (double lhs : {x.low, x.high})
      for (double rhs : {y.low, y.high}) {
        double corner = lhs == 0 || rhs == 0 ? 0 : lhs * rhs;
        result.low = std::min(result.low, corner), result.high = std::max(result.high, corner);
      }
    return result;
  }
  static FloatRange quotient(FloatRange x, FloatRange y) {
    if (y.low <= 0 && y.high >= 0)
      return {};
    FloatRange result{infinity, -infinity, x.mayBeNaN || y.mayBeNaN || (!x.isFinite() && !y.isFinite())};
    for (double lhs : {x.low, x.high})
      for (double rhs : {y.low, y.high})
        // ∞ / ∞ is NaN; quotients of large numbers are between those of the other corners.
        if (!std::isinf(lhs) || !std::isinf(rhs))
          result.low = std::min(result.low, lhs / rhs), result.high = std::max(result.high, lhs / rhs);
    return result.low <= result.high ? result : FloatRange();
  }
  /// x^y of positive x, which is monotone in x and in y, so that its bounds are at corners. The power of −0 may be −∞.
  static FloatRange power(FloatRange x, FloatRange y) {
    if (x.low < 0 || (x.low == 0 && y.low < 0))
      return {};
    auto [low, high] = std::minmax(
        {std::pow(x.low, y.low), std::pow(x.low, y.high), std::pow(x.high, y.low), std::pow(x.high, y.high)});
    return {low, high, x.mayBeNaN || y.mayBeNaN};
  }
  /// For a non-decreasing function.
  static FloatRange monotone(FloatRange x, double (*function)(double)) {
    return {function(x.low), function(x.high), x.mayBeNaN};
  }

  llvm::DenseMap<Value, FloatRange> ranges;
};

FloatRange RangeEvaluator::ofInteger(Value value, FloatType type, bool isUnsigned) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant))) {
    double number = constant.roundToDouble(!isUnsigned);
    return rounded({number, number, false}, type);
  }
  unsigned width = value.getType().isIndex() ? 64 : value.getType().getIntOrFloatBitWidth();
  double limit = std::ldexp(1.0, isUnsigned ? width : width - 1);
  return rounded({isUnsigned ? 0 : -limit, limit, false}, type);
}

FloatRange RangeEvaluator::compute(Value value) {
  auto type = dyn_cast<FloatType>(value.getType());
  APFloat constant(0.0);
  if (type && matchPattern(value, m_ConstantFloat(&constant))) {
    bool lost;
    constant.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
    double number = constant.convertToDouble();
    return std::isnan(number) ? FloatRange() : FloatRange{number, number, false};
  }
  Operation *op = value.getDefiningOp();
  return op && type && type.getWidth() <= 64 ? computeOp(op, type) : FloatRange();
}

FloatRange RangeEvaluator::computeFunction(Operation *op, FloatType type) {
  auto at = [&](unsigned operand) { return range(op->getOperand(operand)); };
  // For functions with results in [low, high], except for rounding.
  auto within = [&](double low, double high, bool mayMakeNaN = false) {
    return rounded({low, high, at(0).mayBeNaN || mayMakeNaN}, type);
  };
  auto bounded = [&](FloatRange x, double low, double high) {
    return FloatRange{std::clamp(x.low, low, high), std::clamp(x.high, low, high), x.mayBeNaN};
  };
  // For a non-decreasing or non-increasing function on [low, high] that is NaN elsewhere.
  auto increasing = [&](double (*function)(double), double low = -infinity, double high = infinity) {
    FloatRange x = at(0), y = monotone(bounded(x, low, high), function);
    return rounded({y.low, y.high, x.mayBeNaN || x.low < low || x.high > high}, type);
  };
  auto decreasing = [&](double (*function)(double), double low = -infinity, double high = infinity) {
    FloatRange x = at(0), inside = bounded(x, low, high);
    return rounded({function(inside.high), function(inside.low), x.mayBeNaN || x.low < low || x.high > high}, type);
  };
  return llvm::TypeSwitch<Operation *, FloatRange>(op)
      .Case<math::TanhOp>([&](auto) { return increasing(std::tanh); })
      .Case<math::ErfOp>([&](auto) { return increasing(std::erf); })
      .Case<math::ErfcOp>([&](auto) { return decreasing(std::erfc); })
      .Case<math::ExpOp>([&](auto) { return bounded(increasing(std::exp), 0, infinity); })
      .Case<math::Exp2Op>([&](auto) { return bounded(increasing(std::exp2), 0, infinity); })
      .Case<math::ExpM1Op>([&](auto) { return increasing(std::expm1); })
      .Case<math::LogOp>([&](auto) { return increasing(std::log, 0); })
      .Case<math::Log2Op>([&](auto) { return increasing(std::log2, 0); })
      .Case<math::Log10Op>([&](auto) { return increasing(std::log10, 0); })
      .Case<math::Log1pOp>([&](auto) { return increasing(std::log1p, -1); })
      .Case<math::SqrtOp>([&](auto) { return increasing(std::sqrt, 0); })
      .Case<math::RsqrtOp>([&](auto) {
        // The inverse of −0 is −∞.
        FloatRange x = at(0);
        return x.low > 0 ? decreasing([](double x) { return 1 / std::sqrt(x); })
                         : FloatRange{-infinity, infinity, x.mayBeNaN || x.low < 0};
      })
      .Case<math::CbrtOp>([&](auto) { return increasing(std::cbrt); })
      .Case<math::PowFOp>([&](auto) { return rounded(power(at(0), at(1)), type); })
      .Case<math::SinOp, math::CosOp, math::SincosOp>([&](auto) { return within(-1, 1, !at(0).isFinite()); })
      .Case<math::TanOp>([&](auto) {
        // Before the first pole, which is near ±1.57.
        FloatRange x = at(0);
        return x.low >= -1.5 && x.high <= 1.5 ? increasing(std::tan) : FloatRange();
      })
      .Case<math::AsinOp>([&](auto) { return increasing(std::asin, -1, 1); })
      .Case<math::AcosOp>([&](auto) { return decreasing(std::acos, -1, 1); })
      .Case<math::AtanOp>([&](auto) { return increasing(std::atan); })
      .Case<math::Atan2Op>([&](auto) { return within(-std::numbers::pi, std::numbers::pi, at(1).mayBeNaN); })
      .Case<math::SinhOp>([&](auto) { return increasing(std::sinh); })
      .Case<math::CoshOp>([&](auto) { return rounded(monotone(absolute(at(0)), std::cosh), type); })
      .Case<math::AsinhOp>([&](auto) { return increasing(std::asinh); })
      .Case<math::AcoshOp>([&](auto) { return increasing(std::acosh, 1); })
      .Case<math::AtanhOp>([&](auto) { return increasing(std::atanh, -1, 1); })
      .Default([](Operation *) { return FloatRange(); });
}

FloatRange RangeEvaluator::computeOp(Operation *op, FloatType type) {
  auto at = [&](unsigned operand) { return range(op->getOperand(operand)); };
  return llvm::TypeSwitch<Operation *, FloatRange>(op)
      .Case<arith::AddFOp>([&](auto) { return rounded(sum(at(0), at(1)), type); })
      .Case<arith::SubFOp>([&](auto) { return rounded(sum(at(0), negated(at(1))), type); })
      .Case<arith::MulFOp>([&](auto) {
        // x · x is not negative.
        FloatRange result = product(at(0), at(1));
        if (op->getOperand(0) == op->getOperand(1))
          result.low = std::max(result.low, 0.0);
        return rounded(result, type);
      })
      // The addend may cancel the product, so that the error of the product is large relative to the sum.
      .Case<math::FmaOp>([&](auto) { return rounded(sum(rounded(product(at(0), at(1)), type), at(2)), type); })
      .Case<arith::DivFOp>([&](auto) { return rounded(quotient(at(0), at(1)), type); })
      .Case<arith::NegFOp>([&](auto) { return negated(at(0)); })
      .Case<arith::RemFOp>([&](auto) {
        // Exact; smaller than the divisor, and not larger than the dividend, whose sign it has.
        FloatRange x = at(0), y = at(1);
        double limit = std::min(absolute(x).high, absolute(y).high);
        bool mayBeNaN = x.mayBeNaN || y.mayBeNaN || !x.isFinite() || (y.low <= 0 && y.high >= 0);
        return FloatRange{x.low < 0 ? -limit : 0, x.high > 0 ? limit : 0, mayBeNaN};
      })
      .Case<math::AbsFOp>([&](auto) { return absolute(at(0)); })
      .Case<math::CopySignOp>([&](auto) {
        // Zeros and NaN may have either sign.
        FloatRange size = absolute(at(0)), sign = at(1);
        if (sign.low > 0 && !sign.mayBeNaN)
          return size;
        return sign.high < 0 && !sign.mayBeNaN ? negated(size) : hull(size, negated(size));
      })
      .Case<math::CeilOp>([&](auto) { return monotone(at(0), std::ceil); })
      .Case<math::FloorOp>([&](auto) { return monotone(at(0), std::floor); })
      .Case<math::RoundOp>([&](auto) { return monotone(at(0), std::round); })
      .Case<math::RoundEvenOp>([&](auto) { return monotone(at(0), std::nearbyint); })
      .Case<math::TruncOp>([&](auto) { return monotone(at(0), std::trunc); })
      // maximumf and minimumf propagate NaN, ...
      .Case<arith::MaximumFOp>([&](auto) {
        FloatRange x = at(0), y = at(1);
        return FloatRange{std::max(x.low, y.low), std::max(x.high, y.high), x.mayBeNaN || y.mayBeNaN};
      })
      .Case<arith::MinimumFOp>([&](auto) {
        FloatRange x = at(0), y = at(1);
        return FloatRange{std::min(x.low, y.low), std::min(x.high, y.high), x.mayBeNaN || y.mayBeNaN};
      })
      // ... maxnumf and minnumf return the other operand.
      .Case<arith::MaxNumFOp, arith::MinNumFOp>([&](auto) {
        FloatRange x = at(0), y = at(1);
        bool isMax = isa<arith::MaxNumFOp>(op);
        FloatRange both = isMax ? FloatRange{std::max(x.low, y.low), std::max(x.high, y.high), false}
                                : FloatRange{std::min(x.low, y.low), std::min(x.high, y.high), false};
        if (x.mayBeNaN)
          both = hull(both, {y.low, y.high, y.mayBeNaN});
        if (y.mayBeNaN)
          both = hull(both, {x.low, x.high, x.mayBeNaN});
        return both;
      })
      .Case<arith::SelectOp>(
          [&](arith::SelectOp select) { return hull(range(select.getTrueValue()), range(select.getFalseValue())); })
      .Case<arith::ExtFOp, arith::TruncFOp>([&](auto) { return rounded(at(0), type); })
      .Case<arith::SIToFPOp>([&](auto) { return ofInteger(op->getOperand(0), type, false); })
      .Case<arith::UIToFPOp>([&](auto) { return ofInteger(op->getOperand(0), type, true); })
      // The bits of a number have no order that a range could use.
      .Case<arith::BitcastOp>([](auto) { return FloatRange(); })
      .Default([&](Operation *) { return computeFunction(op, type); });
}

} // namespace

FloatRange saccade::attn::analyzeScore(Region &score) {
  if (score.empty())
    return {};
  return analyzeRange(cast<YieldOp>(score.front().getTerminator()).getOperand());
}

FloatRange saccade::attn::analyzeRange(Value value) { return RangeEvaluator().range(value); }
