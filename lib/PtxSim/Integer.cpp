//===- Integer.cpp - Integer arithmetic -----------------------------------===//

#include "TypeDispatch.h"
#include <algorithm>
#include <limits>

using namespace saccade::ptxsim;

namespace {

// Wrapping arithmetic is done on unsigned types of at least 64 bits, which avoids signed overflow and integer
// promotion.
template <typename T> using Wrapping = std::conditional_t<(sizeof(T) > 8), unsigned __int128, uint64_t>;
struct Add {
  template <typename T> T operator()(T a, T b) const { return T(Wrapping<T>(a) + Wrapping<T>(b)); }
};
struct Subtract {
  template <typename T> T operator()(T a, T b) const { return T(Wrapping<T>(a) - Wrapping<T>(b)); }
};
struct AddSaturated {
  int32_t operator()(int32_t a, int32_t b) const {
    return int32_t(std::clamp<int64_t>(int64_t(a) + b, INT32_MIN, INT32_MAX));
  }
};
struct SubtractSaturated {
  int32_t operator()(int32_t a, int32_t b) const {
    return int32_t(std::clamp<int64_t>(int64_t(a) - b, INT32_MIN, INT32_MAX));
  }
};
struct MultiplyLow {
  template <typename T> T operator()(T a, T b) const { return T(uint64_t(a) * uint64_t(b)); }
};
struct MultiplyHigh {
  template <typename T> T operator()(T a, T b) const { return T(Wide<T>(a) * Wide<T>(b) >> (8 * sizeof(T))); }
};
struct MultiplyWide {
  template <typename T> Wide<T> operator()(T a, T b) const { return Wide<T>(a) * Wide<T>(b); }
};
struct MultiplyAddLow {
  template <typename T> T operator()(T a, T b, T c) const { return Add()(MultiplyLow()(a, b), c); }
};
struct MultiplyAddHigh {
  template <typename T> T operator()(T a, T b, T c) const { return Add()(MultiplyHigh()(a, b), c); }
};
struct MultiplyAddWide {
  template <typename T> Wide<T> operator()(T a, T b, Wide<T> c) const { return Add()(MultiplyWide()(a, b), c); }
};
struct MultiplyAddHighSaturated {
  int32_t operator()(int32_t a, int32_t b, int32_t c) const { return AddSaturated()(MultiplyHigh()(a, b), c); }
};
struct Minimum {
  template <typename T> T operator()(T a, T b) const { return b < a ? b : a; }
};
struct Maximum {
  template <typename T> T operator()(T a, T b) const { return a < b ? b : a; }
};
struct Absolute {
  template <typename T> T operator()(T a) const { return a < 0 ? T(0 - uint64_t(a)) : a; }
};
struct Negate {
  template <typename T> T operator()(T a) const { return T(0 - uint64_t(a)); }
};
struct AbsoluteDifference {
  template <typename T> T operator()(T a, T b, T c) const {
    return Add()(c, a < b ? Subtract()(b, a) : Subtract()(a, b));
  }
};
/// mul24.lo: the lower 32 bits of the product of 24-bit operands.
struct Multiply24 {
  template <typename T> T operator()(T a, T b) const {
    return MultiplyLow()(T(Unsigned<T>(a) << 8) >> 8, T(Unsigned<T>(b) << 8) >> 8);
  }
};
struct MultiplyAdd24 {
  template <typename T> T operator()(T a, T b, T c) const { return Add()(Multiply24()(a, b), c); }
};

template <typename F> Handler binary(Type type) {
  return dispatchInteger(type, []<typename T>() -> Handler { return mapBinary<T, T, F>; });
}
template <typename F> Handler ternary(Type type) {
  return dispatchInteger(type, []<typename T>() -> Handler { return mapTernary<T, T, F>; });
}

/// Sum or difference with carry-in (if numbers[0]) and carry-out (if there is a second result).
template <typename T, bool subtract> void sumWithCarry(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0)), *b = warp.row<T>(op.input(1));
  uint32_t carries = op.numbers[0] ? warp.predicate(op.input(2)) : 0, out = 0;
  T values[32];
  for (unsigned lane = 0; lane < 32; ++lane) {
    auto carry = T(carries >> lane & 1);
    auto wide = subtract ? Wide<T>(a[lane]) - b[lane] - carry : Wide<T>(a[lane]) + b[lane] + carry;
    values[lane] = T(wide);
    out |= uint32_t(wide >> (8 * sizeof(T)) & 1) << lane;
  }
  assign(warp.row<T>(op.result(0)), values, mask);
  if (op.results > 1)
    warp.setPredicate(op.result(1), out, mask);
}

