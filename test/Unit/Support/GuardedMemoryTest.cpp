// Guarded memory: what compiled code reads before it writes is NaN, and an access out of bounds ends the process.
#include "saccade/Support/GuardedMemory.h"
#include "saccade/Support/ElementType.h"
#include "gtest/gtest.h"
#include <cmath>
#include <string>
#include <vector>

using namespace saccade;

namespace {

TEST(GuardedMemory, BeginsAsNaNInEveryFloatType) {
  for (Guard guard : {Guard::End, Guard::Begin}) {
    GuardedMemory memory(8, 8, guard, "a block");
    for (ElementType type : {ElementType::f64, ElementType::f32, ElementType::f16, ElementType::bf16})
      for (int64_t at = 0; at < 8; at += elementBytes(type))
        EXPECT_TRUE(std::isnan(readElement(type, memory.data() + at))) << elementTypeName(type).str();
  }
}

TEST(GuardedMemory, BordersOnAPageWithoutAccess) {
  for (int64_t bytes : {4, 100, 4096, 10000}) {
    auto at = [&](Guard guard, int64_t offset) {
      GuardedMemory memory(bytes, 4, guard, "argument 'x'");
      volatile char *data = memory.data();
      data[0] = data[bytes - 1] = 1;
      data[offset] = 1;
    };
    EXPECT_DEATH(at(Guard::End, bytes),
                 "error: compiled code accesses argument 'x' out of bounds, 0 bytes after its end");
    EXPECT_DEATH(at(Guard::Begin, -1),
                 "error: compiled code accesses argument 'x' out of bounds, 1 bytes before its begin");
  }
}

TEST(GuardedMemory, IsReadOnlyOnceProtected) {
  GuardedMemory memory(64, 4, Guard::End, "argument 'x'");
  memory.data()[0] = 1;
  memory.protect();
  EXPECT_EQ(1, memory.data()[0]);
  EXPECT_DEATH(memory.data()[0] = 2, "error: compiled code accesses argument 'x', which is read-only");
}

TEST(GuardedMemory, AsManyBlocksAsAreRegisteredAreNamed) {
  constexpr int most = 256;
  auto access = [](int count, int number, int64_t offset) {
    std::vector<GuardedMemory> blocks;
    for (int i = 0; i < count; ++i)
      blocks.emplace_back(16, 4, Guard::End, "block " + std::to_string(i) + "!");
    *const_cast<volatile char *>(blocks[number].data() + offset) = 1;
  };
  for (int number : {0, 1, most / 2, most - 2, most - 1})
    EXPECT_DEATH(access(most, number, 16 + number), "accesses block " + std::to_string(number) + "! out of bounds, " +
                                                        std::to_string(number) + " bytes after its end");
  // Those beyond have guard pages, but no name. Released blocks free their places.
  EXPECT_DEATH(access(most + 1, most, 16), "^$");
  access(most, most - 1, 15);
  access(most, most - 1, 15);
  EXPECT_DEATH(access(most, most - 1, 16), "accesses block 255! out of bounds, 0 bytes after its end");
}

TEST(GuardedMemory, LongNamesAreCut) {
  std::string name(100, 'n');
  GuardedMemory memory(16, 4, Guard::End, name);
  EXPECT_DEATH(*const_cast<volatile char *>(memory.data() + 16) = 1,
               "accesses " + std::string(63, 'n') + " out of bounds");
}

TEST(GuardedMemory, ShowsWritesToTheRestOfItsPages) {
  for (Guard guard : {Guard::End, Guard::Begin}) {
    GuardedMemory memory(100, 64, guard, "scratch memory");
    memory.data()[0] = memory.data()[99] = 1;
    EXPECT_TRUE(memory.isRestIntact());
    memory.data()[100] = 1;
    EXPECT_FALSE(memory.isRestIntact());
  }
}

} // namespace
