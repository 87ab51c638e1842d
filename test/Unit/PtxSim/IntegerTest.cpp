//===- IntegerTest.cpp - Integer arithmetic, by hand ----------------------===//

#include "Harness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

TEST(Integer, AdditionWraps) {
  EXPECT_EQ(evaluate32("add.s32 %d, %a, %b;", {0x7fffffff, 1}), 0x80000000u);
  EXPECT_EQ(evaluate32("add.u32 %d, %a, 5;", {0xfffffffe}), 3u);
  EXPECT_EQ(evaluate32("sub.s32 %d, %a, %b;", {0x80000000, 1}), 0x7fffffffu);
  EXPECT_EQ(evaluate("add.s16 %d, %a, %b;", 2, {b16(0xffff), b16(3)}), 2u);
  EXPECT_EQ(evaluate("add.s64 %d, %a, %b;", 8, {b64(~0ull), b64(2)}), 1u);
  EXPECT_EQ(evaluate("sub.u64 %d, %a, %b;", 8, {b64(0), b64(1)}), ~0ull);
}

TEST(Integer, SaturatingAddition) {
  EXPECT_EQ(evaluate32("add.sat.s32 %d, %a, %b;", {0x7fffffff, 1}), 0x7fffffffu);
  EXPECT_EQ(evaluate32("sub.sat.s32 %d, %a, %b;", {0x80000000, 1}), 0x80000000u);
}

TEST(Integer, CarriesPropagate) {
  EXPECT_EQ(evaluate32("add.cc.u32 %x, %a, %b;\naddc.u32 %d, 5, 6;", {0xffffffff, 1}), 12u);
  EXPECT_EQ(evaluate32("add.cc.u32 %x, %a, %b;\naddc.u32 %d, 5, 6;", {0xffffffff, 0}), 11u);
  EXPECT_EQ(evaluate32("add.cc.u32 %x, %a, %b;\naddc.cc.u32 %x, -1, 0;\naddc.u32 %d, 0, 0;", {0xffffffff, 1}), 1u);
  EXPECT_EQ(evaluate32("sub.cc.u32 %x, %a, %b;\nsubc.u32 %d, 5, 1;", {0, 1}), 3u);
  EXPECT_EQ(evaluate32("mad.lo.cc.u32 %x, %a, %b, 1;\nmadc.hi.u32 %d, %a, %b, 5;", {0xffffffff, 1}), 6u);
  EXPECT_EQ(evaluate32("mad.hi.cc.s32 %x, %a, %b, 1;\naddc.u32 %d, 0, 0;", {0xffffffff, 1}), 1u);
  EXPECT_EQ(evaluate32("mad.lo.cc.u32 %x, %a, %b, 0;\nmadc.hi.cc.u32 %x, %a, %b, 1;\naddc.u32 %d, 7, 0;",
                       {0xffffffff, 0xffffffff}),
            7u);
  EXPECT_EQ(evaluate("add.cc.s64 %lx, %a, %b;\naddc.s64 %d, 0, 0;", 8, {b64(~0ull), b64(2)}), 1u);
}

TEST(Integer, LowHighAndWideProducts) {
  EXPECT_EQ(evaluate32("mul.lo.s32 %d, %a, %b;", {0x10001, 0x10001}), 0x20001u);
  EXPECT_EQ(evaluate32("mul.hi.u32 %d, %a, %b;", {0xffffffff, 0xffffffff}), 0xfffffffeu);
  EXPECT_EQ(evaluate32("mul.hi.s32 %d, %a, %b;", {0xffffffff, 5}), 0xffffffffu);
  EXPECT_EQ(evaluate("mul.wide.s32 %d, %a, %b;", 8, {b32(0xffffffff), b32(5)}), uint64_t(-5));
  EXPECT_EQ(evaluate("mul.wide.u32 %d, %a, %b;", 8, {b32(0xffffffff), b32(5)}), 0x4fffffffbull);
  EXPECT_EQ(evaluate("mul.wide.u16 %d, %a, %b;", 4, {b16(0xffff), b16(0xffff)}), 0xfffe0001u);
  EXPECT_EQ(evaluate("mul.lo.s16 %d, %a, %b;", 2, {b16(0x101), b16(0x101)}), 0x201u);
  EXPECT_EQ(evaluate("mul.hi.u64 %d, %a, %b;", 8, {b64(~0ull), b64(~0ull)}), 0xfffffffffffffffeull);
  EXPECT_EQ(evaluate("mul.hi.s64 %d, %a, %b;", 8, {b64(~0ull), b64(3)}), ~0ull);
  EXPECT_EQ(evaluate32("mul24.lo.s32 %d, %a, %b;", {0x00ffffff, 3}), uint32_t(-3));
  EXPECT_EQ(evaluate32("mul24.lo.u32 %d, %a, %b;", {0xff000002, 3}), 6u);
}

