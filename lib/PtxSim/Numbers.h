//===- Numbers.h - Floating-point formats and rounding --------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_NUMBERS_H
#define SACCADE_LIB_PTXSIM_NUMBERS_H

#include "Types.h"
#include <bit>
#include <cmath>
#include <cstdint>

namespace saccade::ptxsim {

inline uint32_t bitsOf(float value) { return std::bit_cast<uint32_t>(value); }
inline uint64_t bitsOf(double value) { return std::bit_cast<uint64_t>(value); }
inline float floatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
inline double doubleOf(uint64_t bits) { return std::bit_cast<double>(bits); }

/// A binary format with `exponent` and `fraction` bits. Formats without infinity (e4m3) use the highest exponent for
/// finite values and have one NaN.
struct Format {
  int exponent, fraction;
  bool hasInfinity = true;

  constexpr int bias() const { return (1 << (exponent - 1)) - 1; }
  constexpr int maxExponent() const { return hasInfinity ? bias() : bias() + 1; }
  constexpr uint32_t sign() const { return uint32_t(1) << (exponent + fraction); }
  constexpr uint32_t infinity() const { return ((uint32_t(1) << exponent) - 1) << fraction; }
  /// Largest finite value.
  constexpr uint32_t largest() const { return hasInfinity ? infinity() - 1 : sign() - 2; }
  /// PTX's canonical NaN: all bits set except the sign.
  constexpr uint32_t nan() const { return sign() - 1; }
};

constexpr Format f32Format{8, 23}, f16Format{5, 10}, bf16Format{8, 7}, e4m3Format{4, 3, false}, e5m2Format{5, 2};

/// The format of a scalar type, or of an element of a pair.
constexpr Format formatOf(Type type) {
  switch (type) {
  case Type::F16:
  case Type::F16x2:
    return f16Format;
  case Type::BF16:
  case Type::BF16x2:
    return bf16Format;
  case Type::E4M3:
  case Type::E4M3x2:
    return e4m3Format;
  case Type::E5M2:
  case Type::E5M2x2:
    return e5m2Format;
  default:
    return f32Format;
  }
}

/// Rounds to `format`; NaN becomes canonical. Overflow gives infinity, or the largest finite value if the rounding
/// direction, `saturate` or the format demands it.
uint32_t roundTo(double value, const Format &format, Rounding rounding = Rounding::NearestEven, bool saturate = false);

/// Converts to f64, exactly.
double widen(uint32_t bits, const Format &format);

/// a + b rounded to odd (Boldo and Melquiond): rounding the result again to a format of at most 51 bits gives the
/// correctly rounded sum.
double addToOdd(double a, double b);

/// a * b + c rounded to odd, for factors of at most 26 bits.
inline double fmaToOdd(double a, double b, double c) { return addToOdd(a * b, c); }

inline float fromHalf(uint16_t bits) {
  uint32_t magnitude = bits & 0x7fff, sign = uint32_t(bits & 0x8000) << 16;
  if (magnitude >= 0x7c00)
    return floatOf(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  // 2^112 changes the exponent bias from 15 to 127 and normalises subnormal values.
  return floatOf(bitsOf(floatOf(magnitude << 13) * 0x1p112f) | sign);
}
inline float fromBF16(uint16_t bits) { return floatOf(uint32_t(bits) << 16); }

/// Round to nearest even; NaN becomes 0x7fff.
inline uint16_t toBF16(float value) {
  uint32_t bits = bitsOf(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return 0x7fff;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
uint16_t toHalf(float value);

/// Flushes subnormal values to zero of the same sign.
inline float flush(float value) {
  uint32_t bits = bitsOf(value);
  return bits & 0x7f800000 ? value : floatOf(bits & 0x80000000);
}

/// Replaces NaN by PTX's canonical f32 NaN.
inline float canonical(float value) { return value != value ? floatOf(0x7fffffff) : value; }

/// Rounds and clamps to an integer of `width` bits. `nan` is the result for NaN.
uint64_t toInteger(double value, unsigned width, bool isSigned, Rounding rounding, uint64_t nan);
/// Rounds to an integral value.
double roundIntegral(double value, Rounding rounding);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_NUMBERS_H
