//===- CompareTest.cpp - Comparisons and selections, by hand --------------===//

#include "Harness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

static bool compare(const std::string &what, const std::vector<Row> &inputs) {
  return evaluate("setp." + what + " %p, %a, %b;\nselp.b32 %d, 1, 0, %p;", 4, inputs);
}

TEST(Compare, IntegersBySign) {
  EXPECT_TRUE(compare("lt.s32", {b32(0xffffffff), b32(0)}));
  EXPECT_FALSE(compare("lt.u32", {b32(0xffffffff), b32(0)}));
  EXPECT_TRUE(compare("hi.u32", {b32(0xffffffff), b32(0)}));
  EXPECT_TRUE(compare("ls.u32", {b32(3), b32(3)}));
  EXPECT_TRUE(compare("ge.s64", {b64(0), b64(~0ull)}));
  EXPECT_TRUE(compare("eq.b16", {b16(7), b16(7)}));
  EXPECT_TRUE(compare("ne.b64", {b64(1ull << 40), b64(0)}));
  EXPECT_TRUE(compare("le.s16", {b16(0x8000), b16(0)}));
}

TEST(Compare, FloatsOrderedOrNot) {
  Row one = f32(1), two = f32(2), nan = b32(0x7fc00000);
  EXPECT_TRUE(compare("lt.f32", {one, two}));
  EXPECT_FALSE(compare("lt.f32", {one, nan}));
  EXPECT_TRUE(compare("ltu.f32", {one, nan}));
  EXPECT_FALSE(compare("ltu.f32", {two, one}));
  EXPECT_FALSE(compare("eq.f32", {nan, nan}));
  EXPECT_TRUE(compare("equ.f32", {nan, nan}));
  EXPECT_FALSE(compare("ne.f32", {nan, one}));
  EXPECT_TRUE(compare("neu.f32", {nan, one}));
  EXPECT_TRUE(compare("ne.f32", {two, one}));
  EXPECT_TRUE(compare("num.f32", {one, two}));
  EXPECT_TRUE(compare("nan.f32", {one, nan}));
  EXPECT_TRUE(compare("geu.f32", {nan, one}));
  EXPECT_TRUE(compare("gtu.f32", {two, one}));
  EXPECT_FALSE(compare("leu.f32", {two, one}));
  EXPECT_TRUE(compare("eq.f32", {b32(0x80000000), b32(0)}));
  EXPECT_FALSE(compare("eq.f32", {b32(1), b32(0)}));
  EXPECT_TRUE(compare("eq.ftz.f32", {b32(1), b32(0)}));
  EXPECT_TRUE(compare("gt.f64", {f64(2), f64(1)}));
  EXPECT_TRUE(compare("lt.f16", {b16(0x3c00), b16(0x4000)}));
  Options hopper;
  hopper.target = "sm_90";
  EXPECT_EQ(evaluate("setp.gt.bf16 %p, %a, %b;\nselp.b32 %d, 1, 0, %p;", 4, {b16(0x4000), b16(0x3f80)}, hopper), 1u);
}

TEST(Compare, CombinesWithAnotherPredicate) {
  std::string other = "setp.ne.b32 %q, %c, 0;\n", end = "\nselp.b32 %d, 1, 0, %p;";
  EXPECT_EQ(evaluate32(other + "setp.lt.and.s32 %p, %a, %b, %q;" + end, {1, 2, 0}), 0u);
  EXPECT_EQ(evaluate32(other + "setp.lt.or.s32 %p, %a, %b, %q;" + end, {3, 2, 1}), 1u);
  EXPECT_EQ(evaluate32(other + "setp.lt.xor.s32 %p, %a, %b, !%q;" + end, {1, 2, 1}), 1u);
  // The second result combines the negated comparison.
  EXPECT_EQ(evaluate32("setp.lt.s32 %q|%p, %a, %b;" + end, {1, 2}), 0u);
  EXPECT_EQ(evaluate32(other + "setp.lt.and.s32 %q|%p, %a, %b, %q;" + end, {3, 2, 1}), 1u);
}

