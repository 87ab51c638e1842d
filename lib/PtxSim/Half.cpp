//===- Half.cpp - f16, bf16, f16x2 and bf16x2 arithmetic ------------------===//

#include "Numbers.h"
#include "TypeDispatch.h"

using namespace saccade::ptxsim;

namespace {

enum : uint32_t { flushing = 1, saturating = 2, relu = 4, propagatingNan = 8 };

/// One element. Sums and products are exact or rounded to odd in f64, so the final rounding to the format is correct.
template <const Format &format> struct Element {
  static double load(uint16_t bits, uint32_t flags) {
    if ((flags & flushing) && !(bits & format.infinity()))
      bits &= format.sign();
    return widen(bits, format);
  }
  static uint16_t store(double value, uint32_t flags) {
    uint16_t bits = roundTo(value, format);
    if ((flags & flushing) && !(bits & format.infinity()))
      bits &= format.sign();
    if (flags & saturating)
      return widen(bits, format) > 1 ? roundTo(1, format) : widen(bits, format) > 0 ? bits : 0;
    if ((flags & relu) && value == value && std::signbit(value))
      return 0;
    return bits;
  }
};

struct Add {
  double operator()(double a, double b) const { return addToOdd(a, b); }
};
struct Subtract {
  double operator()(double a, double b) const { return addToOdd(a, -b); }
};
struct Multiply {
  double operator()(double a, double b) const { return a * b; }
};
struct FusedMultiplyAdd {
  double operator()(double a, double b, double c) const { return fmaToOdd(a, b, c); }
};
struct Exponential {
  double operator()(double a) const { return std::exp2(a); }
};
struct HyperbolicTangent {
  double operator()(double a) const { return std::tanh(a); }
};
template <bool maximum> struct Extremum {
  double operator()(double a, double b) const {
    if (a != a || b != b)
      return a != a ? b : a;
    bool less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
    return less == maximum ? b : a;
  }
};

/// T is uint16_t, or uint32_t for a pair.
template <const Format &format, typename T, typename F, unsigned arity>
void apply(Warp &warp, const Op &op, uint32_t mask) {
  uint32_t flags = op.numbers[0];
  T *result = warp.row<T>(op.result(0));
  const T *rows[3] = {};
  for (unsigned index = 0; index < arity; ++index)
    rows[index] = warp.row<T>(op.input(index));
  forLanes(mask, [&](unsigned lane) {
    T packed = 0;
    for (unsigned half = 0; half < sizeof(T) / 2; ++half) {
      double in[3] = {};
      bool anyNan = false;
      for (unsigned index = 0; index < arity; ++index) {
        in[index] = Element<format>::load(uint16_t(rows[index][lane] >> (16 * half)), flags);
        anyNan |= std::isnan(in[index]);
      }
      uint16_t bits;
      if ((flags & propagatingNan) && anyNan)
        bits = format.nan();
      else if constexpr (arity == 1)
        bits = Element<format>::store(F()(in[0]), flags);
      else if constexpr (arity == 2)
        bits = Element<format>::store(F()(in[0], in[1]), flags);
      else
        bits = Element<format>::store(F()(in[0], in[1], in[2]), flags);
      packed |= T(T(bits) << (16 * half));
    }
    result[lane] = packed;
  });
}

template <typename F, unsigned arity> bool finish(Decoder &d, uint32_t flags) {
  Type type = d.type();
  d.op.numbers[0] = flags;
  Handler handler = type == Type::F16      ? apply<f16Format, uint16_t, F, arity>
                    : type == Type::BF16   ? apply<bf16Format, uint16_t, F, arity>
                    : type == Type::F16x2  ? apply<f16Format, uint32_t, F, arity>
                    : type == Type::BF16x2 ? apply<bf16Format, uint32_t, F, arity>
                                           : nullptr;
  return emitSame(d, type, arity, handler);
}

template <typename F, unsigned arity> bool decodeArithmetic(Decoder &d) {
  auto rounding = d.takeRounding();
  if (rounding.value_or(Rounding::NearestEven) != Rounding::NearestEven)
    return d.fail("only .rn is simulated");
  uint32_t flags = d.take("ftz") ? flushing : 0;
  flags |= d.take("sat") ? saturating : d.take("relu") ? relu : 0;
  return finish<F, arity>(d, flags);
}

template <typename F> bool decodeApproximate(Decoder &d) {
  if (!d.take("approx"))
    return d.fail("expected .approx");
  return finish<F, 1>(d, d.take("ftz") ? flushing : 0);
}

template <bool maximum> bool decodeExtremum(Decoder &d) {
  uint32_t flags = d.take("ftz") ? flushing : 0;
  flags |= d.take("NaN") ? propagatingNan : 0;
  return finish<Extremum<maximum>, 2>(d, flags);
}

template <bool negate, typename T> struct Sign {
  T operator()(T bits) const {
    constexpr T signs = T(0x80008000);
    return negate ? bits ^ signs : bits & T(~signs);
  }
};
template <bool negate> bool decodeSign(Decoder &d) {
  Type type = d.type();
  return emitSame(d, type, 1,
                  isPair(type) ? mapUnary<uint32_t, uint32_t, Sign<negate, uint32_t>>
                               : mapUnary<uint16_t, uint16_t, Sign<negate, uint16_t>>);
}

} // namespace

void saccade::ptxsim::addHalfInstructions(InstructionTable &table) {
  constexpr TypeClass half = TypeClass::Half;
  table.add("add", half, decodeArithmetic<Add, 2>);
  table.add("sub", half, decodeArithmetic<Subtract, 2>);
  table.add("mul", half, decodeArithmetic<Multiply, 2>);
  table.add("fma", half, decodeArithmetic<FusedMultiplyAdd, 3>);
  table.add("min", half, decodeExtremum<false>);
  table.add("max", half, decodeExtremum<true>);
  table.add("neg", half, decodeSign<true>);
  table.add("abs", half, decodeSign<false>);
  table.add("ex2", half, decodeApproximate<Exponential>);
  table.add("tanh", half, decodeApproximate<HyperbolicTangent>);
}
