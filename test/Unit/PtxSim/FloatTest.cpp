//===- FloatTest.cpp - f32 and f64 arithmetic, by hand --------------------===//

#include "Harness.h"
#include <cmath>
#include <limits>

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

static constexpr uint32_t infinity = 0x7f800000, canonicalNan = 0x7fffffff, minusInf = 0xff800000,
                          minusZero = 0x80000000;

TEST(Float, RoundsToNearestEven) {
  EXPECT_EQ(evaluate32("add.f32 %d, %a, %b;", {0x3f800000, 0x33800000}), 0x3f800000u); // 1 + 2^-24: a tie
  EXPECT_EQ(evaluate32("add.rn.f32 %d, %a, %b;", {0x3f800001, 0x33800000}), 0x3f800002u);
  EXPECT_EQ(evaluateFloat("sub.f32 %d, %a, %b;", {5, 7}), -2);
  EXPECT_EQ(evaluateFloat("mul.f32 %d, %a, 0f3F000000;", {3}), 1.5f);
  EXPECT_EQ(evaluate("add.f64 %d, %a, %b;", 8, {f64(1), f64(0x1p-52)}), 0x3ff0000000000001u);
}

TEST(Float, DirectedRounding) {
  // 1 + 2^-30.
  for (auto [mode, expected] :
       {std::pair("rn", 0x3f800000u), {"rz", 0x3f800000u}, {"rm", 0x3f800000u}, {"rp", 0x3f800001u}})
    EXPECT_EQ(evaluate32(std::string("add.") + mode + ".f32 %d, %a, %b;", {0x3f800000, 0x30800000}), expected) << mode;
  for (auto [mode, expected] :
       {std::pair("rn", 0xbf800000u), {"rz", 0xbf800000u}, {"rm", 0xbf800001u}, {"rp", 0xbf800000u}})
    EXPECT_EQ(evaluate32(std::string("sub.") + mode + ".f32 %d, %a, %b;", {0xbf800000, 0x30800000}), expected) << mode;
  // 1 / 3 = 0x3eaaaaaa.aaa...
  EXPECT_EQ(evaluate32("div.rz.f32 %d, %a, %b;", {0x3f800000, 0x40400000}), 0x3eaaaaaau);
  EXPECT_EQ(evaluate32("div.rp.f32 %d, %a, %b;", {0x3f800000, 0x40400000}), 0x3eaaaaabu);
  EXPECT_EQ(evaluate32("rcp.rm.f32 %d, %a;", {0x40400000}), 0x3eaaaaaau);
  EXPECT_EQ(evaluate32("sqrt.rp.f32 %d, %a;", {0x40000000}), 0x3fb504f4u);
  EXPECT_EQ(evaluate32("fma.rz.f32 %d, %a, %b, %c;", {0x3f800001, 0x3f800001, 0}), 0x3f800002u);
  EXPECT_EQ(evaluate32("mul.rp.f32 %d, %a, %b;", {0x3f800001, 0x3f800001}), 0x3f800003u);
}

TEST(Float, FusedMultiplyAddRoundsOnce) {
  // (1 + 2^-12)^2 - 1 - 2^-11 = 2^-24, which a rounded product loses.
  EXPECT_EQ(evaluate32("fma.rn.f32 %d, %a, %b, %c;", {0x3f800800, 0x3f800800, 0xbf801000}), 0x33800000u);
  EXPECT_EQ(evaluate("fma.rn.f64 %d, %a, %b, %c;", 8, {f64(1 + 0x1p-30), f64(1 + 0x1p-30), f64(-1 - 0x1p-29)}),
            0x3c30000000000000u);
}

TEST(Float, SubnormalNumbersStayUnlessFlushed) {
  EXPECT_EQ(evaluate32("mul.f32 %d, %a, %b;", {0x00800000, 0x3f000000}), 0x00400000u);
  EXPECT_EQ(evaluate32("mul.ftz.f32 %d, %a, %b;", {0x00800000, 0xbf000000}), minusZero);
  EXPECT_EQ(evaluate32("add.ftz.f32 %d, %a, %b;", {0x00400000, 0x00000000}), 0u);
  EXPECT_EQ(evaluate32("fma.rn.ftz.f32 %d, %a, %b, %c;", {0x00400000, 0x7f000000, 0}), 0u);
  EXPECT_EQ(evaluate32("fma.rn.f32 %d, %a, %b, %c;", {0x00400000, 0x7f000000, 0}), 0x3f800000u);
  EXPECT_EQ(evaluate32("abs.ftz.f32 %d, %a;", {0x80400000}), 0u);
  EXPECT_EQ(evaluate32("neg.f32 %d, %a;", {0x00400000}), 0x80400000u);
}

