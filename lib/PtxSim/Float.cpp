//===- Float.cpp - f32 and f64 arithmetic ---------------------------------===//
//
// Approximate instructions give correctly rounded results, or with Approximations::Noisy results within the error bound
// of the PTX manual.
//
//===----------------------------------------------------------------------===//

#include "Numbers.h"
#include "TypeDispatch.h"
#include <cfenv>
#include <cmath>
#include <limits>

using namespace saccade::ptxsim;

namespace {

inline float flushed(float value) { return flush(value); }
inline double flushed(double value) { return value; }
inline float canonicalNan(float value) { return canonical(value); }
inline double canonicalNan(double value) { return value; }
template <typename T> T saturate(T value) { return value > 1 ? T(1) : value > 0 ? value : T(0); }

// Arithmetic, rounded to nearest.
struct Add {
  template <typename T> T operator()(T a, T b) const { return a + b; }
};
struct Subtract {
  template <typename T> T operator()(T a, T b) const { return a - b; }
};
struct Multiply {
  template <typename T> T operator()(T a, T b) const { return a * b; }
};
struct Divide {
  template <typename T> T operator()(T a, T b) const { return a / b; }
};
struct Reciprocal {
  template <typename T> T operator()(T a) const { return 1 / a; }
};
struct SquareRoot {
  template <typename T> T operator()(T a) const { return std::sqrt(a); }
};
struct FusedMultiplyAdd {
  float operator()(float a, float b, float c) const { return __builtin_fmaf(a, b, c); }
  double operator()(double a, double b, double c) const { return __builtin_fma(a, b, c); }
};
/// The hardware computes a · rcp(b) and flushes a subnormal reciprocal, so the result is 0 for large b.
struct DivideApproximately {
  float operator()(float a, float b) const {
    if (std::fabs(b) > 0x1p126f && !std::isinf(b))
      return std::isinf(a) ? std::numeric_limits<float>::quiet_NaN() : std::copysign(0.0f, a) * std::copysign(1.0f, b);
    return a / b;
  }
};
struct ReciprocalRoot {
  float operator()(float a) const { return float(1 / std::sqrt(double(a))); }
  double operator()(double a) const { return 1 / std::sqrt(a); }
};
struct Exponential {
  float operator()(float a) const { return float(std::exp2(double(a))); }
};
struct Logarithm {
  float operator()(float a) const { return float(std::log2(double(a))); }
};
struct Sine {
  float operator()(float a) const { return float(std::sin(double(a))); }
};
struct Cosine {
  float operator()(float a) const { return float(std::cos(double(a))); }
};
struct HyperbolicTangent {
  float operator()(float a) const { return float(std::tanh(double(a))); }
};
template <bool propagateNan, bool maximum> struct Extremum {
  template <typename T> T operator()(T a, T b) const {
    if (std::isnan(a) || std::isnan(b))
      return propagateNan || (std::isnan(a) && std::isnan(b)) ? std::numeric_limits<T>::quiet_NaN()
             : std::isnan(a)                                  ? b
                                                              : a;
    // -0 is less than +0.
    bool less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
    return less == maximum ? b : a;
  }
};

// Adds flushing of operands and results (.ftz), clamping to [0, 1] (.sat) and canonical NaN.
template <typename F, bool ftz, bool sat> struct WithModifiers {
  template <typename... T> auto operator()(T... operands) const {
    auto value = canonicalNan(ftz ? flushed(F()(flushed(operands)...)) : F()(operands...));
    return sat ? saturate(value) : value;
  }
};

/// rcp and rsqrt.approx.ftz.f64: only the upper 32 bits of operand and result are significant; subnormals are flushed.
template <typename F> struct Guess {
  uint64_t operator()(uint64_t operand) const {
    double result = F()(upperHalf(operand));
    if (std::isnan(result))
      return 0x7fffffff00000000;
    return toBits(upperHalf(toBits(result) + (std::isinf(result) ? 0 : 1u << 31)));
  }

private:
  static uint64_t toBits(double value) { return __builtin_bit_cast(uint64_t, value); }
  static double upperHalf(uint64_t bits) {
    auto value = __builtin_bit_cast(double, bits & 0xffffffff00000000);
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0, value) : value;
  }
};

enum class Arity { One = 1, Two, Three };

template <typename T, typename F, Arity arity> constexpr Handler map() {
  if constexpr (arity == Arity::One)
    return mapUnary<T, T, F>;
  else if constexpr (arity == Arity::Two)
    return mapBinary<T, T, F>;
  else
    return mapTernary<T, T, F>;
}

/// FMA with the host's instruction; libm's emulation is slow.
template <bool ftz, bool sat>
__attribute__((target("avx2,fma"))) void fmaRows(Warp &warp, const Op &op, uint32_t mask) {
  const float *a = warp.row<float>(op.input(0)), *b = warp.row<float>(op.input(1)), *c = warp.row<float>(op.input(2));
  float values[32];
  for (unsigned lane = 0; lane < 32; ++lane) {
    float value = ftz ? flush(__builtin_fmaf(flush(a[lane]), flush(b[lane]), flush(c[lane])))
                      : __builtin_fmaf(a[lane], b[lane], c[lane]);
    value = canonical(value);
    values[lane] = sat ? saturate(value) : value;
  }
  assign(warp.row<float>(op.result(0)), values, mask);
}

