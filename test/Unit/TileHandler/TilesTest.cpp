//===- TilesTest.cpp - AMX instructions in software ----------------------------===//
//
// Decodes what the assembler encodes, and provokes each check.
//
//===----------------------------------------------------------------------===//
#include "TileHandler/Tiles.h"
#include "gtest/gtest.h"
#include <array>
#include <cstring>
#include <string>

using namespace tilehandler;

namespace {

using Config = std::array<uint8_t, configBytes>;

Config fullTiles() {
  Config config = {1};
  for (unsigned tile = 0; tile < numTiles; ++tile)
    config[16 + 2 * tile] = maxRowBytes, config[48 + tile] = maxRows;
  return config;
}

//===----------------------------------------------------------------------===//
// Decoding
//===----------------------------------------------------------------------===//

// Each instruction ends at the next label.
asm(R"(
  .pushsection .rodata
decoded_code:
1: ldtilecfg 0x120(%rsp)
2: ldtilecfg (%r13,%r9,8)
3: sttilecfg 0x10(%rip)
4: tileloadd (%rsi), %tmm7
5: tileloadd -0x40(%r12,%r13,4), %tmm3
6: tileloaddt1 0x12345678(,%r8,2), %tmm1
7: tilestored %tmm5, (%rbp,%rax)
8: tilezero %tmm6
9: tilerelease
10: tdpbf16ps %tmm7, %tmm2, %tmm5
11: tdpbssd %tmm1, %tmm2, %tmm3
12: tdpbsud %tmm1, %tmm2, %tmm3
13: tdpbusd %tmm1, %tmm2, %tmm3
14: tdpbuud %tmm1, %tmm2, %tmm3
15: vpdpbusd %ymm1, %ymm2, %ymm3
16: ud2
decoded_places:
  .long 1b - decoded_code, 2b - decoded_code, 3b - decoded_code, 4b - decoded_code, 5b - decoded_code
  .long 6b - decoded_code, 7b - decoded_code, 8b - decoded_code, 9b - decoded_code, 10b - decoded_code
  .long 11b - decoded_code, 12b - decoded_code, 13b - decoded_code, 14b - decoded_code, 15b - decoded_code
  .long 16b - decoded_code
  .popsection
)");
extern "C" const uint8_t decoded_code[];
extern "C" const uint32_t decoded_places[];

/// Registers with the value 0x1000 times their number, plus 1.
struct Registers {
  Registers() {
    for (unsigned i = 0; i < 16; ++i)
      values[i] = 0x1000 * i + 1;
  }
  uint64_t values[16];
};

TEST(TilesTest, DecodesWhatTheAssemblerEncodes) {
  auto next = [](unsigned i) { return reinterpret_cast<uintptr_t>(decoded_code) + decoded_places[i + 1]; };
  const struct {
    Op op;
    unsigned dest, lhs, rhs;
    uintptr_t address;
    intptr_t stride;
  } expected[] = {
      {Op::LoadConfig, 0, 0, 0, 0x4121, 0},
      {Op::LoadConfig, 0, 0, 0, 0xd001 + 8 * 0x9001, 0},
      {Op::StoreConfig, 0, 0, 0, next(2) + 0x10, 0},
      {Op::Load, 7, 0, 0, 0x6001, 0},
      {Op::Load, 3, 0, 0, 0xc001 - 0x40, 4 * 0xd001},
      {Op::Load, 1, 0, 0, 0x12345678, 2 * 0x8001},
      {Op::Store, 5, 0, 0, 0x5001, 1},
      {Op::Zero, 6, 0, 0, 0, 0},
      {Op::Release, 0, 0, 0, 0, 0},
      {Op::DotBF16, 5, 2, 7, 0, 0},
      {Op::DotSSD, 3, 2, 1, 0, 0},
      {Op::DotSUD, 3, 2, 1, 0, 0},
      {Op::DotUSD, 3, 2, 1, 0, 0},
      {Op::DotUUD, 3, 2, 1, 0, 0},
  };
  for (unsigned i = 0; i < std::size(expected); ++i) {
    std::optional<Instruction> found = decode(decoded_code + decoded_places[i], Registers().values);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->op, expected[i].op) << i;
    EXPECT_EQ(found->bytes, decoded_places[i + 1] - decoded_places[i]) << i;
    EXPECT_EQ(found->address, expected[i].address) << i;
    EXPECT_EQ(found->stride, expected[i].stride) << i;
    if (found->op >= Op::Zero) {
      EXPECT_EQ(found->dest, expected[i].dest) << i;
    }
    if (found->op >= Op::DotBF16) {
      EXPECT_EQ(found->lhs, expected[i].lhs) << i;
      EXPECT_EQ(found->rhs, expected[i].rhs) << i;
    }
  }
  for (unsigned i : {14, 15})
    EXPECT_FALSE(decode(decoded_code + decoded_places[i], Registers().values)) << i;
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

class ChecksTest : public testing::Test {
protected:
  std::string execute(Instruction instruction) {
    const char *message = unit.execute(instruction);
    return message ? message : "";
  }
  std::string configure(const Config &config) { return execute(at(Op::LoadConfig, config.data(), 0)); }
  std::string configureWith(unsigned byte, uint8_t value) {
    Config config = fullTiles();
    config[byte] = value;
    return configure(config);
  }
  static Instruction at(Op op, const void *memory, intptr_t stride, unsigned tile = 0) {
    return {op, 5, tile, 0, 0, reinterpret_cast<uintptr_t>(memory), stride};
  }
  static Instruction dot(unsigned dest, unsigned lhs, unsigned rhs) { return {Op::DotBF16, 5, dest, lhs, rhs, 0, 0}; }
  static Instruction zero(unsigned tile) { return {Op::Zero, 5, tile, 0, 0, 0, 0}; }