TEST(Float, Saturation) {
  EXPECT_EQ(evaluateFloat("add.sat.f32 %d, %a, %b;", {2, 3}), 1);
  EXPECT_EQ(evaluate32("add.sat.f32 %d, %a, %b;", {0xc0000000, 0}), 0u);
  EXPECT_EQ(evaluate32("mul.sat.f32 %d, %a, %b;", {canonicalNan, 0x3f800000}), 0u);
  EXPECT_EQ(evaluateFloat("fma.rn.sat.f32 %d, %a, %b, %c;", {0.25f, 1, 0.5f}), 0.75f);
}

TEST(Float, NansAreCanonical) {
  EXPECT_EQ(evaluate32("add.f32 %d, %a, %b;", {0xffc12345, 0}), canonicalNan);
  EXPECT_EQ(evaluate32("sub.f32 %d, %a, %b;", {infinity, infinity}), canonicalNan);
  EXPECT_EQ(evaluate32("mul.f32 %d, %a, %b;", {infinity, 0}), canonicalNan);
  EXPECT_EQ(evaluate32("fma.rn.f32 %d, %a, %b, %c;", {infinity, 0x3f800000, minusInf}), canonicalNan);
  EXPECT_EQ(evaluate32("sqrt.rn.f32 %d, %a;", {0xbf800000}), canonicalNan);
}

TEST(Float, MinAndMax) {
  EXPECT_EQ(evaluate32("min.f32 %d, %a, %b;", {canonicalNan, 0x40000000}), 0x40000000u);
  EXPECT_EQ(evaluate32("max.f32 %d, %a, %b;", {0xc0000000, 0x7fc00001}), 0xc0000000u);
  EXPECT_EQ(evaluate32("max.f32 %d, %a, %b;", {0xffc00001, 0x7fc00001}), canonicalNan);
  EXPECT_EQ(evaluate32("max.NaN.f32 %d, %a, %b;", {canonicalNan, 0x40000000}), canonicalNan);
  EXPECT_EQ(evaluate32("max.f32 %d, %a, %b;", {minusZero, 0}), 0u);
  EXPECT_EQ(evaluate32("max.f32 %d, %a, %b;", {0, minusZero}), 0u);
  EXPECT_EQ(evaluate32("min.f32 %d, %a, %b;", {0, minusZero}), minusZero);
  EXPECT_EQ(evaluate32("min.ftz.f32 %d, %a, %b;", {0x80000001, 0x3f800000}), minusZero);
  EXPECT_EQ(evaluate("max.f64 %d, %a, %b;", 8, {f64(-1), f64(2)}), 0x4000000000000000u);
}

TEST(Float, DivisionsAndReciprocals) {
  EXPECT_EQ(evaluate32("div.rn.f32 %d, %a, %b;", {0x3f800000, 0x40400000}), 0x3eaaaaabu);
  EXPECT_EQ(evaluate32("div.full.f32 %d, %a, %b;", {0x40c00000, 0x40400000}), 0x40000000u);
  EXPECT_EQ(evaluate32("div.approx.f32 %d, %a, %b;", {0x40c00000, 0x40400000}), 0x40000000u);
  // Beyond 2^126 the approximation is 0, and NaN for an infinite dividend.
  EXPECT_EQ(evaluate32("div.approx.f32 %d, %a, %b;", {0x7f000000, 0x7f000000}), 0u);
  EXPECT_EQ(evaluate32("div.approx.f32 %d, %a, %b;", {infinity, 0x7f000000}), canonicalNan);
  EXPECT_EQ(evaluate32("rcp.approx.f32 %d, %a;", {0}), infinity);
  EXPECT_EQ(evaluate32("rcp.approx.ftz.f32 %d, %a;", {minusZero}), minusInf);
  EXPECT_EQ(evaluate32("rcp.approx.f32 %d, %a;", {minusInf}), minusZero);
  EXPECT_EQ(evaluate("div.rn.f64 %d, %a, %b;", 8, {f64(1), f64(4)}), 0x3fd0000000000000u);
  EXPECT_EQ(evaluateFloat("rsqrt.approx.f32 %d, %a;", {0.25f}), 2);
  EXPECT_EQ(evaluateFloat("sqrt.approx.f32 %d, %a;", {9}), 3);
}

