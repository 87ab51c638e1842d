//===- VectorDotTest.cpp - vpdpbssd in software --------------------------------===//
//
// Decodes what the assembler encodes, and executes code under the handler, and as it is on a processor that has the
// instruction.
//
//===----------------------------------------------------------------------===//
#include "TileHandler/VectorDot.h"
#include "Code.h"
#include "TileHandler/Handler.h"
#include "gtest/gtest.h"
#include <cpuid.h>
#include <iterator>
#include <random>

using namespace tilehandler;

namespace {

// Each instruction ends at the next label.
asm(R"(
  .pushsection .rodata
dotCode:
1: vpdpbssd %ymm1, %ymm2, %ymm3
2: vpdpbssd %ymm9, %ymm10, %ymm15
3: vpdpbssd (%rsi), %ymm11, %ymm0
4: vpdpbssd -0x40(%r12,%r13,4), %ymm6, %ymm8
5: vpdpbssd 0x12345678(,%r8,2), %ymm2, %ymm1
6: vpdpbssd 0x10(%rip), %ymm5, %ymm14
7: vpdpbssd %xmm1, %xmm2, %xmm3
8: vpdpbsud %ymm1, %ymm2, %ymm3
9: vpdpbuud %ymm1, %ymm2, %ymm3
10: vpdpbssds %ymm1, %ymm2, %ymm3
11: {vex} vpdpbusd %ymm1, %ymm2, %ymm3
12: ud2
dotPlaces:
  .long 1b - dotCode, 2b - dotCode, 3b - dotCode, 4b - dotCode, 5b - dotCode, 6b - dotCode, 7b - dotCode
  .long 8b - dotCode, 9b - dotCode, 10b - dotCode, 11b - dotCode, 12b - dotCode

# (registers, memory): all registers are loaded, used by two products, and stored.
productsCode:
  .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
  vmovdqu 32 * \number(%rdi), %ymm\number
  .endr
  vpdpbssd %ymm9, %ymm2, %ymm13
  vpdpbssd 96(%rsi), %ymm13, %ymm5
  .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
  vmovdqu %ymm\number, 32 * \number(%rdi)
  .endr
  vzeroupper
  ret
productsEnd:

# (sums): the upper halves of all registers are 0 before the product.
freshCode:
  vzeroall
  vpdpbssd (%rsi), %ymm1, %ymm0
  vmovdqu %ymm0, (%rdi)
  vzeroupper
  ret
freshEnd:
  .popsection
)");
extern "C" const uint8_t dotCode[], productsCode[], productsEnd[], freshCode[], freshEnd[];
extern "C" const uint32_t dotPlaces[];

TEST(VectorDotTest, DecodesWhatTheAssemblerEncodes) {
  uint64_t registers[16];
  for (unsigned i = 0; i < 16; ++i)
    registers[i] = 0x1000 * i + 1;
  const struct {
    unsigned dest, lhs, rhs;
    uintptr_t address;
  } expected[] = {
      {3, 2, 1, 0},
      {15, 10, 9, 0},
      {0, 11, 0, 0x6001},
      {8, 6, 0, 0xc001 - 0x40 + 4 * 0xd001},
      {1, 2, 0, 0x12345678 + 2 * 0x8001},
      {14, 5, 0, reinterpret_cast<uintptr_t>(dotCode) + dotPlaces[6] + 0x10},
  };
  for (unsigned i = 0; i < std::size(expected); ++i) {
    std::optional<VectorDot> found = decodeVectorDot(dotCode + dotPlaces[i], registers);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->bytes, dotPlaces[i + 1] - dotPlaces[i]) << i;
    EXPECT_EQ(found->dest, expected[i].dest) << i;
    EXPECT_EQ(found->lhs, expected[i].lhs) << i;
    EXPECT_EQ(found->rhs, expected[i].rhs) << i;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found->memory), expected[i].address) << i;
  }
  for (unsigned i = std::size(expected); i < 12; ++i)
    EXPECT_FALSE(decodeVectorDot(dotCode + dotPlaces[i], registers)) << i;
}

using VectorFile = std::array<VectorRegisters::Register, 16>;

bool hasInstruction() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && d >> 4 & 1;
}

VectorRegisters::Register product(VectorRegisters::Register sums, const VectorRegisters::Register &lhs,
                                  const VectorRegisters::Register &rhs) {
  for (unsigned i = 0; i < 8; ++i) {
    int64_t sum = int32_t(sums[i]);
    for (unsigned byte = 0; byte < 4; ++byte)
      sum += int64_t(int8_t(lhs[i] >> 8 * byte)) * int8_t(rhs[i] >> 8 * byte);
    sums[i] = uint32_t(sum);
  }
  return sums;
}

TEST(VectorDotTest, ProductsAreThoseOfPlainLoops) {
  install();
  std::mt19937 random(1);
  for (bool isTrapped : {true, false}) {
    if (!isTrapped && !hasInstruction())
      continue;
    Code code(productsCode, productsEnd, isTrapped);
    for (unsigned round = 0; round < 200; ++round) {
      VectorFile before, memory;
      // Random bits; in every fourth round products of -128 and sums that wrap around.
      for (auto *all : {&before, &memory})
        for (auto &each : *all)
          for (uint32_t &lane : each)
            lane = round % 4 == 0 ? (random() % 2 ? 0x80808080u : 0x7fffffffu) : uint32_t(random());
      VectorFile expected = before, found = before;
      expected[13] = product(before[13], before[2], before[9]);
      expected[5] = product(before[5], expected[13], memory[3]);
      code(found.data(), memory.data());
      ASSERT_EQ(found, expected) << "round " << round << (isTrapped ? " in software" : " on the processor");
    }
  }
}

TEST(VectorDotTest, RegistersInTheirInitialStateAreZero) {
  install();
  Code code(freshCode, freshEnd, true);
  VectorFile operands;
  operands[0].fill(0x01020304);
  VectorRegisters::Register found;
  found.fill(7);
  code(found.data(), operands.data());
  EXPECT_EQ(found, VectorRegisters::Register{});
}

} // namespace
