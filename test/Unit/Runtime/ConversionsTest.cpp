//===- ConversionsTest.cpp - Software f16 and bf16 conversions ----------------===//
#include "saccade/Runtime/Conversions.h"
#include "gtest/gtest.h"
#include <bit>
#include <cmath>
#include <cstdint>

namespace {

// Conversions are checked against the definition of rounding to nearest even, with the neighbours of a 16-bit value.
template <typename Half, double (*widen)(uint16_t)> void checkRounding(Half (*convert)(double)) {
  for (uint32_t bits = 0; bits < 0x7fff; ++bits) {
    double low = widen(bits), high = widen(bits + 1);
    if (!std::isfinite(low) || !std::isfinite(high))
      continue;
    double middle = (low + high) / 2, above = std::nextafter(middle, high), below = std::nextafter(middle, low);
    uint16_t even = bits & 1 ? bits + 1 : bits;
    ASSERT_EQ(bits, std::bit_cast<uint16_t>(convert(low)));
    ASSERT_EQ(even, std::bit_cast<uint16_t>(convert(middle))) << bits;
    ASSERT_EQ(bits, std::bit_cast<uint16_t>(convert(below))) << bits;
    ASSERT_EQ(bits + 1, std::bit_cast<uint16_t>(convert(above))) << bits;
    ASSERT_EQ(even | 0x8000, std::bit_cast<uint16_t>(convert(-middle))) << bits;
  }
}

double widenBfloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

double widenHalf(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31)
    return fraction ? NAN : INFINITY;
  return exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
}

TEST(Conversions, DoubleToBf16RoundsOnce) { checkRounding<__bf16, widenBfloat>(__truncdfbf2); }
TEST(Conversions, DoubleToF16RoundsOnce) { checkRounding<_Float16, widenHalf>(__truncdfhf2); }

TEST(Conversions, FloatAgreesWithDoubleEverywhere) {
  for (uint64_t bits = 0; bits <= 0xffffffff; bits += 4093) {
    auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(__truncsfhf2(value))));
      ASSERT_EQ(0x7f80, std::bit_cast<uint16_t>(__truncsfbf2(value)) & 0x7f80);
      ASSERT_NE(0, std::bit_cast<uint16_t>(__truncsfbf2(value)) & 0x7f);
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint16_t>(__truncdfhf2(value)), std::bit_cast<uint16_t>(__truncsfhf2(value))) << value;
    ASSERT_EQ(std::bit_cast<uint16_t>(__truncdfbf2(value)), std::bit_cast<uint16_t>(__truncsfbf2(value))) << value;
  }
}

TEST(Conversions, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float wide = __extendhfsf2(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
    if (std::isnan(wide)) {
      ASSERT_GT(bits & 0x7fff, 0x7c00u);
      continue;
    }
    ASSERT_EQ(bits & 0x8000 ? -widenHalf(bits & 0x7fff) : widenHalf(bits), wide);
    ASSERT_EQ(bits, std::bit_cast<uint16_t>(__truncsfhf2(wide)));
  }
}

} // namespace