/// add.cc, addc and addc.cc.
template <bool subtract, bool takes> bool decodeCarry(Decoder &d) {
  bool gives = d.take("cc");
  Type type = d.type();
  if (!isInteger(type) || bytesOf(type) < 4 || !d.expectOperands(3))
    return d.fail("expected 32 or 64 bits");
  d.result(d.at(0), type);
  d.input(d.at(1), type);
  d.input(d.at(2), type);
  d.op.numbers[0] = takes;
  if (takes)
    d.carryInput();
  if (gives)
    d.carryResult();
  return d.emit(bytesOf(type) == 8 ? sumWithCarry<uint64_t, subtract> : sumWithCarry<uint32_t, subtract>);
}

/// Adds c to the lower or upper (numbers[1]) half of a · b, with carry-in and carry-out as above.
template <typename T> void productWithCarry(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0)), *b = warp.row<T>(op.input(1)), *c = warp.row<T>(op.input(2));
  uint32_t carries = op.numbers[0] ? warp.predicate(op.input(3)) : 0, out = 0;
  T values[32];
  for (unsigned lane = 0; lane < 32; ++lane) {
    T half = op.numbers[1] ? MultiplyHigh()(a[lane], b[lane]) : MultiplyLow()(a[lane], b[lane]);
    using U = Unsigned<T>;
    auto wide = Wide<U>(U(half)) + U(c[lane]) + U(carries >> lane & 1);
    values[lane] = T(wide);
    out |= uint32_t(wide >> (8 * sizeof(T)) & 1) << lane;
  }
  assign(warp.row<T>(op.result(0)), values, mask);
  if (op.results > 1)
    warp.setPredicate(op.result(1), out, mask);
}

/// mad.cc, madc and madc.cc, after .lo or .hi.
bool decodeProductCarry(Decoder &d, bool takes, bool gives, bool isHigh) {
  Type type = d.type();
  if (!isInteger(type) || bytesOf(type) < 4 || !d.expectOperands(4))
    return d.fail("expected 32 or 64 bits");
  d.result(d.at(0), type);
  for (unsigned i : {1, 2, 3})
    d.input(d.at(i), type);
  d.op.numbers[0] = takes, d.op.numbers[1] = isHigh;
  if (takes)
    d.carryInput();
  if (gives)
    d.carryResult();
  return d.emit(dispatchInteger(type, []<typename T>() -> Handler { return productWithCarry<T>; }));
}
bool decodeMultiplyAddCarry(Decoder &d) {
  int part = d.takeOneOf({"lo", "hi"});
  if (part < 0)
    return d.fail("expected .lo or .hi");
  return decodeProductCarry(d, /*takes=*/true, d.take("cc"), part == 1);
}

template <typename F, typename Saturated> bool decodeSum(Decoder &d) {
  if (!d.instruction.modifiers.empty() && d.instruction.modifiers[0] == "cc")
    return decodeCarry<std::is_same_v<F, Subtract>, false>(d);
  bool saturated = d.take("sat");
  Type type = d.type();
  if (saturated && type != Type::S32)
    return d.fail("only .sat.s32 is simulated");
  return emitSame(d, type, 2, saturated ? mapBinary<int32_t, int32_t, Saturated> : binary<F>(type));
}

bool decodeMultiply(Decoder &d) {
  int part = d.takeOneOf({"lo", "hi", "wide"});
  Type type = d.type();
  switch (part) {
  case 0:
    return emitSame(d, type, 2, binary<MultiplyLow>(type));
  case 1:
    return emitSame(d, type, 2, binary<MultiplyHigh>(type));
  case 2: {
    Type wide = bytesOf(type) == 2 ? Type::B32 : Type::B64;
    Handler handler = bytesOf(type) == 8 ? nullptr : dispatchInteger(type, []<typename T>() -> Handler {
      return mapBinary<Wide<T>, T, MultiplyWide>;
    });
    if (!handler || !d.expectOperands(3))
      return d.fail("expected 16 or 32 bits");
    d.result(d.at(0), wide);
    d.input(d.at(1), type);
    d.input(d.at(2), type);
    return d.emit(handler);
  }
  default:
    return d.fail("expected .lo, .hi or .wide");
  }
}