TEST(Compare, PairsGiveTwoPredicates) {
  std::string end = "\nselp.b32 %d, 1, 0, %p;\nselp.b32 %x, 2, 0, %q;\nadd.u32 %d, %d, %x;";
  EXPECT_EQ(evaluate32("setp.lt.f16x2 %p|%q, %a, %b;" + end, {0x40003c00, 0x3c004000}), 1u);
  EXPECT_EQ(evaluate32("setp.gt.f16x2 %p|%q, %a, %b;" + end, {0x40003c00, 0x3c004000}), 2u);
}

TEST(Compare, SetWritesIntegersAndFloats) {
  EXPECT_EQ(evaluate32("set.lt.u32.s32 %d, %a, %b;", {1, 2}), 0xffffffffu);
  EXPECT_EQ(evaluate32("set.lt.f32.s32 %d, %a, %b;", {1, 2}), 0x3f800000u);
  EXPECT_EQ(evaluate32("set.gt.u32.f32 %d, %a, %b;", {0x3f800000, 0x40000000}), 0u);
}

TEST(Compare, Selections) {
  EXPECT_EQ(evaluate("setp.eq.u32 %p, %lane, 0;\nselp.b64 %d, %a, %b, %p;", 8, {b64(7), b64(8)}), 7u);
  EXPECT_EQ(evaluate("setp.ne.u32 %p, %lane, 0;\nselp.f32 %d, %a, %b, %p;", 4, {b32(7), b32(8)}), 8u);
  EXPECT_EQ(evaluate("setp.ne.u32 %p, %lane, 0;\nselp.b16 %d, 1, 2, %p;", 2, {}), 2u);
  EXPECT_EQ(evaluate32("slct.b32.s32 %d, %a, %b, %c;", {1, 2, 0xffffffff}), 2u);
  EXPECT_EQ(evaluate32("slct.b32.f32 %d, %a, %b, %c;", {1, 2, 0x80000000}), 1u);
  EXPECT_EQ(evaluate32("slct.b32.f32 %d, %a, %b, %c;", {1, 2, 0x7fc00000}), 2u);
}

TEST(Compare, UnselectedOperandMayBeUndefined) {
  EXPECT_EQ(evaluate32("setp.lt.u32 %p, %lane, 32;\nselp.b32 %d, %a, %x, %p;", {5}), 5u);
  EXPECT_EQ(findingOf("setp.lt.u32 %p, %lane, 31;\nselp.b32 %d, %a, %x, %p;", {b32(5)}).kind,
            FindingKind::Uninitialised);
}

TEST(Move, PacksAndUnpacks) {
  EXPECT_EQ(evaluate("mov.b32 %d, {%a, %b};", 4, {b16(0x1111), b16(0x2222)}), 0x22221111u);
  EXPECT_EQ(evaluate("mov.b64 %d, {%a, %b};", 8, {b32(0x1111), b32(0x2222)}), 0x222200001111ull);
  EXPECT_EQ(evaluate("mov.b32 {%hx, %d}, %a;", 2, {b32(0x22221111)}), 0x2222u);
  EXPECT_EQ(evaluate("mov.b64 {%d, %x}, %a;", 4, {b64(0x222200001111ull)}), 0x1111u);
  EXPECT_EQ(evaluate("mov.b64 {%hx, %d, %hy, %hx}, %a;", 2, {b64(0x4444333322221111ull)}), 0x2222u);
  EXPECT_EQ(evaluate("mov.b64 %d, {%a, %a, %b, %b};", 8, {b16(1), b16(2)}), 0x0002000200010001ull);
}

TEST(Move, Immediates) {
  EXPECT_EQ(evaluate("mov.u32 %d, 0x10U;", 4, {}), 16u);
  EXPECT_EQ(evaluate("mov.b32 %d, 0f40490FDB;", 4, {}), 0x40490fdbu);
  EXPECT_EQ(evaluate("mov.f32 %d, 1.5;", 4, {}), 0x3fc00000u);
  EXPECT_EQ(evaluate("mov.b64 %d, 0d3FF0000000000000;", 8, {}), 0x3ff0000000000000ull);
  EXPECT_EQ(evaluate("mov.s64 %d, -2;", 8, {}), uint64_t(-2));
  EXPECT_EQ(evaluate("mov.b16 %d, -1;", 2, {}), 0xffffu);
  EXPECT_EQ(evaluate("mov.u32 %d, WARP_SZ;", 4, {}), 32u);
}
