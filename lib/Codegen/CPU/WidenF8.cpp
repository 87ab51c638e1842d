//===- WidenF8.cpp - Conversion of floats of 8 bits ---------------------------===//
#include "WidenF8.h"
#include "FloatBits.h"

using namespace mlir;
using namespace saccade;
using saccade::cpu::FloatBits;

float cpu::widenedF8Factor(Type element) { return isa<Float8E4M3FNType>(element) ? 256 : 1; }

/// Converts through f16, which has all values. Those of f8E5M2 have the bits of f16 without its low byte. Those of
/// f8E4M3FN become f16 with the mantissa and an exponent that is too small by 8; that of NaN, 15, is doubled by a
/// shift, which is one instruction with a mask.
Value cpu::emitWidenF8(OpBuilder &b, Location loc, Value narrow) {
  FloatBits e{b, loc, narrow.getType(), /*width=*/16};
  Value bits = arith::ExtSIOp::create(b, loc, e.integer(), e.cast(narrow, b.getI8Type()));
  if (isa<Float8E5M2Type>(getElementTypeOrSelf(narrow))) {
    bits = e.shl(bits, 8);
  } else {
    Value isNaN = e.isEqual(e.mask(bits, 0x7f), 0x7f), finite = e.mask(e.shl(bits, 7), 0xbf80);
    bits = e.select(isNaN, e.shl(finite, 1), finite);
  }
  return arith::ExtFOp::create(b, loc, e.of(b.getF32Type()), e.cast(bits, b.getF16Type()));
}
