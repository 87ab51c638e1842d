//===- HandlerTest.cpp - Machine code under the handler ------------------------===//
//
// Executes code in two forms: as it is on a processor with AMX, and with VEX.W = 1 under the handler.
// On a processor without AMX, a digest of the products is compared with that of one that has it.
//
//===----------------------------------------------------------------------===//
#include "TileHandler/Handler.h"
#include "Code.h"
#include "gtest/gtest.h"
#include <array>
#include <bit>
#include <cmath>
#include <cpuid.h>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace tilehandler;

namespace {

/// A function (configuration, lhs, rhs, sums, bytes between rows) that multiplies two tiles.
#define PRODUCT(name)                                                                                                  \
  asm(".pushsection .rodata\nproduct_" #name ":\n"                                                                     \
      "  ldtilecfg (%rdi)\n  tileloadd (%rcx,%r8), %tmm0\n  tileloadd (%rsi,%r8), %tmm1\n"                             \
      "  tileloadd (%rdx,%r8), %tmm2\n  " #name " %tmm2, %tmm1, %tmm0\n  tilestored %tmm0, (%rcx,%r8)\n"               \
      "  tilerelease\n  ret\nproduct_" #name "_end:\n.popsection");                                                    \
  extern "C" const uint8_t product_##name[], product_##name##_end[];
PRODUCT(tdpbf16ps)
PRODUCT(tdpbssd)
PRODUCT(tdpbsud)
PRODUCT(tdpbusd)
PRODUCT(tdpbuud)

// (configuration, matrix, bytes between rows): a copy through a register without a product.
asm(R"(
  .pushsection .rodata
copyCode:
  ldtilecfg (%rdi)
  tileloadd (%rsi,%rdx), %tmm5
  tilestored %tmm5, 1024(%rsi,%rdx)
  sttilecfg 2048(%rsi)
  tilezero %tmm5
  tilestored %tmm5, (%rsi,%rdx)
  tilerelease
  sttilecfg 2112(%rsi)
  ret
copyEnd:
unreleasedCode:
  ldtilecfg (%rdi)
  ret
unreleasedEnd:
unconfiguredCode:
  tilezero %tmm1
  ret
unconfiguredEnd:
detectionCode:
  mov %rbx, %r9
  mov $7, %eax
  xor %ecx, %ecx
  .byte 0x06, 0xa2 # CPUID with another first byte
  mov %edx, (%rdi)
  mov %ebx, 4(%rdi)
  xor %ecx, %ecx
  .byte 0x06, 0x01, 0xd0 # XGETBV
  mov %eax, 8(%rdi)
  mov $7, %eax
  mov $1, %ecx
  .byte 0x06, 0xa2
  mov %edx, 12(%rdi)
  mov %r9, %rbx
  ret
detectionEnd:
  .popsection
)");
extern "C" const uint8_t copyCode[], copyEnd[], unreleasedCode[], unreleasedEnd[], unconfiguredCode[],
    unconfiguredEnd[], detectionCode[], detectionEnd[];

struct alignas(64) Matrix : std::array<uint32_t, 256> {};

using Config = std::array<uint8_t, configBytes>;

/// dest, lhs, rhs in tmm0, tmm1, tmm2.
Config configOf(unsigned rows, unsigned kPacks, unsigned columns) {
  Config config = {1};
  const unsigned shapes[3][2] = {{rows, columns}, {rows, kPacks}, {kPacks, columns}};
  for (unsigned tile = 0; tile < 3; ++tile)
    config[48 + tile] = uint8_t(shapes[tile][0]), config[16 + 2 * tile] = uint8_t(4 * shapes[tile][1]);
  return config;
}

Config fullConfig() {
  Config config = configOf(16, 16, 16);
  for (unsigned tile = 3; tile < numTiles; ++tile)
    config[16 + 2 * tile] = maxRowBytes, config[48 + tile] = maxRows;
  return config;
}

/// Whether the processor has AMX-BF16 and AMX-INT8, and Linux permits their use.
bool hasTiles() {
  static const bool result = [] {
    constexpr unsigned needed = 1u << 22 | 1u << 24 | 1u << 25;
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & needed) == needed &&
           syscall(SYS_arch_prctl, /*ARCH_REQ_XCOMP_PERM=*/0x1023, /*XFEATURE_XTILEDATA=*/18) == 0;
  }();
  return result;
}

class HandlerTest : public testing::Test {
protected:
  static void SetUpTestSuite() {
    // A death test executes the test in a process that is started again.
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    install();
  }

  /// Random bits, floats near 1, near the least normal numbers, and special values.
  Matrix operand(unsigned kind, bool isSum) {
    static constexpr uint16_t specials[] = {0x0000, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0x7f81,
                                            0x0001, 0x807f, 0x0080, 0x8080, 0x7f7f, 0xff7f, 0x4000, 0x3f81};
    Matrix matrix;
    for (uint32_t &word : matrix) {
      uint32_t bits = uint32_t(random());
      auto scaled = [&](uint32_t low, uint32_t exponents) { // of two bf16, or of a float
        uint32_t exponent = (low + uint32_t(random()) % exponents) << 23;
        uint32_t other = isSum ? bits & 0xffff : (low + uint32_t(random()) % exponents) << 7 | (bits & 0x807f);
        return (bits & 0x807f0000) | exponent | other;
      };
      if (kind == 0)
        word = bits;
      else if (kind == 1)
        word = scaled(120, 14);
      else if (kind == 2)
        word = isSum ? scaled(0, 8) : scaled(56, 8);
      else
        word = uint32_t(specials[bits % 16]) << 16 | specials[bits / 16 % 16];
    }
    return matrix;
  }