template <typename F, Arity arity> Handler selectHandler(Type type, bool ftz, bool sat) {
  if constexpr (std::is_same_v<F, FusedMultiplyAdd>)
    if (type == Type::F32 && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
      return ftz ? (sat ? fmaRows<true, true> : fmaRows<true, false>)
                 : (sat ? fmaRows<false, true> : fmaRows<false, false>);
  if (type == Type::F32)
    return ftz ? (sat ? map<float, WithModifiers<F, true, true>, arity>()
                      : map<float, WithModifiers<F, true, false>, arity>())
               : (sat ? map<float, WithModifiers<F, false, true>, arity>()
                      : map<float, WithModifiers<F, false, false>, arity>());
  if constexpr (std::is_invocable_v<F, double> || std::is_invocable_v<F, double, double> ||
                std::is_invocable_v<F, double, double, double>)
    if (type == Type::F64 && !ftz && !sat)
      return map<double, WithModifiers<F, false, false>, arity>();
  return nullptr;
}

/// Directed rounding by the host's rounding mode. The volatile accesses keep the compiler from moving the operation.
template <typename F, Arity arity, typename T> void directed(Warp &warp, const Op &op, uint32_t mask) {
  constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  bool ftz = op.numbers[1], sat = op.numbers[2];
  const T *rows[3] = {};
  for (unsigned index = 0; index < unsigned(arity); ++index)
    rows[index] = warp.row<T>(op.input(index));
  T *result = warp.row<T>(op.result(0));
  forLanes(mask, [&](unsigned lane) {
    volatile T in[3], out;
    for (unsigned index = 0; index < unsigned(arity); ++index)
      in[index] = ftz ? flushed(rows[index][lane]) : rows[index][lane];
    std::fesetround(modes[op.numbers[0]]);
    if constexpr (arity == Arity::One)
      out = F()(T(in[0]));
    else if constexpr (arity == Arity::Two)
      out = F()(T(in[0]), T(in[1]));
    else
      out = std::fma(T(in[0]), T(in[1]), T(in[2]));
    std::fesetround(FE_TONEAREST);
    T value = canonicalNan(ftz ? flushed(T(out)) : T(out));
    result[lane] = sat ? saturate(value) : value;
  });
}

template <typename F, Arity arity> bool finish(Decoder &d, Rounding rounding) {
  bool ftz = d.take("ftz"), sat = d.take("sat");
  Type type = d.type();
  Handler handler = selectHandler<F, arity>(type, ftz, sat);
  if constexpr (std::is_same_v<F, Reciprocal> || std::is_same_v<F, ReciprocalRoot>)
    if (d.op.approximate && type == Type::F64 && ftz && !sat)
      handler = mapUnary<uint64_t, uint64_t, Guess<F>>;
  if (handler && rounding != Rounding::NearestEven) {
    if constexpr (std::is_same_v<F, Add> || std::is_same_v<F, Subtract> || std::is_same_v<F, Multiply> ||
                  std::is_same_v<F, Divide> || std::is_same_v<F, Reciprocal> || std::is_same_v<F, SquareRoot> ||
                  std::is_same_v<F, FusedMultiplyAdd>)
      handler = type == Type::F32 ? directed<F, arity, float> : directed<F, arity, double>;
    else
      handler = nullptr;
    if (rounding == Rounding::NearestAway)
      handler = nullptr;
    d.op.numbers[0] = uint32_t(rounding), d.op.numbers[1] = ftz, d.op.numbers[2] = sat;
  }
  return emitSame(d, type, unsigned(arity), handler);
}

/// add.rn.ftz.sat.f32: the rounding modifier is optional.
template <typename F, Arity arity> bool decodeRounded(Decoder &d) {
  return finish<F, arity>(d, d.takeRounding().value_or(Rounding::NearestEven));
}

/// rcp.approx.ftz.f32 or rcp.rn.f32: a rounding modifier or .approx is required.
template <typename F, Arity arity, typename Approximate> bool decodeRoundedOrApproximate(Decoder &d) {
  if (d.take("approx")) {
    d.op.approximate = std::is_same_v<F, Divide> ? 2 : 1;
    return finish<Approximate, arity>(d, Rounding::NearestEven);
  }
  if (std::is_same_v<F, Divide> && d.take("full")) {
    d.op.approximate = 2;
    return finish<F, arity>(d, Rounding::NearestEven);
  }
  if (auto rounding = d.takeRounding())
    return finish<F, arity>(d, *rounding);
  return d.fail("expected a rounding modifier or .approx");
}

template <typename F> bool decodeApproximate(Decoder &d) {
  if (!d.take("approx"))
    return d.fail("expected .approx");
  // tanh: relative error 2^-11; the others: one or two ulp.
  d.op.approximate = std::is_same_v<F, HyperbolicTangent> ? 4096 : std::is_same_v<F, ReciprocalRoot> ? 1 : 2;
  // The double-precision tanh and erf of libdevice scale by powers of two that they get from ex2.
  d.op.exactForIntegers = std::is_same_v<F, Exponential>;
  return finish<F, Arity::One>(d, Rounding::NearestEven);
}

template <bool maximum> bool decodeExtremum(Decoder &d) {
  bool ftz = d.take("ftz"), nan = d.take("NaN");
  Type type = d.type();
  return emitSame(d, type, 2,
                  nan ? selectHandler<Extremum<true, maximum>, Arity::Two>(type, ftz, false)
                      : selectHandler<Extremum<false, maximum>, Arity::Two>(type, ftz, false));
}

// Only the sign bit changes, so the payload of a NaN is kept.
template <bool negate, bool ftz, typename T> struct Sign {
  T operator()(T bits) const {
    constexpr T sign = T(1) << (8 * sizeof(T) - 1);
    if (ftz && sizeof(T) == 4 && !(bits & 0x7f800000))
      bits &= sign;
    return negate ? bits ^ sign : bits & ~sign;
  }
};
template <bool negate> bool decodeSign(Decoder &d) {
  bool ftz = d.take("ftz");
  Type type = d.type();
  if (type == Type::F64)
    return emitSame(d, type, 1, mapUnary<uint64_t, uint64_t, Sign<negate, false, uint64_t>>);
  return emitSame(d, type, 1,
                  ftz ? mapUnary<uint32_t, uint32_t, Sign<negate, true, uint32_t>>
                      : mapUnary<uint32_t, uint32_t, Sign<negate, false, uint32_t>>);
}

/// copysign d, a, b: the sign of a, the magnitude of b.
template <typename T> struct CopySign {
  T operator()(T a, T b) const {
    constexpr T sign = T(1) << (8 * sizeof(T) - 1);
    return (a & sign) | (b & ~sign);
  }
};
bool decodeCopySign(Decoder &d) {
  Type type = d.type();
  return emitSame(d, type, 2,
                  type == Type::F64 ? mapBinary<uint64_t, uint64_t, CopySign<uint64_t>>
                                    : mapBinary<uint32_t, uint32_t, CopySign<uint32_t>>);
}

template <typename T> void testProperty(Warp &warp, const Op &op, uint32_t mask) {
  const T *a = warp.row<T>(op.input(0));
  uint32_t bits = lanesWhere([&](unsigned lane) {
    int kind = std::fpclassify(a[lane]);
    switch (op.numbers[0]) {
    case 0:
      return kind != FP_NAN && kind != FP_INFINITE;
    case 1:
      return kind == FP_INFINITE;
    case 2:
      return kind != FP_NAN;
    case 3:
      return kind == FP_NAN;
    case 4:
      return kind == FP_NORMAL;
    default:
      return kind == FP_SUBNORMAL;
    }
  });
  warp.setPredicate(op.result(0), bits, mask);
}
bool decodeTest(Decoder &d) {
  int property = d.takeOneOf({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  Type type = d.type();
  if (property < 0 || !d.expectOperands(2))
    return d.fail("expected a property such as .finite");
  d.result(d.at(0), Type::Pred);
  d.input(d.at(1), type);
  d.op.numbers[0] = property;
  return d.emit(type == Type::F64 ? testProperty<double> : testProperty<float>);
}

} // namespace

void saccade::ptxsim::addFloatInstructions(InstructionTable &table) {
  constexpr TypeClass floats = TypeClass::Float;
  table.add("add", floats, decodeRounded<Add, Arity::Two>);
  table.add("sub", floats, decodeRounded<Subtract, Arity::Two>);
  table.add("mul", floats, decodeRounded<Multiply, Arity::Two>);
  table.add("fma", floats, decodeRounded<FusedMultiplyAdd, Arity::Three>);
  table.add("mad", floats, decodeRounded<FusedMultiplyAdd, Arity::Three>);
  table.add("div", floats, decodeRoundedOrApproximate<Divide, Arity::Two, DivideApproximately>);
  table.add("rcp", floats, decodeRoundedOrApproximate<Reciprocal, Arity::One, Reciprocal>);
  table.add("sqrt", floats, decodeRoundedOrApproximate<SquareRoot, Arity::One, SquareRoot>);
  table.add("rsqrt", floats, decodeApproximate<ReciprocalRoot>);
  table.add("ex2", floats, decodeApproximate<Exponential>);
  table.add("lg2", floats, decodeApproximate<Logarithm>);
  table.add("sin", floats, decodeApproximate<Sine>);
  table.add("cos", floats, decodeApproximate<Cosine>);
  table.add("tanh", floats, decodeApproximate<HyperbolicTangent>);
  table.add("min", floats, decodeExtremum<false>);
  table.add("max", floats, decodeExtremum<true>);
  table.add("neg", floats, decodeSign<true>);
  table.add("abs", floats, decodeSign<false>);
  table.add("copysign", floats, decodeCopySign);
  table.add("testp", floats, decodeTest);
}