bool decodeMultiplyAdd(Decoder &d) {
  int part = d.takeOneOf({"lo", "hi", "wide"});
  if ((part == 0 || part == 1) && d.take("cc"))
    return decodeProductCarry(d, /*takes=*/false, /*gives=*/true, part == 1);
  bool saturated = part == 1 && d.take("sat");
  Type type = d.type();
  if (saturated && type != Type::S32)
    return d.fail("only .sat.s32 is simulated");
  switch (part) {
  case 0:
    return emitSame(d, type, 3, ternary<MultiplyAddLow>(type));
  case 1:
    return emitSame(d, type, 3,
                    saturated ? mapTernary<int32_t, int32_t, MultiplyAddHighSaturated>
                              : ternary<MultiplyAddHigh>(type));
  case 2: {
    Type wide = bytesOf(type) == 2 ? Type::B32 : Type::B64;
    Handler handler = bytesOf(type) == 8 ? nullptr : dispatchInteger(type, []<typename T>() -> Handler {
      return mapTernary<Wide<T>, T, MultiplyAddWide, Wide<T>>;
    });
    if (!handler || !d.expectOperands(4))
      return d.fail("expected 16 or 32 bits");
    d.result(d.at(0), wide);
    d.input(d.at(1), type);
    d.input(d.at(2), type);
    d.input(d.at(3), wide);
    return d.emit(handler);
  }
  default:
    return d.fail("expected .lo, .hi or .wide");
  }
}

/// Divides active lanes only: a zero divisor in an inactive lane would trap on the host.
template <typename T, bool remainder> void divide(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0)), *b = warp.row<T>(op.input(1));
  T *result = warp.row<T>(op.result(0));
  forLanes(mask & ~warp.undefined(op.input(1)), [&](unsigned lane) {
    if (b[lane] == 0)
      return warp.fail(FindingKind::Arithmetic, "division by zero has no defined result", lane);
    // INT_MIN / -1 wraps; its remainder is 0.
    if (std::is_signed_v<T> && b[lane] == T(-1))
      result[lane] = remainder ? T(0) : Negate()(a[lane]);
    else
      result[lane] = remainder ? a[lane] % b[lane] : a[lane] / b[lane];
  });
}

template <bool remainder> bool decodeDivide(Decoder &d) {
  Type type = d.type();
  return emitSame(d, type, 2, dispatchInteger(type, []<typename T>() -> Handler { return divide<T, remainder>; }));
}

template <typename F> bool decodeBinary(Decoder &d) {
  Type type = d.type();
  return emitSame(d, type, 2, binary<F>(type));
}
template <typename F> bool decodeTernary(Decoder &d) {
  Type type = d.type();
  return emitSame(d, type, 3, ternary<F>(type));
}
template <typename F> bool decodeUnary(Decoder &d) {
  Type type = d.type();
  if (!isSigned(type))
    return d.fail("expected a signed type");
  return emitSame(d, type, 1, dispatchInteger(type, []<typename T>() -> Handler { return mapUnary<T, T, F>; }));
}

template <typename F, unsigned inputs> bool decode24(Decoder &d) {
  if (!d.take("lo"))
    return d.fail("only .lo is simulated");
  Type type = d.type();
  if (inputs == 2)
    return emitSame(d, type, 2,
                    type == Type::S32   ? mapBinary<int32_t, int32_t, Multiply24>
                    : type == Type::U32 ? mapBinary<uint32_t, uint32_t, Multiply24>
                                        : nullptr);
  return emitSame(d, type, 3,
                  type == Type::S32   ? mapTernary<int32_t, int32_t, MultiplyAdd24>
                  : type == Type::U32 ? mapTernary<uint32_t, uint32_t, MultiplyAdd24>
                                      : nullptr);
}

} // namespace

void saccade::ptxsim::addIntegerInstructions(InstructionTable &table) {
  constexpr TypeClass integer = TypeClass::Integer;
  table.add("add", integer, decodeSum<Add, AddSaturated>);
  table.add("sub", integer, decodeSum<Subtract, SubtractSaturated>);
  table.add("addc", integer, decodeCarry<false, true>);
  table.add("subc", integer, decodeCarry<true, true>);
  table.add("mul", integer, decodeMultiply);
  table.add("mad", integer, decodeMultiplyAdd);
  table.add("madc", integer, decodeMultiplyAddCarry);
  table.add("mul24", integer, decode24<Multiply24, 2>);
  table.add("mad24", integer, decode24<MultiplyAdd24, 3>);
  table.add("div", integer, decodeDivide<false>);
  table.add("rem", integer, decodeDivide<true>);
  table.add("min", integer, decodeBinary<Minimum>);
  table.add("max", integer, decodeBinary<Maximum>);
  table.add("abs", integer, decodeUnary<Absolute>);
  table.add("neg", integer, decodeUnary<Negate>);
  table.add("sad", integer, decodeTernary<AbsoluteDifference>);
}
