//===- HalfConversions.cpp - Software f16 and bf16 conversions ----------------===//
//
// LLVM calls these functions on processors without conversion instructions. Not every compiler run-time library has
// them, so the runtime defines them as weak symbols.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Conversions.h"
#include <bit>
#include <cstdint>

namespace {

/// Rounds a double to a float with round-to-odd: an inexact result has an odd last bit, so that a second rounding to a
/// narrower type equals direct rounding (Boldo and Melquiond 2008).
float roundToOdd(double value) {
  auto nearest = static_cast<float>(value);
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (value != value || static_cast<double>(nearest) == value || (bits & 1))
    return nearest;
  // `nearest` is even; the odd neighbour is on the other side of the value.
  bool away = (static_cast<double>(nearest) > value) == (value > 0);
  return std::bit_cast<float>(away ? bits - 1 : bits + 1);
}

uint16_t bfloatBits(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40); // a quiet NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t halfBits(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000)
    return sign | 0x7e00 | (bits >> 13 & 0x1ff);
  if (bits >= 0x477ff000) // 65520 and more
    return sign | 0x7c00;
  if (bits < 0x38800000) { // below 2^-14: the FPU rounds to the subnormal grid of 2^-24
    float scaled = std::bit_cast<float>(bits) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(scaled) - 0x3f000000);
  }
  bits += 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
}

float fromHalfBits(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000 | rest << 13 | (rest > 0x7c00 ? 0x400000 : 0));
  if (rest >= 0x400)
    return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000));
  float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

} // namespace

#define SACCADE_CONVERSION extern "C" __attribute__((weak))
SACCADE_CONVERSION __bf16 __truncsfbf2(float value) { return std::bit_cast<__bf16>(bfloatBits(value)); }
SACCADE_CONVERSION __bf16 __truncdfbf2(double value) { return std::bit_cast<__bf16>(bfloatBits(roundToOdd(value))); }
SACCADE_CONVERSION _Float16 __truncsfhf2(float value) { return std::bit_cast<_Float16>(halfBits(value)); }
SACCADE_CONVERSION _Float16 __truncdfhf2(double value) { return std::bit_cast<_Float16>(halfBits(roundToOdd(value))); }
SACCADE_CONVERSION float __extendhfsf2(_Float16 value) { return fromHalfBits(std::bit_cast<uint16_t>(value)); }
