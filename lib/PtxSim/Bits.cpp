//===- Bits.cpp - Logic, shifts and bit fields ----------------------------===//

#include "TypeDispatch.h"
#include <algorithm>
#include <bit>

using namespace saccade::ptxsim;

namespace {

struct And {
  template <typename T> T operator()(T a, T b) const { return a & b; }
};
struct Or {
  template <typename T> T operator()(T a, T b) const { return a | b; }
};
struct ExclusiveOr {
  template <typename T> T operator()(T a, T b) const { return a ^ b; }
};
struct Not {
  template <typename T> T operator()(T a) const { return ~a; }
};
struct CNot {
  template <typename T> T operator()(T a) const { return a == 0; }
};
// Shift amounts are clamped to the width.
struct ShiftLeft {
  template <typename T> T operator()(T a, uint32_t b) const { return b >= 8 * sizeof(T) ? 0 : T(uint64_t(a) << b); }
};
struct ShiftRight {
  template <typename T> T operator()(T a, uint32_t b) const {
    uint32_t width = 8 * sizeof(T);
    if (b >= width)
      return std::is_signed_v<T> && a < 0 ? T(-1) : T(0);
    return T(a >> b);
  }
};
struct PopulationCount {
  template <typename T> uint32_t operator()(T a) const { return std::popcount(a); }
};
struct LeadingZeros {
  template <typename T> uint32_t operator()(T a) const { return std::countl_zero(a); }
};
struct BitReverse {
  template <typename T> T operator()(T a) const {
    T result = 0;
    for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit)
      result |= T(a >> bit & 1) << (8 * sizeof(T) - 1 - bit);
    return result;
  }
};
/// Index of the most significant bit that differs from the sign; all ones if there is none.
struct FindBit {
  template <typename T> uint32_t operator()(T a) const {
    auto bits = Unsigned<T>(std::is_signed_v<T> && a < 0 ? ~a : a);
    return bits ? 8 * sizeof(T) - 1 - std::countl_zero(bits) : ~uint32_t(0);
  }
};
/// The left shift that moves that bit to the top (.shiftamt).
struct FindShift {
  template <typename T> uint32_t operator()(T a) const {
    uint32_t found = FindBit()(a);
    return found == ~uint32_t(0) ? found : 8 * sizeof(T) - 1 - found;
  }
};
/// bfe: position and length are taken modulo 256; bits beyond the top are copies of the sign, or 0.
struct ExtractField {
  template <typename T> T operator()(T a, uint32_t b, uint32_t c) const {
    unsigned top = 8 * sizeof(T) - 1, position = b & 0xff, length = c & 0xff;
    bool sign = std::is_signed_v<T> && length != 0 && (a >> std::min(position + length - 1, top) & 1);
    Unsigned<T> result = 0;
    for (unsigned bit = 0; bit <= top; ++bit) {
      bool set = bit < length && position + bit <= top ? a >> (position + bit) & 1 : sign;
      result |= Unsigned<T>(set) << bit;
    }
    return T(result);
  }
};
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    uint64_t bytes = uint64_t(b) << 32 | a;
    uint32_t result = 0;
    for (unsigned index = 0; index < 4; ++index) {
      uint32_t select = c >> (4 * index) & 0xf, byte = bytes >> (8 * (select & 7)) & 0xff;
      if (select & 8)
        byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * index);
    }
    return result;
  }
};
/// The modes of `prmt` select by the two lowest bits of c.
template <unsigned mode> struct PermuteMode {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    constexpr uint32_t selectors[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
                                          {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
                                          {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
    return Permute()(a, b, selectors[mode][c & 3]);
  }
};
template <bool left, bool wrap> struct FunnelShift {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    uint32_t amount = wrap ? c & 31 : std::min(c, uint32_t(32));
    uint64_t both = uint64_t(b) << 32 | a;
    return left ? uint32_t(both << amount >> 32) : uint32_t(both >> amount);
  }
};

template <typename F> void logicPredicate(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t a = warp.predicate(op.input(0)), b = op.inputs > 1 ? warp.predicate(op.input(1)) : 0;
  if constexpr (std::is_same_v<F, Not>)
    warp.setPredicate(op.result(0), ~a, mask);
  else
    warp.setPredicate(op.result(0), F()(a, b), mask);
}

template <typename F> bool decodeLogic(Decoder &d) {
  Type type = d.type();
  if (type == Type::Pred)
    return emitSame(d, type, 2, logicPredicate<F>);
  return emitSame(d, type, 2,
                  isBits(type) ? dispatchInteger(type, []<typename T>() -> Handler { return mapBinary<T, T, F>; })
                               : nullptr);
}

bool decodeNot(Decoder &d) {
  Type type = d.type();
  if (type == Type::Pred)
    return emitSame(d, type, 1, logicPredicate<Not>);
  return emitSame(d, type, 1, dispatchInteger(type, []<typename T>() -> Handler { return mapUnary<T, T, Not>; }));
}

bool decodeCNot(Decoder &d) {
  Type type = d.type();
  return emitSame(d, type, 1, dispatchInteger(type, []<typename T>() -> Handler { return mapUnary<T, T, CNot>; }));
}

template <typename F> bool decodeShift(Decoder &d) {
  Type type = d.type();
  Handler handler = dispatchInteger(type, []<typename T>() -> Handler { return mapBinary<T, T, F, uint32_t>; });
  if (!handler || !d.expectOperands(3))
    return d.fail("the type is not simulated for this instruction");
  d.result(d.at(0), type);
  d.input(d.at(1), type);
  d.input(d.at(2), Type::U32);
  return d.emit(handler);
}

/// d.u32 = f(a.T) for 32 or 64 bits.
template <typename F> bool decodeCount(Decoder &d) {
  bool shiftAmount = std::is_same_v<F, FindBit> && d.take("shiftamt");
  Type type = d.type();
  if (bytesOf(type) < 4 || !d.expectOperands(2))
    return d.fail("expected 32 or 64 bits");
  d.result(d.at(0), Type::U32);
  d.input(d.at(1), type);
  if constexpr (std::is_same_v<F, FindBit>)
    return d.emit(dispatchInteger(type, [&]<typename T>() -> Handler {
      return shiftAmount ? mapUnary<uint32_t, T, FindShift> : mapUnary<uint32_t, T, F>;
    }));
  else
    return d.emit(bytesOf(type) == 8 ? mapUnary<uint32_t, uint64_t, F> : mapUnary<uint32_t, uint32_t, F>);
}

bool decodeReverse(Decoder &d) {
  Type type = d.type();
  return emitSame(d, type, 1,
                  type == Type::B32   ? mapUnary<uint32_t, uint32_t, BitReverse>
                  : type == Type::B64 ? mapUnary<uint64_t, uint64_t, BitReverse>
                                      : nullptr);
}

template <typename T> void extractField(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0));
  const uint32_t *b = warp.row<uint32_t>(op.input(1)), *c = warp.row<uint32_t>(op.input(2));
  T *result = warp.row<T>(op.result(0));
  forLanes(mask, [&](unsigned lane) { result[lane] = ExtractField()(a[lane], b[lane], c[lane]); });
}

