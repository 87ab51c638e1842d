//===- ConvertTest.cpp - Conversions, by hand -----------------------------===//

#include "Harness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

TEST(Convert, BetweenIntegers) {
  EXPECT_EQ(evaluate("cvt.u64.u32 %d, %a;", 8, {b32(0xffffffff)}), 0xffffffffull);
  EXPECT_EQ(evaluate("cvt.s64.s32 %d, %a;", 8, {b32(0xffffffff)}), ~0ull);
  EXPECT_EQ(evaluate("cvt.u32.u64 %d, %a;", 4, {b64(0x123456789abcdef0)}), 0x9abcdef0u);
  EXPECT_EQ(evaluate("cvt.u16.u32 %d, %a;", 2, {b32(0x12345678)}), 0x5678u);
  EXPECT_EQ(evaluate("cvt.s32.s16 %d, %a;", 4, {b16(0x8000)}), 0xffff8000u);
  EXPECT_EQ(evaluate("cvt.s32.s8 %d, %a;", 4, {b32(0x1280)}), 0xffffff80u);
  EXPECT_EQ(evaluate("cvt.u32.u8 %d, %a;", 4, {b32(0x1280)}), 0x80u);
  EXPECT_EQ(evaluate("cvt.s16.s8 %d, %a;", 2, {b16(0x00ff)}), 0xffffu);
  EXPECT_EQ(evaluate("cvt.sat.s8.s32 %d, %a;", 4, {b32(1000)}), 127u);
  EXPECT_EQ(evaluate("cvt.sat.u8.s32 %d, %a;", 4, {b32(uint32_t(-3))}), 0u);
  EXPECT_EQ(evaluate("cvt.sat.s32.u32 %d, %a;", 4, {b32(0xffffffff)}), 0x7fffffffu);
}

TEST(Convert, FloatToIntegerRoundsAndClamps) {
  EXPECT_EQ(evaluate("cvt.rzi.s32.f32 %d, %a;", 4, {f32(-2.7f)}), uint32_t(-2));
  EXPECT_EQ(evaluate("cvt.rmi.s32.f32 %d, %a;", 4, {f32(-2.1f)}), uint32_t(-3));
  EXPECT_EQ(evaluate("cvt.rpi.s32.f32 %d, %a;", 4, {f32(-2.7f)}), uint32_t(-2));
  EXPECT_EQ(evaluate("cvt.rni.s32.f32 %d, %a;", 4, {f32(2.5f)}), 2u);
  EXPECT_EQ(evaluate("cvt.rni.s32.f32 %d, %a;", 4, {f32(3.5f)}), 4u);
  EXPECT_EQ(evaluate("cvt.rzi.s32.f32 %d, %a;", 4, {f32(1e20f)}), 0x7fffffffu);
  EXPECT_EQ(evaluate("cvt.rzi.s32.f32 %d, %a;", 4, {f32(-1e20f)}), 0x80000000u);
  EXPECT_EQ(evaluate("cvt.rzi.u32.f32 %d, %a;", 4, {f32(-5)}), 0u);
  EXPECT_EQ(evaluate("cvt.rzi.u32.f32 %d, %a;", 4, {f32(1e20f)}), 0xffffffffu);
  EXPECT_EQ(evaluate("cvt.rzi.s32.f32 %d, %a;", 4, {b32(0x7fc00000)}), 0u);
  EXPECT_EQ(evaluate("cvt.rzi.s64.f32 %d, %a;", 8, {b32(0x7fc00000)}), 1ull << 63);
  EXPECT_EQ(evaluate("cvt.rzi.s32.f64 %d, %a;", 4, {b64(0x7ff8000000000000)}), 0x80000000u);
  EXPECT_EQ(evaluate("cvt.rzi.s64.f32 %d, %a;", 8, {f32(-0x1p40f)}), uint64_t(-(1ll << 40)));
}

TEST(Convert, IntegerToFloat) {
  EXPECT_EQ(evaluate("cvt.rn.f32.s32 %d, %a;", 4, {b32(uint32_t(-3))}), 0xc0400000u);
  EXPECT_EQ(evaluate("cvt.rn.f32.u32 %d, %a;", 4, {b32(0xffffffff)}), 0x4f800000u);
  EXPECT_EQ(evaluate("cvt.rz.f32.u32 %d, %a;", 4, {b32(0xffffffff)}), 0x4f7fffffu);
  EXPECT_EQ(evaluate("cvt.rn.f32.s64 %d, %a;", 4, {b64((1ull << 40) + 1)}), 0x53800000u);
  EXPECT_EQ(evaluate("cvt.rn.f64.s32 %d, %a;", 8, {b32(7)}), 0x401c000000000000u);
  EXPECT_EQ(evaluate("cvt.rn.f16.s32 %d, %a;", 2, {b32(2049)}), 0x6800u);
  EXPECT_EQ(evaluate("cvt.rn.f16.u16 %d, %a;", 2, {b16(3)}), 0x4200u);
}