TEST(Float, F64ApproximationsUseTheUpperHalves) {
  EXPECT_EQ(evaluate("rcp.approx.ftz.f64 %d, %a;", 8, {f64(4)}), 0x3fd0000000000000u);
  EXPECT_EQ(evaluate("rcp.approx.ftz.f64 %d, %a;", 8, {f64(3)}), 0x3fd5555500000000u);
  EXPECT_EQ(evaluate("rcp.approx.ftz.f64 %d, %a;", 8, {b64(0x40080000ffffffff)}), 0x3fd5555500000000u);
  EXPECT_EQ(evaluate("rcp.approx.ftz.f64 %d, %a;", 8, {b64(0x800fffffffffffff)}), 0xfff0000000000000u);
  EXPECT_EQ(evaluate("rcp.approx.ftz.f64 %d, %a;", 8, {b64(0xfff0000000000000)}), 0x8000000000000000u);
  EXPECT_EQ(evaluate("rsqrt.approx.ftz.f64 %d, %a;", 8, {f64(0.25)}), 0x4000000000000000u);
  EXPECT_EQ(evaluate("rsqrt.approx.ftz.f64 %d, %a;", 8, {f64(-1)}), 0x7fffffff00000000u);
}

TEST(Float, ExponentialHasExactCorners) {
  EXPECT_EQ(evaluate32("ex2.approx.f32 %d, %a;", {minusInf}), 0u);
  EXPECT_EQ(evaluate32("ex2.approx.f32 %d, %a;", {minusZero}), 0x3f800000u);
  EXPECT_EQ(evaluate32("ex2.approx.f32 %d, %a;", {infinity}), infinity);
  EXPECT_EQ(evaluate32("ex2.approx.ftz.f32 %d, %a;", {canonicalNan}), canonicalNan);
  EXPECT_EQ(evaluateFloat("ex2.approx.f32 %d, %a;", {-149}), 0x1p-149f);
  EXPECT_EQ(evaluate32("ex2.approx.ftz.f32 %d, %a;", {0xc3150000}), 0u); // -149
  EXPECT_EQ(evaluateFloat("ex2.approx.ftz.f32 %d, %a;", {0.5f}), std::sqrt(2.0f));
}

TEST(Float, LogarithmTrigonometricAndTanh) {
  EXPECT_EQ(evaluate32("lg2.approx.f32 %d, %a;", {0}), minusInf);
  EXPECT_EQ(evaluate32("lg2.approx.f32 %d, %a;", {0xbf800000}), canonicalNan);
  EXPECT_EQ(evaluateFloat("lg2.approx.ftz.f32 %d, %a;", {8}), 3);
  EXPECT_EQ(evaluateFloat("tanh.approx.f32 %d, %a;", {0}), 0);
  EXPECT_EQ(evaluateFloat("tanh.approx.f32 %d, %a;", {100}), 1);
  EXPECT_EQ(evaluateFloat("sin.approx.f32 %d, %a;", {0}), 0);
  EXPECT_EQ(evaluateFloat("cos.approx.f32 %d, %a;", {0}), 1);
}

TEST(Float, NoisyApproximationsStayInTheirBounds) {
  Options noisy;
  noisy.approximations = Approximations::Noisy;
  for (auto [instruction, bound] :
       {std::pair("ex2.approx.f32", 2), {"rcp.approx.f32", 1}, {"rsqrt.approx.f32", 1}, {"tanh.approx.f32", 4096}}) {
    std::string body = std::string(instruction) + " %d, %a;";
    int furthest = 0;
    for (int index = 0; index < 40; ++index) {
      std::vector<Row> inputs = {f32(0.1f + index * 0.17f)};
      int distance = std::abs(int(evaluate(body, 4, inputs)) - int(evaluate(body, 4, inputs, noisy)));
      EXPECT_LE(distance, bound) << instruction;
      furthest = std::max(furthest, distance);
    }
    EXPECT_GT(furthest, 0) << instruction;
  }
  EXPECT_EQ(evaluate("ex2.approx.f32 %d, %a;", 4, {b32(minusZero)}, noisy), 0x3f800000u);
  for (int exponent = -100; exponent <= 100; exponent += 7)
    EXPECT_EQ(evaluate("ex2.approx.f32 %d, %a;", 4, {f32(exponent)}, noisy), unsigned(127 + exponent) << 23);
  EXPECT_EQ(evaluate("ex2.approx.f32 %d, %a;", 4, {b32(minusInf)}, noisy), 0u);
  EXPECT_EQ(evaluate("sqrt.rn.f32 %d, %a;", 4, {f32(2)}, noisy), evaluate("sqrt.rn.f32 %d, %a;", 4, {f32(2)}));
}