bool decodeExtract(Decoder &d) {
  Type type = d.type();
  if (!isInteger(type) || bytesOf(type) < 4 || !d.expectOperands(4))
    return d.fail("expected 32 or 64 bits");
  d.result(d.at(0), type);
  d.input(d.at(1), type);
  d.input(d.at(2), Type::U32);
  d.input(d.at(3), Type::U32);
  return d.emit(dispatchInteger(type, []<typename T>() -> Handler { return extractField<T>; }));
}

/// bfi f, a, b, c, d: replaces `length` bits of b, from `position` on, by the lowest bits of a.
template <typename T> void insertField(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0)), *b = warp.row<T>(op.input(1));
  const uint32_t *c = warp.row<uint32_t>(op.input(2)), *e = warp.row<uint32_t>(op.input(3));
  T *result = warp.row<T>(op.result(0));
  forLanes(mask, [&](unsigned lane) {
    unsigned width = 8 * sizeof(T), position = c[lane] & 0xff, length = e[lane] & 0xff;
    T value = b[lane];
    for (unsigned bit = 0; bit < length && position + bit < width; ++bit) {
      T one = T(1) << (position + bit);
      value = (value & ~one) | (a[lane] >> bit & 1 ? one : 0);
    }
    result[lane] = value;
  });
}