  std::mt19937 random{1};
};

bool isNaN(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

TEST_F(HandlerTest, ProductsOfBF16AreThoseOfTheProcessor) {
  Code trapped(product_tdpbf16ps, product_tdpbf16ps_end, true), native(product_tdpbf16ps, product_tdpbf16ps_end, false);
  uint64_t digest = 0;
  for (unsigned round = 0; round < 400; ++round) {
    Matrix lhs = operand(round % 4, false), rhs = operand(round % 4, false), sums = operand(round % 4, true);
    unsigned rows = 16, kPacks = 16, columns = 16;
    if (round % 8 >= 4)
      rows = 1 + unsigned(random()) % 16, kPacks = 1 + unsigned(random()) % 16, columns = 1 + unsigned(random()) % 16;
    Config config = configOf(rows, kPacks, columns);
    Matrix found = sums, expected = sums;
    trapped(config.data(), lhs.data(), rhs.data(), found.data(), size_t(64));
    for (uint32_t word : found)
      digest = (digest ^ (isNaN(word) ? 0x7fc00000 : word)) * 0x100000001b3;
    if (!hasTiles())
      continue;
    native(config.data(), lhs.data(), rhs.data(), expected.data(), size_t(64));
    for (unsigned i = 0; i < 256; ++i)
      ASSERT_TRUE(found[i] == expected[i] || (isNaN(found[i]) && isNaN(expected[i])))
          << "round " << round << ", element " << i << std::hex << ": " << found[i] << ", expected " << expected[i];
  }
  EXPECT_EQ(digest, 14064568709362965295u);
}

/// A sum just below the least normal number, 2^-126 - 2^-150, is subnormal with 24 bits, and normal if it is rounded to
/// a multiple of the least subnormal number.
TEST_F(HandlerTest, SumsThatRoundToTheLeastNormalNumber) {
  auto power = [](int exponent) { return uint32_t(127 + exponent) << 23; };
  for (bool isTrapped : {true, false}) {
    if (!isTrapped && !hasTiles())
      continue;
    Code product(product_tdpbf16ps, product_tdpbf16ps_end, isTrapped);
    Matrix lhs = {}, rhs = {}, sums = {};
    for (unsigned i = 0; i < 16; ++i) {
      lhs[16 * i] = rhs[i] = power(-63);
      lhs[16 * i + 1] = power(-75), rhs[16 + i] = power(-75) | 1u << 31;
    }
    product(fullConfig().data(), lhs.data(), rhs.data(), sums.data(), size_t(64));
    for (uint32_t sum : sums)
      EXPECT_EQ(sum, 0u) << (isTrapped ? "in software" : "on the processor");
  }
}

/// Sums of exact products and of values whose sum is exact do not depend on the order.
TEST_F(HandlerTest, ProductsOfBF16AreThoseOfPlainLoops) {
  Code trapped(product_tdpbf16ps, product_tdpbf16ps_end, true);
  Matrix lhs, rhs, found;
  auto small = [&] { return uint16_t(std::bit_cast<uint32_t>(float(int(random() % 17) - 8)) >> 16); };
  for (unsigned i = 0; i < 256; ++i) {
    lhs[i] = uint32_t(small()) << 16 | small(), rhs[i] = uint32_t(small()) << 16 | small();
    found[i] = std::bit_cast<uint32_t>(float(i));
  }
  trapped(fullConfig().data(), lhs.data(), rhs.data(), found.data(), size_t(64));
  auto real = [](uint32_t bits) { return std::bit_cast<float>(bits); };
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned j = 0; j < 16; ++j) {
      float sum = float(16 * i + j);
      for (unsigned k = 0; k < 16; ++k) {
        uint32_t x = lhs[16 * i + k], y = rhs[16 * k + j];
        sum += real(x << 16) * real(y << 16) + real(x & 0xffff0000) * real(y & 0xffff0000);
      }
      EXPECT_EQ(real(found[16 * i + j]), sum) << i << ", " << j;
    }
}

TEST_F(HandlerTest, ProductsOfInt8) {
  const struct {
    const uint8_t *begin, *end;
    bool isSignedLHS, isSignedRHS;
  } forms[] = {{product_tdpbssd, product_tdpbssd_end, true, true},
               {product_tdpbsud, product_tdpbsud_end, true, false},
               {product_tdpbusd, product_tdpbusd_end, false, true},
               {product_tdpbuud, product_tdpbuud_end, false, false}};
  for (auto [begin, end, isSignedLHS, isSignedRHS] : forms) {
    Code trapped(begin, end, true), native(begin, end, false);
    Matrix lhs = operand(0, false), rhs = operand(0, false), sums = operand(0, true), found = sums;
    trapped(fullConfig().data(), lhs.data(), rhs.data(), found.data(), size_t(64));
    auto byte = [](uint32_t word, unsigned i, bool isSigned) {
      return isSigned ? int64_t(int8_t(word >> 8 * i)) : int64_t(uint8_t(word >> 8 * i));
    };
    for (unsigned i = 0; i < 256; ++i) {
      int64_t sum = int64_t(sums[i]);
      for (unsigned k = 0; k < 64; ++k)
        sum += byte(lhs[i / 16 * 16 + k / 4], k % 4, isSignedLHS) * byte(rhs[k / 4 * 16 + i % 16], k % 4, isSignedRHS);
      ASSERT_EQ(found[i], uint32_t(sum)) << i;
    }
    if (!hasTiles())
      continue;
    Matrix expected = sums;
    native(fullConfig().data(), lhs.data(), rhs.data(), expected.data(), size_t(64));
    EXPECT_EQ(found, expected);
  }
}

TEST_F(HandlerTest, CopiesAndConfigurations) {
  for (bool isTrapped : {true, false}) {
    if (!isTrapped && !hasTiles())
      continue;
    Code copy(copyCode, copyEnd, isTrapped);
    std::array<uint8_t, 2176> memory, expected;
    for (size_t i = 0; i < memory.size(); ++i)
      expected[i] = memory[i] = uint8_t(i * 7 % 251);
    Config config = fullConfig();
    config[48 + 5] = 5, config[16 + 2 * 5] = 40;
    memcpy(expected.data() + 2048, config.data(), config.size());
    memset(expected.data() + 2112, 0, 64);
    for (size_t row = 0; row < 5; ++row) {
      memcpy(expected.data() + 1024 + 64 * row, memory.data() + 64 * row, 40);
      memset(expected.data() + 64 * row, 0, 40);
    }
    copy(config.data(), memory.data(), size_t(64));
    EXPECT_EQ(memory, expected) << (isTrapped ? "in software" : "on the processor");
  }
}

/// Registers of other threads do not change.
TEST_F(HandlerTest, ThreadsHaveTheirOwnRegisters) {
  Code trapped(unreleasedCode, unreleasedEnd, true), released(copyCode, copyEnd, true);
  std::array<uint8_t, 2176> memory = {};
  trapped(fullConfig().data());
  std::thread([&] {
    EXPECT_FALSE(ownTiles().isConfigured());
    released(fullConfig().data(), memory.data(), size_t(64));
  }).join();
  EXPECT_TRUE(ownTiles().isConfigured());
  released(fullConfig().data(), memory.data(), size_t(64));
  EXPECT_FALSE(ownTiles().isConfigured());
}

TEST_F(HandlerTest, MistakesEndTheProcess) {
  Code unconfigured(unconfiguredCode, unconfiguredEnd, true), copy(copyCode, copyEnd, true),
      unreleased(unreleasedCode, unreleasedEnd, true);
  auto exits = testing::ExitedWithCode(exitCode);
  EXPECT_EXIT(unconfigured(), exits, "tilezero at .*: the tile registers are not configured");
  EXPECT_EXIT(unreleased(Config{2}.data()), exits, "ldtilecfg at .*: palette 2, expected 1");
  EXPECT_EXIT(
      {
        unreleased(fullConfig().data());
        exit(0);
      },
      exits, "a thread ends with configured tile registers");
#if !__has_feature(thread_sanitizer) // it blocks SIGSEGV in the handler of SIGILL
  auto *pages = static_cast<uint8_t *>(mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(pages, 4096, PROT_READ | PROT_WRITE);
  EXPECT_EXIT(copy(fullConfig().data(), pages + 4096 - 5 * 64, size_t(64)), exits,
              "tileloadd at .*: row 5 is out of bounds");
  EXPECT_EXIT(copy(fullConfig().data(), pages + 4096 - 16 * 64, size_t(64)), exits,
              "tilestored at .*: row 0 is out of bounds");
  munmap(pages, 8192);
#endif
}

/// CPUID reports AMX and AVX-VNNI-INT8. All other features are reported unchanged.
TEST_F(HandlerTest, ReportsAProcessorWithBothFeatures) {
  Code detection(detectionCode, detectionEnd, true);
  std::array<uint32_t, 4> found = {};
  detection(found.data());
  constexpr uint32_t tiles = 1u << 22 | 1u << 24 | 1u << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  ASSERT_TRUE(__get_cpuid_count(7, 0, &a, &b, &c, &d));
  EXPECT_EQ(found[0], d | tiles);
  EXPECT_EQ(found[1], b);
  EXPECT_EQ(found[2] & (3u << 17), 3u << 17);
  ASSERT_TRUE(__get_cpuid_count(7, 1, &a, &b, &c, &d));
  EXPECT_EQ(found[3], d | 1u << 4);
}

/// Signals of other code are those of the system.
TEST_F(HandlerTest, OtherFaultsAreNotHandled) { EXPECT_EXIT(asm volatile("ud2"), testing::KilledBySignal(SIGILL), ""); }

} // namespace
