//===- BitsTest.cpp - Logic, shifts and bit fields, by hand ---------------===//

#include "Harness.h"

using namespace saccade::ptxsim;
using namespace saccade::ptxsim::test;

TEST(Bits, Logic) {
  EXPECT_EQ(evaluate32("and.b32 %d, %a, %b;", {0xff00ff00, 0x0ff00ff0}), 0x0f000f00u);
  EXPECT_EQ(evaluate32("or.b32 %d, %a, %b;", {0xff00ff00, 0x0ff00ff0}), 0xfff0fff0u);
  EXPECT_EQ(evaluate32("xor.b32 %d, %a, -1;", {0x12345678}), 0xedcba987u);
  EXPECT_EQ(evaluate32("not.b32 %d, %a;", {0xffff0000}), 0xffffu);
  EXPECT_EQ(evaluate32("cnot.b32 %d, %a;", {0}), 1u);
  EXPECT_EQ(evaluate32("cnot.b32 %d, %a;", {4}), 0u);
  EXPECT_EQ(evaluate("and.b16 %d, %a, %b;", 2, {b16(0xf0f0), b16(0xff)}), 0xf0u);
  EXPECT_EQ(evaluate("or.b64 %d, %a, %b;", 8, {b64(1ull << 40), b64(1)}), (1ull << 40) + 1);
}

TEST(Bits, PredicateLogic) {
  std::string begin = "setp.ne.b32 %p, %a, 0;\nsetp.ne.b32 %q, %b, 0;\n", end = "\nselp.b32 %d, 1, 0, %p;";
  EXPECT_EQ(evaluate32(begin + "and.pred %p, %p, %q;" + end, {1, 0}), 0u);
  EXPECT_EQ(evaluate32(begin + "or.pred %p, %p, %q;" + end, {1, 0}), 1u);
  EXPECT_EQ(evaluate32(begin + "xor.pred %p, %p, %q;" + end, {1, 1}), 0u);
  EXPECT_EQ(evaluate32(begin + "not.pred %p, %q;" + end, {1, 0}), 1u);
}

TEST(Bits, ShiftsBeyondTheWidth) {
  EXPECT_EQ(evaluate32("shl.b32 %d, %a, %b;", {1, 31}), 0x80000000u);
  EXPECT_EQ(evaluate32("shl.b32 %d, %a, %b;", {1, 32}), 0u);
  EXPECT_EQ(evaluate32("shl.b32 %d, %a, %b;", {1, 0xffffffff}), 0u);
  EXPECT_EQ(evaluate32("shr.u32 %d, %a, %b;", {0x80000000, 31}), 1u);
  EXPECT_EQ(evaluate32("shr.u32 %d, %a, %b;", {0x80000000, 40}), 0u);
  EXPECT_EQ(evaluate32("shr.s32 %d, %a, %b;", {0x80000000, 40}), 0xffffffffu);
  EXPECT_EQ(evaluate("shr.s16 %d, %a, %b;", 2, {b16(0x8000), b32(4)}), 0xf800u);
  EXPECT_EQ(evaluate("shl.b16 %d, %a, %b;", 2, {b16(1), b32(16)}), 0u);
  EXPECT_EQ(evaluate("shl.b64 %d, %a, %b;", 8, {b64(1), b32(63)}), 1ull << 63);
  EXPECT_EQ(evaluate("shr.s64 %d, %a, %b;", 8, {b64(1ull << 63), b32(64)}), ~0ull);
}

TEST(Bits, FunnelShifts) {
  // d = the upper half of {b, a} << c, or the lower half of {b, a} >> c.
  EXPECT_EQ(evaluate32("shf.l.wrap.b32 %d, %a, %b, %c;", {0x80000001, 0x12345678, 4}), 0x23456788u);
  EXPECT_EQ(evaluate32("shf.l.wrap.b32 %d, %a, %b, %c;", {0x80000001, 0x12345678, 36}), 0x23456788u);
  EXPECT_EQ(evaluate32("shf.l.clamp.b32 %d, %a, %b, %c;", {0x80000001, 0x12345678, 36}), 0x80000001u);
  EXPECT_EQ(evaluate32("shf.r.wrap.b32 %d, %a, %b, %c;", {0x80000001, 0x12345678, 4}), 0x88000000u);
  EXPECT_EQ(evaluate32("shf.r.clamp.b32 %d, %a, %b, %c;", {0x80000001, 0x12345678, 33}), 0x12345678u);
}