TEST(Integer, MultiplyAdd) {
  EXPECT_EQ(evaluate32("mad.lo.s32 %d, %a, %b, %c;", {7, 6, 0xffffffff}), 41u);
  EXPECT_EQ(evaluate32("mad.hi.u32 %d, %a, %b, %c;", {0x80000000, 4, 1}), 3u);
  EXPECT_EQ(evaluate32("mad.hi.sat.s32 %d, %a, %b, %c;", {0x7fffffff, 4, 0x7fffffff}), 0x7fffffffu);
  EXPECT_EQ(evaluate("mad.wide.s32 %d, %a, %b, %c;", 8, {b32(0xfffffffe), b32(3), b64(10)}), 4u);
  EXPECT_EQ(evaluate("mad.lo.u64 %d, %a, %b, %c;", 8, {b64(1ull << 33), b64(2), b64(1)}), (1ull << 34) + 1);
}

TEST(Integer, DivisionTruncates) {
  EXPECT_EQ(evaluate32("div.s32 %d, %a, %b;", {uint32_t(-7), 2}), uint32_t(-3));
  EXPECT_EQ(evaluate32("rem.s32 %d, %a, %b;", {uint32_t(-7), 2}), uint32_t(-1));
  EXPECT_EQ(evaluate32("div.u32 %d, %a, %b;", {0xfffffff9, 2}), 0x7ffffffcu);
  EXPECT_EQ(evaluate32("rem.u32 %d, %a, %b;", {17, 5}), 2u);
  EXPECT_EQ(evaluate32("div.s32 %d, %a, %b;", {0x80000000, 0xffffffff}), 0x80000000u);
  EXPECT_EQ(evaluate32("rem.s32 %d, %a, %b;", {0x80000000, 0xffffffff}), 0u);
  EXPECT_EQ(evaluate("div.s64 %d, %a, %b;", 8, {b64(uint64_t(-9)), b64(2)}), uint64_t(-4));
}

TEST(Integer, DivisionByZeroIsAnError) {
  Finding finding = findingOf("div.u32 %d, %a, %b;", {b32(1), b32(0)});
  EXPECT_EQ(finding.kind, FindingKind::Arithmetic);
  EXPECT_EQ(finding.source, "div.u32 %d, %a, %b;");
}

TEST(Integer, DivisionByZeroInInactiveLanesIsIgnored) {
  EXPECT_EQ(evaluate("setp.eq.u32 %p, %lane, 0;\nmov.u32 %d, 0;\n@%p div.u32 %d, 12, %b;", 4,
                     {b32(0), lanes(4, [](unsigned lane) { return lane == 0 ? 4 : 0; })}),
            3u);
}

TEST(Integer, MinAndMax) {
  EXPECT_EQ(evaluate32("min.s32 %d, %a, %b;", {0xffffffff, 1}), 0xffffffffu);
  EXPECT_EQ(evaluate32("min.u32 %d, %a, %b;", {0xffffffff, 1}), 1u);
  EXPECT_EQ(evaluate32("max.s32 %d, %a, %b;", {0xffffffff, 1}), 1u);
  EXPECT_EQ(evaluate("max.s64 %d, %a, %b;", 8, {b64(~0ull), b64(1)}), 1u);
  EXPECT_EQ(evaluate("min.u16 %d, %a, %b;", 2, {b16(0xffff), b16(7)}), 7u);
}

TEST(Integer, AbsoluteAndNegative) {
  EXPECT_EQ(evaluate32("abs.s32 %d, %a;", {uint32_t(-5)}), 5u);
  EXPECT_EQ(evaluate32("abs.s32 %d, %a;", {0x80000000}), 0x80000000u);
  EXPECT_EQ(evaluate32("neg.s32 %d, %a;", {5}), uint32_t(-5));
  EXPECT_EQ(evaluate32("sad.u32 %d, %a, %b, %c;", {2, 5, 10}), 13u);
  EXPECT_EQ(evaluate32("sad.s32 %d, %a, %b, %c;", {0xffffffff, 1, 0}), 2u);
}