  TileUnit unit;
  uint8_t memory[maxRows * maxRowBytes] = {};
};

TEST_F(ChecksTest, WrongConfigurations) {
  EXPECT_EQ(configure(fullTiles()), "");
  EXPECT_EQ(configureWith(0, 2), "palette 2, expected 1");
  EXPECT_EQ(configureWith(0, 0), "palette 0, expected 1");
  EXPECT_EQ(configureWith(1, 3), "start row 3, expected 0");
  EXPECT_EQ(configureWith(2, 1), "reserved byte 2 of the configuration is 1, expected 0");
  EXPECT_EQ(configureWith(32, 64), "reserved byte 32 of the configuration is 64, expected 0");
  EXPECT_EQ(configureWith(56, 16), "reserved byte 56 of the configuration is 16, expected 0");
  EXPECT_EQ(configureWith(50, 17), "tmm2 with 17 rows of 64 bytes, expected at most 16 of 64, and both or none 0");
  EXPECT_EQ(configureWith(22, 65), "tmm3 with 16 rows of 65 bytes, expected at most 16 of 64, and both or none 0");
  EXPECT_EQ(configureWith(23, 1), "tmm3 with 16 rows of 320 bytes, expected at most 16 of 64, and both or none 0");
  EXPECT_EQ(configureWith(55, 0), "tmm7 with 0 rows of 64 bytes, expected at most 16 of 64, and both or none 0");
}

TEST_F(ChecksTest, RegistersThatAreNotConfigured) {
  EXPECT_EQ(execute(zero(0)), "the tile registers are not configured");
  Config config = fullTiles();
  config[16] = config[48] = 0;
  EXPECT_EQ(configure(config), "");
  EXPECT_EQ(execute(zero(0)), "tmm0 is not configured");
  EXPECT_EQ(execute(zero(8)), "there is no tmm8");
  EXPECT_EQ(execute(zero(1)), "");
  EXPECT_EQ(execute(at(Op::Release, nullptr, 0)), "");
  EXPECT_EQ(execute(at(Op::Load, memory, 64, 1)), "the tile registers are not configured");
}

TEST_F(ChecksTest, RegistersThatWereNotWritten) {
  EXPECT_EQ(configure(fullTiles()), "");
  EXPECT_EQ(execute(at(Op::Store, memory, 64)), "tmm0 was not written since ldtilecfg");
  EXPECT_EQ(execute(zero(0)) + execute(zero(1)), "");
  EXPECT_EQ(execute(dot(0, 1, 2)), "tmm2 was not written since ldtilecfg");
  EXPECT_EQ(execute(at(Op::Load, memory, 64, 2)), "");
  EXPECT_EQ(execute(dot(0, 1, 2)), "");
}

TEST_F(ChecksTest, OperandsOfProducts) {
  auto dotOf = [&](unsigned byte, uint8_t value) {
    std::string message = configureWith(byte, value);
    for (unsigned tile = 0; tile < 3; ++tile)
      message += execute(zero(tile));
    return message + execute(dot(0, 1, 2));
  };
  EXPECT_EQ(dotOf(48, 16), "");
  EXPECT_EQ(execute(dot(1, 1, 2)), "tmm1, tmm1 and tmm2 are not three registers");
  EXPECT_EQ(execute(dot(2, 1, 2)), "tmm2, tmm1 and tmm2 are not three registers");
  EXPECT_EQ(execute(dot(0, 2, 2)), "tmm0, tmm2 and tmm2 are not three registers");
  EXPECT_EQ(dotOf(48, 15), "15 rows of 64 bytes += 16 of 64 * 16 of 64: the shapes differ");
  EXPECT_EQ(dotOf(18, 60), "16 rows of 64 bytes += 16 of 60 * 16 of 64: the shapes differ");
  EXPECT_EQ(dotOf(20, 60), "16 rows of 64 bytes += 16 of 64 * 16 of 60: the shapes differ");
  EXPECT_EQ(dotOf(18, 62), "rows are not a multiple of 4 bytes");
}

TEST_F(ChecksTest, StoresThatOverlap) {
  EXPECT_EQ(configure(fullTiles()) + execute(zero(0)), "");
  EXPECT_EQ(execute(at(Op::Store, memory, 60)), "rows of 64 bytes are stored 60 bytes apart");
  EXPECT_EQ(execute(at(Op::Store, memory + sizeof(memory) - 64, -64)), "");
}

TEST_F(ChecksTest, CountsInstructionsAndPartialTiles) {
  EXPECT_EQ(configure(fullTiles()), "");
  EXPECT_EQ(unit.partialTiles(), 0u);
  EXPECT_EQ(configureWith(48, 8), "");
  EXPECT_EQ(unit.partialTiles(), 1u);
  EXPECT_EQ(execute(zero(0)) + execute(zero(0)), "");
  EXPECT_NE(execute(dot(0, 1, 2)), "");
  EXPECT_EQ(unit.count(Op::LoadConfig), 2u);
  EXPECT_EQ(unit.count(Op::Zero), 2u);
  EXPECT_EQ(unit.count(Op::DotBF16), 0u); // it was refused
}

} // namespace