bool decodeInsert(Decoder &d) {
  Type type = d.type();
  if ((type != Type::B32 && type != Type::B64) || !d.expectOperands(5))
    return d.fail("expected b32 or b64");
  d.result(d.at(0), type);
  d.input(d.at(1), type);
  d.input(d.at(2), type);
  d.input(d.at(3), Type::U32);
  d.input(d.at(4), Type::U32);
  return d.emit(type == Type::B64 ? insertField<uint64_t> : insertField<uint32_t>);
}

bool decodePermute(Decoder &d) {
  Type type = d.type();
  if (type != Type::B32)
    return d.fail("expected b32");
  constexpr Handler modes[] = {
      mapTernary<uint32_t, uint32_t, PermuteMode<0>>, mapTernary<uint32_t, uint32_t, PermuteMode<1>>,
      mapTernary<uint32_t, uint32_t, PermuteMode<2>>, mapTernary<uint32_t, uint32_t, PermuteMode<3>>,
      mapTernary<uint32_t, uint32_t, PermuteMode<4>>, mapTernary<uint32_t, uint32_t, PermuteMode<5>>};
  int mode = d.takeOneOf({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  return emitSame(d, type, 3, mode < 0 ? mapTernary<uint32_t, uint32_t, Permute> : modes[mode]);
}

bool decodeFunnel(Decoder &d) {
  int direction = d.takeOneOf({"l", "r"}), mode = d.takeOneOf({"wrap", "clamp"});
  if (direction < 0 || mode < 0 || d.type() != Type::B32)
    return d.fail("expected .l or .r, then .wrap or .clamp, then .b32");
  Handler handler = direction == 0 ? mode == 0 ? mapTernary<uint32_t, uint32_t, FunnelShift<true, true>>
                                               : mapTernary<uint32_t, uint32_t, FunnelShift<true, false>>
                    : mode == 0    ? mapTernary<uint32_t, uint32_t, FunnelShift<false, true>>
                                   : mapTernary<uint32_t, uint32_t, FunnelShift<false, false>>;
  return emitSame(d, Type::B32, 3, handler);
}

/// lop3: the result for the bits a, b, c is bit 4a + 2b + c of the table.
void lookUp(Warp &warp, const Op &op, uint32_t mask) {
  const uint32_t *a = warp.row<uint32_t>(op.input(0)), *b = warp.row<uint32_t>(op.input(1)),
                 *c = warp.row<uint32_t>(op.input(2));
  uint32_t values[32] = {};
  for (unsigned entry = 0; entry < 8; ++entry)
    if (op.numbers[0] >> entry & 1)
      for (unsigned lane = 0; lane < 32; ++lane)
        values[lane] |=
            (entry & 4 ? a[lane] : ~a[lane]) & (entry & 2 ? b[lane] : ~b[lane]) & (entry & 1 ? c[lane] : ~c[lane]);
  assign(warp.row<uint32_t>(op.result(0)), values, mask);
}

bool decodeLookUp(Decoder &d) {
  if (d.type() != Type::B32 || !d.expectOperands(5))
    return d.fail("expected b32");
  d.result(d.at(0), Type::B32);
  for (unsigned index = 1; index < 4; ++index)
    d.input(d.at(index), Type::B32);
  d.op.numbers[0] = d.immediate(d.at(4));
  return d.emit(lookUp);
}

} // namespace

void saccade::ptxsim::notPredicate(Warp &warp, const Op &op, uint32_t mask) {
  warp.setPredicate(op.result(0), ~warp.predicate(op.input(0)), mask);
}

void saccade::ptxsim::addBitInstructions(InstructionTable &table) {
  constexpr TypeClass integer = TypeClass::Integer;
  table.add("and", integer, decodeLogic<And>);
  table.add("or", integer, decodeLogic<Or>);
  table.add("xor", integer, decodeLogic<ExclusiveOr>);
  table.add("not", integer, decodeNot);
  table.add("cnot", integer, decodeCNot);
  table.add("shl", integer, decodeShift<ShiftLeft>);
  table.add("shr", integer, decodeShift<ShiftRight>);
  table.add("popc", integer, decodeCount<PopulationCount>);
  table.add("clz", integer, decodeCount<LeadingZeros>);
  table.add("bfind", integer, decodeCount<FindBit>);
  table.add("brev", integer, decodeReverse);
  table.add("bfe", integer, decodeExtract);
  table.add("bfi", integer, decodeInsert);
  table.add("prmt", integer, decodePermute);
  table.add("shf", integer, decodeFunnel);
  table.add("lop3", integer, decodeLookUp);
}
