//===- Numbers.cpp - Floating-point formats and rounding ------------------===//

#include "Numbers.h"
#include <algorithm>

using namespace saccade::ptxsim;

uint32_t saccade::ptxsim::roundTo(double value, const Format &format, Rounding rounding, bool saturate) {
  if (value != value)
    return format.nan();
  bool negative = std::signbit(value);
  uint32_t sign = negative ? format.sign() : 0;
  double magnitude = std::fabs(value);
  if (magnitude == 0)
    return sign;
  bool towardZero =
      rounding == Rounding::Zero || (rounding == Rounding::Down && !negative) || (rounding == Rounding::Up && negative);
  uint32_t overflow = saturate || !format.hasInfinity ? format.largest() : format.infinity();
  if (std::isinf(magnitude))
    return sign | overflow;

  int exponent = std::max(std::ilogb(magnitude), 1 - format.bias());
  // In ulp; exact, because only the exponent changes.
  double units = std::ldexp(magnitude, format.fraction - exponent);
  double whole = std::floor(units), rest = units - whole;
  bool up = false;
  switch (rounding) {
  case Rounding::NearestEven:
    up = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) == 1);
    break;
  case Rounding::NearestAway:
    up = rest >= 0.5;
    break;
  default:
    up = !towardZero && rest > 0;
  }
  uint64_t fraction = uint64_t(whole) + up;
  if (fraction >> (format.fraction + 1)) {
    fraction >>= 1;
    ++exponent;
  }
  bool tooLarge = exponent > format.maxExponent() || (!format.hasInfinity && exponent == format.maxExponent() &&
                                                      fraction == (uint64_t(2) << format.fraction) - 1);
  if (tooLarge)
    return sign | (towardZero ? format.largest() : overflow);
  // The leading bit increments the exponent field; subnormals do not have it.
  return sign | uint32_t((uint64_t(exponent + format.bias() - 1) << format.fraction) + fraction);
}

double saccade::ptxsim::widen(uint32_t bits, const Format &format) {
  bool negative = bits & format.sign();
  uint32_t magnitude = bits & (format.sign() - 1);
  double value;
  if (format.hasInfinity ? magnitude > format.infinity() : magnitude == format.nan())
    value = doubleOf(uint64_t(0x7ff8) << 48);
  else if (format.hasInfinity && magnitude == format.infinity())
    value = HUGE_VAL;
  else if (int exponent = magnitude >> format.fraction; exponent == 0)
    value = std::ldexp(magnitude, 1 - format.bias() - format.fraction);
  else
    value = std::ldexp((magnitude & ((1u << format.fraction) - 1)) | 1u << format.fraction,
                       exponent - format.bias() - format.fraction);
  return negative ? -value : value;
}

double saccade::ptxsim::addToOdd(double a, double b) {
  double sum = a + b;
  if (!std::isfinite(sum))
    return sum;
  // Knuth's two-sum: the exact error of the addition.
  double partB = sum - a, error = (a - (sum - partB)) + (b - partB);
  if (error != 0 && !(bitsOf(sum) & 1))
    sum = doubleOf(bitsOf(sum) + ((error > 0) == (sum > 0) ? 1 : -1));
  return sum;
}

uint16_t saccade::ptxsim::toHalf(float value) {
  uint32_t bits = bitsOf(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return 0x7fff;
  if (magnitude >= 0x477ff000) // rounds to more than 65504
    return sign | 0x7c00;
  if (magnitude < 0x38800000) // subnormal: the unit is 2^-24, which adding 0.5 makes the last bit
    return sign | (bitsOf(floatOf(magnitude) + 0.5f) - 0x3f000000);
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return sign | (magnitude - 0x38000000) >> 13;
}

double saccade::ptxsim::roundIntegral(double value, Rounding rounding) {
  switch (rounding) {
  case Rounding::NearestEven:
    return std::nearbyint(value);
  case Rounding::Zero:
    return std::trunc(value);
  case Rounding::Down:
    return std::floor(value);
  case Rounding::Up:
    return std::ceil(value);
  case Rounding::NearestAway:
    return std::round(value);
  }
  return value;
}

uint64_t saccade::ptxsim::toInteger(double value, unsigned width, bool isSigned, Rounding rounding, uint64_t nan) {
  if (value != value)
    return nan;
  value = roundIntegral(value, rounding);
  uint64_t top = uint64_t(1) << (width - 1), all = top | (top - 1);
  if (isSigned) {
    if (value >= std::ldexp(1.0, width - 1))
      return top - 1;
    if (value < -std::ldexp(1.0, width - 1))
      return top;
    return uint64_t(int64_t(value)) & all;
  }
  if (value <= 0)
    return 0;
  if (value >= std::ldexp(1.0, width))
    return all;
  return uint64_t(value);
}
