//===- Convert.cpp - Conversions between types ----------------------------===//

#include "Numbers.h"
#include "TypeDispatch.h"

using namespace saccade::ptxsim;

namespace {

enum : uint32_t { flushing = 1, saturating = 2, relu = 4, finite = 8 };

bool isFloat(Type type) {
  return type == Type::F16 || type == Type::BF16 || type == Type::F32 || type == Type::F64 || type == Type::TF32;
}

double readFloat(uint64_t bits, Type type) {
  switch (type) {
  case Type::F64:
    return doubleOf(bits);
  case Type::F32:
    return floatOf(uint32_t(bits));
  case Type::F16:
    return fromHalf(uint16_t(bits));
  default:
    return fromBF16(uint16_t(bits));
  }
}

double flushSingle(double value) { return flush(float(value)); }

/// Clamps according to `flags` and rounds.
uint64_t writeFloat(double value, Type type, Rounding rounding, uint32_t flags) {
  if (flags & saturating)
    value = value > 1 ? 1 : value > 0 ? value : 0;
  if ((flags & relu) && std::signbit(value) && value == value)
    value = 0;
  if (type == Type::F64)
    return bitsOf(value);
  if (type == Type::TF32) {
    // 10 fraction bits, stored in an f32.
    if (value != value)
      return 0x7fffffff;
    constexpr Format tf32{8, 10};
    return uint64_t(roundTo(value, tf32, rounding)) << 13;
  }
  uint32_t bits = roundTo(value, formatOf(type), rounding, flags & finite);
  if ((flags & flushing) && type == Type::F32 && !(bits & 0x7f800000))
    bits &= 0x80000000;
  return bits;
}

int64_t signExtend(uint64_t bits, unsigned bytes) {
  unsigned shift = 64 - 8 * bytes;
  return int64_t(bits << shift) >> shift;
}

/// Converts between integer types; clamps if `saturates`.
uint64_t convertInteger(uint64_t bits, Type from, Type to, bool saturates) {
  bool negative = isSigned(from) && signExtend(bits, bytesOf(from)) < 0;
  if (isSigned(from))
    bits = uint64_t(signExtend(bits, bytesOf(from)));
  else if (bytesOf(from) < 8)
    bits &= (uint64_t(1) << (8 * bytesOf(from))) - 1;
  if (!saturates)
    return bits;
  unsigned width = 8 * bytesOf(to);
  if (isSigned(to)) {
    uint64_t largest = (uint64_t(1) << (width - 1)) - 1;
    if (negative)
      return int64_t(bits) < -int64_t(largest) - 1 ? uint64_t(-int64_t(largest) - 1) : bits;
    return bits > largest ? largest : bits;
  }
  uint64_t largest = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
  return negative ? 0 : bits > largest ? largest : bits;
}

uint64_t convertOne(uint64_t bits, Type from, Type to, Rounding rounding, uint32_t flags, bool integral) {
  if (!isFloat(from) && !isFloat(to))
    return convertInteger(bits, from, to, flags & saturating);
  if (!isFloat(from)) {
    bits = convertInteger(bits, from, from, false);
    if (bytesOf(from) == 8 && to == Type::F64)
      return bitsOf(isSigned(from) ? double(int64_t(bits)) : double(bits));
    if (bytesOf(from) == 8 && to == Type::F32)
      return bitsOf(isSigned(from) ? float(int64_t(bits)) : float(bits));
    return writeFloat(isSigned(from) ? double(int64_t(bits)) : double(bits), to, rounding, flags);
  }
  double value = readFloat(bits, from);
  if ((flags & flushing) && from == Type::F32)
    value = flushSingle(value);
  if (!isFloat(to)) {
    unsigned width = 8 * bytesOf(to);
    uint64_t nan = from == Type::F64 || width == 64 ? uint64_t(1) << (width - 1) : 0;
    return toInteger(value, width, isSigned(to), rounding, nan);
  }
  if (integral)
    value = roundIntegral(value, rounding);
  return writeFloat(value, to, integral ? Rounding::NearestEven : rounding, flags);
}

void writeRow(Warp &warp, Slot slot, unsigned bytes, uint32_t mask, const uint64_t values[32]) {
  auto write = [&]<typename T>() {
    T *row = warp.row<T>(slot);
    forLanes(mask, [&](unsigned lane) { row[lane] = T(values[lane]); });
  };
  bytes == 8   ? write.template operator()<uint64_t>()
  : bytes == 4 ? write.template operator()<uint32_t>()
               : write.template operator()<uint16_t>();
}

/// Numbers: from, to, rounding, flags, bytes per lane of the input | of the result << 8 | integral << 16.
void convertRow(Warp &warp, const Op &op, uint32_t mask) {
  Type from = Type(op.numbers[0]), to = Type(op.numbers[1]);
  uint64_t values[32];
  warp.widen(op.input(0), op.numbers[4] & 0xff, mask, values);
  forLanes(mask, [&](unsigned lane) {
    uint64_t bits = convertOne(values[lane], from, to, Rounding(op.numbers[2]), op.numbers[3], op.numbers[4] >> 16 & 1);
    // Extends into a wider register, by the sign of the type.
    unsigned bytes = bytesOf(to);
    values[lane] = isSigned(to) ? uint64_t(signExtend(bits, bytes))
                   : bytes < 8  ? bits & ((uint64_t(1) << (8 * bytes)) - 1)
                                : bits;
  });
  writeRow(warp, op.result(0), op.numbers[4] >> 8 & 0xff, mask, values);
}

// Fast paths of frequent conversions.
struct SingleToHalf {
  uint16_t operator()(float a) const { return toHalf(a); }
};
struct SingleToBF16 {
  uint16_t operator()(float a) const { return toBF16(a); }
};
struct HalfToSingle {
  uint32_t operator()(uint16_t a) const { return bitsOf(canonical(fromHalf(a))); }
};
struct BF16ToSingle {
  uint32_t operator()(uint16_t a) const { return bitsOf(canonical(fromBF16(a))); }
};
struct IntegerToSingle {
  template <typename T> float operator()(T a) const { return float(a); }
};
struct Extend {
  template <typename T> uint64_t operator()(T a) const { return uint64_t(a); }
};
struct Truncate {
  uint32_t operator()(uint64_t a) const { return uint32_t(a); }
};
// cvt.rn.bf16x2.f32 d, a, b: a becomes the upper half.
struct PackF16x2 {
  uint32_t operator()(float a, float b) const { return uint32_t(toHalf(a)) << 16 | toHalf(b); }
};
struct PackBF16x2 {
  uint32_t operator()(float a, float b) const { return uint32_t(toBF16(a)) << 16 | toBF16(b); }
};

Handler quickConversion(Type from, Type to, Rounding rounding, uint32_t flags) {
  if (flags || rounding != Rounding::NearestEven)
    return nullptr;
  if (from == Type::F32 && to == Type::F16)
    return mapUnary<uint16_t, float, SingleToHalf>;
  if (from == Type::F32 && to == Type::BF16)
    return mapUnary<uint16_t, float, SingleToBF16>;
  if (from == Type::F16 && to == Type::F32)
    return mapUnary<uint32_t, uint16_t, HalfToSingle>;
  if (from == Type::BF16 && to == Type::F32)
    return mapUnary<uint32_t, uint16_t, BF16ToSingle>;
  if (from == Type::S32 && to == Type::F32)
    return mapUnary<float, int32_t, IntegerToSingle>;
  if (from == Type::U32 && to == Type::F32)
    return mapUnary<float, uint32_t, IntegerToSingle>;
  if (from == Type::U32 && (to == Type::U64 || to == Type::S64))
    return mapUnary<uint64_t, uint32_t, Extend>;
  if (from == Type::S32 && (to == Type::U64 || to == Type::S64))
    return mapUnary<uint64_t, int32_t, Extend>;
  if (bytesOf(from) == 8 && isInteger(from) && (to == Type::U32 || to == Type::S32))
    return mapUnary<uint32_t, uint64_t, Truncate>;
  return nullptr;
}

/// Packs two f32 into a pair of 16- or 8-bit floats. Numbers: element type, rounding, flags.
template <typename T> void packRows(Warp &warp, const Op &op, uint32_t mask) {
  const float *a = warp.row<float>(op.input(0)), *b = warp.row<float>(op.input(1));
  T *result = warp.row<T>(op.result(0));
  Type type = Type(op.numbers[0]);
  forLanes(mask, [&](unsigned lane) {
    auto narrow = [&](float value) { return T(writeFloat(value, type, Rounding(op.numbers[1]), op.numbers[2])); };
    result[lane] = T(narrow(a[lane]) << (4 * sizeof(T))) | narrow(b[lane]);
  });
}

/// Converts a pair of 8-bit floats to f16x2.
void unpackEights(Warp &warp, const Op &op, uint32_t mask) {
  const uint16_t *a = warp.row<uint16_t>(op.input(0));
  uint32_t *result = warp.row<uint32_t>(op.result(0));
  Format format = formatOf(Type(op.numbers[0]));
  forLanes(mask, [&](unsigned lane) {
    auto wide = [&](uint8_t bits) { return roundTo(widen(bits, format), f16Format); };
    result[lane] = wide(a[lane] >> 8) << 16 | wide(a[lane] & 0xff);
  });
}

bool decodePair(Decoder &d, Type to, Rounding rounding, uint32_t flags) {
  Type from = d.type();
  bool eights = to == Type::E4M3x2 || to == Type::E5M2x2;
  if (to == Type::F16x2 && (from == Type::E4M3x2 || from == Type::E5M2x2)) {
    if (!d.expectOperands(2) || rounding != Rounding::NearestEven || flags & ~relu)
      return d.fail("expected .rn");
    if (flags & relu)
      return d.fail(".relu is not simulated for this instruction");
    d.result(d.at(0), Type::B32);
    d.input(d.at(1), Type::B16);
    d.op.numbers[0] = uint32_t(from);
    return d.emit(unpackEights);
  }
  if (from != Type::F32 || !d.expectOperands(3))
    return d.fail("this conversion is not simulated");
  if (eights && !(flags & finite))
    return d.fail("expected .satfinite");
  d.result(d.at(0), eights ? Type::B16 : Type::B32);
  d.input(d.at(1), Type::F32);
  d.input(d.at(2), Type::F32);
  d.op.numbers[0] = uint32_t(to), d.op.numbers[1] = uint32_t(rounding), d.op.numbers[2] = flags;
  if (!flags && rounding == Rounding::NearestEven)
    return d.emit(to == Type::F16x2 ? mapBinary<uint32_t, float, PackF16x2> : mapBinary<uint32_t, float, PackBF16x2>);
  return d.emit(eights ? packRows<uint16_t> : packRows<uint32_t>);
}

bool decodeConvert(Decoder &d) {
  int integral = d.takeOneOf({"rni", "rzi", "rmi", "rpi"});
  auto rounding = integral < 0 ? d.takeRounding() : std::optional(Rounding(integral));
  uint32_t flags = d.take("ftz") ? flushing : 0;
  // ptxas accepts these in either order.
  for (int turn = 0; turn < 2; ++turn)
    flags |= d.take("relu") ? relu : d.take("satfinite") ? finite : d.take("sat") ? saturating : 0;
  Type to = d.type();
  Rounding how = rounding.value_or(Rounding::NearestEven);
  if (isPair(to) || to == Type::E4M3x2 || to == Type::E5M2x2)
    return decodePair(d, to, how, flags);
  Type from = d.type();
  if (!d.expectOperands(2))
    return false;
  bool known = (isFloat(from) || isInteger(from)) && (isFloat(to) || isInteger(to)) && from != Type::TF32 &&
               (to != Type::TF32 || from == Type::F32);
  bool bothFloat = isFloat(from) && isFloat(to);
  if (!known || (isFloat(from) && isInteger(to) && integral < 0) || (!bothFloat && !isFloat(from) && integral >= 0))
    return d.fail("this conversion is not simulated");
  if (isInteger(from) && isFloat(to) && bytesOf(from) == 8 &&
      (how != Rounding::NearestEven || flags || bytesOf(to) == 2))
    return d.fail("only .rn is simulated from 64-bit integers, to f32 or f64");
  if (to == Type::F64 && how != Rounding::NearestEven && integral < 0 && rounding)
    return d.fail("only .rn is simulated to f64");
  bool narrows = bytesOf(to) < bytesOf(from) || to == Type::TF32 || (isInteger(from) && isFloat(to)) ||
                 (bothFloat && bytesOf(to) == 2 && to != from);
  if (isFloat(to) && narrows && !rounding)
    return d.fail("expected a rounding modifier");
  d.result(d.at(0), to, /*wider=*/isInteger(to));
  d.input(d.at(1), from, /*wider=*/isInteger(from));
  unsigned inputBytes = d.widthOf(d.at(1)), resultBytes = d.widthOf(d.at(0));
  inputBytes = inputBytes ? inputBytes : rowBytes(from);
  resultBytes = resultBytes ? resultBytes : rowBytes(to);
  if (inputBytes == bytesOf(from) && resultBytes == bytesOf(to) && integral < 0)
    if (Handler quick = quickConversion(from, to, how, flags))
      return d.emit(quick);
  d.op.numbers[0] = uint32_t(from), d.op.numbers[1] = uint32_t(to), d.op.numbers[2] = uint32_t(how);
  d.op.numbers[3] = flags;
  d.op.numbers[4] = inputBytes | resultBytes << 8 | uint32_t(integral >= 0) << 16;
  return d.emit(convertRow);
}

} // namespace

void saccade::ptxsim::addConvertInstructions(InstructionTable &table) {
  table.add("cvt", TypeClass::Any, decodeConvert);
}