TEST(Convert, BetweenFloats) {
  EXPECT_EQ(evaluate("cvt.f64.f32 %d, %a;", 8, {f32(1.5f)}), 0x3ff8000000000000u);
  EXPECT_EQ(evaluate("cvt.rn.f32.f64 %d, %a;", 4, {f64(1 + 0x1p-24)}), 0x3f800000u);
  EXPECT_EQ(evaluate("cvt.rp.f32.f64 %d, %a;", 4, {f64(1 + 0x1p-24)}), 0x3f800001u);
  EXPECT_EQ(evaluate("cvt.f32.f16 %d, %a;", 4, {b16(0x0001)}), 0x33800000u);
  EXPECT_EQ(evaluate("cvt.f32.bf16 %d, %a;", 4, {b16(0x3f81)}), 0x3f810000u);
  EXPECT_EQ(evaluate("cvt.rn.f16.f32 %d, %a;", 2, {f32(65520)}), 0x7c00u);
  EXPECT_EQ(evaluate("cvt.rz.f16.f32 %d, %a;", 2, {f32(65520)}), 0x7bffu);
  EXPECT_EQ(evaluate("cvt.rn.f16.f32 %d, %a;", 2, {f32(0x1p-25f)}), 0u);
  EXPECT_EQ(evaluate("cvt.rn.f16.f32 %d, %a;", 2, {f32(0x1.8p-25f)}), 1u);
  EXPECT_EQ(evaluate("cvt.rn.bf16.f32 %d, %a;", 2, {b32(0x3f808000)}), 0x3f80u);
  EXPECT_EQ(evaluate("cvt.rn.bf16.f32 %d, %a;", 2, {b32(0x3f818000)}), 0x3f82u);
  EXPECT_EQ(evaluate("cvt.rz.bf16.f32 %d, %a;", 2, {b32(0x3f81ffff)}), 0x3f81u);
  EXPECT_EQ(evaluate("cvt.rn.bf16.f32 %d, %a;", 2, {b32(0xffc00000)}), 0x7fffu);
  EXPECT_EQ(evaluate("cvt.rn.relu.f16.f32 %d, %a;", 2, {f32(-3)}), 0u);
  EXPECT_EQ(evaluate("cvt.sat.f32.f32 %d, %a;", 4, {f32(3)}), 0x3f800000u);
}

TEST(Convert, RoundsToIntegralFloats) {
  EXPECT_EQ(evaluate("cvt.rni.f32.f32 %d, %a;", 4, {f32(-0.5f)}), 0x80000000u);
  EXPECT_EQ(evaluate("cvt.rmi.f32.f32 %d, %a;", 4, {f32(-0.5f)}), 0xbf800000u);
  EXPECT_EQ(evaluate("cvt.rpi.f32.f32 %d, %a;", 4, {f32(1.2f)}), 0x40000000u);
  EXPECT_EQ(evaluate("cvt.rzi.f32.f32 %d, %a;", 4, {f32(-1.9f)}), 0xbf800000u);
  EXPECT_EQ(evaluate("cvt.rzi.ftz.f32.f32 %d, %a;", 4, {b32(0x80000001)}), 0x80000000u);
}

TEST(Convert, PairsStoreTheFirstOperandInTheUpperHalf) {
  EXPECT_EQ(evaluate("cvt.rn.bf16x2.f32 %d, %a, %b;", 4, {f32(1), f32(2)}), 0x3f804000u);
  EXPECT_EQ(evaluate("cvt.rn.f16x2.f32 %d, %a, %b;", 4, {f32(1), f32(2)}), 0x3c004000u);
  EXPECT_EQ(evaluate("cvt.rz.bf16x2.f32 %d, %a, %b;", 4, {b32(0x3f80ffff), f32(2)}), 0x3f804000u);
  EXPECT_EQ(evaluate("cvt.rn.relu.f16x2.f32 %d, %a, %b;", 4, {f32(-1), f32(2)}), 0x00004000u);
}

TEST(Convert, Tf32RoundsTiesAway) {
  EXPECT_EQ(evaluate("cvt.rna.tf32.f32 %d, %a;", 4, {b32(0x3f801000)}), 0x3f802000u);
  EXPECT_EQ(evaluate("cvt.rna.tf32.f32 %d, %a;", 4, {b32(0x3f800fff)}), 0x3f800000u);
}

TEST(Convert, EightBitFloats) {
  Options hopper;
  hopper.target = "sm_90";
  EXPECT_EQ(evaluate("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", 2, {f32(1), f32(1000)}, hopper), 0x387eu);
  EXPECT_EQ(evaluate("cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", 2, {f32(-1e9f), f32(0x1p-16f)}, hopper), 0xfb01u);
  EXPECT_EQ(evaluate("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", 2, {b32(0x7fc00000), f32(0x1p-9f)}, hopper), 0x7f01u);
  EXPECT_EQ(evaluate("cvt.rn.f16x2.e4m3x2 %d, %a;", 4, {b16(0x387e)}, hopper), 0x3c005f00u);
  EXPECT_EQ(evaluate("cvt.rn.f16x2.e5m2x2 %d, %a;", 4, {b16(0xfb01)}, hopper), 0xfb000100u);
}

TEST(Convert, NarrowingRequiresARoundingModifier) {
  EXPECT_EQ(findingOf("cvt.f32.s32 %d, %a;", {b32(1)}, {.forPtxas = false}).kind, FindingKind::Unsupported);
  EXPECT_EQ(findingOf("cvt.s32.f32 %d, %a;", {b32(1)}, {.forPtxas = false}).kind, FindingKind::Unsupported);
}