TEST(Float, SignsAndProperties) {
  EXPECT_EQ(evaluate32("neg.f32 %d, %a;", {0x7fc00001}), 0xffc00001u);
  EXPECT_EQ(evaluate32("copysign.f32 %d, %a, %b;", {0x80000000, 0x40000000}), 0xc0000000u);
  EXPECT_EQ(evaluate("neg.f64 %d, %a;", 8, {f64(3)}), 0xc008000000000000u);
  for (auto [property, value] : {std::pair("finite", 0x3f800000u),
                                 {"infinite", minusInf},
                                 {"number", infinity},
                                 {"notanumber", canonicalNan},
                                 {"normal", 0x00800000u},
                                 {"subnormal", 1u}})
    EXPECT_EQ(evaluate32(std::string("testp.") + property + ".f32 %p, %a;\nselp.b32 %d, 1, 0, %p;", {value}), 1u)
        << property;
}

TEST(Half, RoundsEveryOperationOnce) {
  EXPECT_EQ(evaluate("add.f16 %d, %a, %b;", 2, {b16(0x3c00), b16(0x1000)}), 0x3c00u); // 1 + 2^-11: a tie
  EXPECT_EQ(evaluate("add.rn.f16 %d, %a, %b;", 2, {b16(0x3c01), b16(0x1000)}), 0x3c02u);
  EXPECT_EQ(evaluate("mul.f16 %d, %a, %b;", 2, {b16(0x7bff), b16(0x4000)}), 0x7c00u); // 65504 * 2
  EXPECT_EQ(evaluate("sub.f16 %d, %a, %b;", 2, {b16(0x7c00), b16(0x7c00)}), 0x7fffu);
  EXPECT_EQ(evaluate("fma.rn.bf16 %d, %a, %b, %c;", 2, {b16(0x3f80), b16(0x4000), b16(0x3f80)}), 0x4040u);
  EXPECT_EQ(evaluate("fma.rn.relu.f16 %d, %a, %b, %c;", 2, {b16(0x3c00), b16(0xbc00), b16(0)}), 0u);
  EXPECT_EQ(evaluate("add.sat.f16 %d, %a, %b;", 2, {b16(0x4000), b16(0x3c00)}), 0x3c00u);
}

TEST(Half, PairsWorkOnBothHalves) {
  EXPECT_EQ(evaluate32("add.f16x2 %d, %a, %b;", {0x40003c00, 0x3c003c00}), 0x42004000u);
  EXPECT_EQ(evaluate32("mul.f16x2 %d, %a, %b;", {0x40003c00, 0x4000bc00}), 0x4400bc00u);
  EXPECT_EQ(evaluate32("fma.rn.bf16x2 %d, %a, %b, %c;", {0x40003f80, 0x40003f80, 0x80008000}), 0x40803f80u);
  EXPECT_EQ(evaluate32("max.f16x2 %d, %a, %b;", {0x7e003c00, 0x3c004000}), 0x3c004000u);
  EXPECT_EQ(evaluate32("max.NaN.bf16x2 %d, %a, %b;", {0x7fc03f80, 0x3f804000}), 0x7fff4000u);
  EXPECT_EQ(evaluate32("neg.bf16x2 %d, %a;", {0x3f808000}), 0xbf800000u);
  EXPECT_EQ(evaluate32("abs.f16x2 %d, %a;", {0xbc00fc00}), 0x3c007c00u);
}

TEST(Half, BF16ArithmeticOfSm90) {
  Options hopper;
  hopper.target = "sm_90";
  EXPECT_EQ(evaluate("add.rn.bf16x2 %d, %a, %b;", 4, {b32(0x3f803f80), b32(0x3f804000)}, hopper), 0x40004040u);
  EXPECT_EQ(evaluate("mul.rn.bf16 %d, %a, %b;", 2, {b16(0x4000), b16(0x4040)}, hopper), 0x40c0u);
}

TEST(Half, Approximations) {
  EXPECT_EQ(evaluate("ex2.approx.f16 %d, %a;", 2, {b16(0x4000)}), 0x4400u);
  EXPECT_EQ(evaluate("tanh.approx.f16 %d, %a;", 2, {b16(0x7c00)}), 0x3c00u);
  EXPECT_EQ(evaluate32("ex2.approx.f16x2 %d, %a;", {0x4000bc00}), 0x44003800u);
}