TEST(Bits, Counting) {
  EXPECT_EQ(evaluate32("popc.b32 %d, %a;", {0xf0f00001}), 9u);
  EXPECT_EQ(evaluate("popc.b64 %d, %a;", 4, {b64(~0ull)}), 64u);
  EXPECT_EQ(evaluate32("clz.b32 %d, %a;", {0}), 32u);
  EXPECT_EQ(evaluate32("clz.b32 %d, %a;", {0x00010000}), 15u);
  EXPECT_EQ(evaluate("clz.b64 %d, %a;", 4, {b64(1)}), 63u);
  EXPECT_EQ(evaluate32("brev.b32 %d, %a;", {0x80000003}), 0xc0000001u);
  EXPECT_EQ(evaluate("brev.b64 %d, %a;", 8, {b64(1)}), 1ull << 63);
  EXPECT_EQ(evaluate32("bfind.u32 %d, %a;", {0x00010000}), 16u);
  EXPECT_EQ(evaluate32("bfind.u32 %d, %a;", {0}), 0xffffffffu);
  EXPECT_EQ(evaluate32("bfind.s32 %d, %a;", {0xfffffff0}), 3u);
  EXPECT_EQ(evaluate32("bfind.shiftamt.u32 %d, %a;", {0x00010000}), 15u);
}

TEST(Bits, Fields) {
  EXPECT_EQ(evaluate32("bfe.u32 %d, %a, 8, 8;", {0x12345678}), 0x56u);
  EXPECT_EQ(evaluate32("bfe.s32 %d, %a, 4, 4;", {0x000000f0}), 0xffffffffu);
  EXPECT_EQ(evaluate32("bfe.s32 %d, %a, %b, %c;", {0x80000000, 28, 8}), 0xfffffff8u);
  EXPECT_EQ(evaluate32("bfe.u32 %d, %a, %b, %c;", {0x80000000, 28, 8}), 8u);
  EXPECT_EQ(evaluate32("bfe.s32 %d, %a, 3, 0;", {0xffffffff}), 0u);
  EXPECT_EQ(evaluate32("bfi.b32 %d, %a, %b, 8, 8;", {0xab, 0x11223344}), 0x1122ab44u);
  EXPECT_EQ(evaluate32("bfi.b32 %d, %a, %b, 28, 8;", {0xab, 0x11223344}), 0xb1223344u);
  EXPECT_EQ(evaluate("bfe.u64 %d, %a, 60, 8;", 8, {b64(0xa000000000000000ull)}), 10u);
}

TEST(Bits, Permutations) {
  EXPECT_EQ(evaluate32("prmt.b32 %d, %a, %b, 0x7610;", {0x33221100, 0x77665544}), 0x77661100u);
  EXPECT_EQ(evaluate32("prmt.b32 %d, %a, %b, 0x0008;", {0x332211f0, 0}), 0xf0f0f0ffu);
  EXPECT_EQ(evaluate32("prmt.b32.f4e %d, %a, %b, %c;", {0x33221100, 0x77665544, 1}), 0x44332211u);
  EXPECT_EQ(evaluate32("prmt.b32.b4e %d, %a, %b, %c;", {0x33221100, 0x77665544, 0}), 0x55667700u);
  EXPECT_EQ(evaluate32("prmt.b32.rc8 %d, %a, %b, %c;", {0x33221100, 0x77665544, 2}), 0x22222222u);
  EXPECT_EQ(evaluate32("prmt.b32.ecl %d, %a, %b, %c;", {0x33221100, 0x77665544, 2}), 0x33222222u);
  EXPECT_EQ(evaluate32("prmt.b32.ecr %d, %a, %b, %c;", {0x33221100, 0x77665544, 2}), 0x22221100u);
  EXPECT_EQ(evaluate32("prmt.b32.rc16 %d, %a, %b, %c;", {0x33221100, 0x77665544, 1}), 0x33223322u);
}

TEST(Bits, LookUpTables) {
  // a & b | c is 0xea with a = 0xf0, b = 0xcc, c = 0xaa.
  EXPECT_EQ(evaluate32("lop3.b32 %d, %a, %b, %c, 0xea;", {0xff00, 0xf0f0, 1}), 0xf001u);
  EXPECT_EQ(evaluate32("lop3.b32 %d, %a, %b, %c, 0x96;", {0xff00, 0xf0f0, 0xcccc}), 0xc33cu);
}
