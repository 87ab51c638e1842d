//===- ScheduleTest.cpp - Schedules of all types, head sizes and targets ------===//
//
// Schedules against the conditions that they are chosen for, at every head size.
//
//===----------------------------------------------------------------------===//
#include "mlir/IR/Builders.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/GPUTarget.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace saccade;

namespace {

class Schedules : public testing::Test {
protected:
  Schedules() { context.loadDialect<attn::AttnDialect>(); }
  SmallVector<Type> types() {
    Builder b(&context);
    return {b.getF16Type(), b.getBF16Type(), b.getF32Type(), b.getF64Type()};
  }
  MLIRContext context;
};

TEST_F(Schedules, TilesOfAttentionAreTheLargestThatFitInCache) {
  for (StringRef name :
       {"portable", "v3", "v3-int8", "v4", "v4-bf16", "v4-amx", "aarch64", "aarch64-bf16", "aarch64-sve256"})
    for (Type type : types())
      for (int64_t depth : {1, 8, 63, 64, 65, 80, 96, 128, 160, 192, 256, 512, 1024, 8192})
        for (int64_t valueDepth = 1; valueDepth <= 4096; valueDepth += valueDepth < 300 ? 1 : 97) {
          const CPUTarget &target = *lookupCPUTarget(name);
          // Packed pairs have twice as many keys in a tile, and keys of 16 bits. An f16 in tile registers has two
          // parts.
          bool hasPairs = type.isBF16() && target.hasBF16Dot();
          int64_t bytes = type.isF64() ? 8 : hasPairs ? 2 : 4;
          SmallVector<std::pair<int64_t, int64_t>> sizes = {{576, 512}, {288, 256}, {144, 128}, {72, 64}};
          int64_t most = 640 * 1024, group = rowGroup;
          if (target.hasTiles && (hasPairs || type.isF16())) {
            // L2 has 2 MiB, and groups have 32 rows.
            sizes = {{512, 512}, {256, 256}, {128, 128}, {64, 64}};
            most *= 2, group = 32;
          } else if (target.vectorRegisters < 32)
            sizes = {{288, 128}, {144, 64}, {72, 64}};
          else if (hasPairs)
            sizes.insert(sizes.begin(), {576, 1024});
          auto fits = [&](std::pair<int64_t, int64_t> each) {
            return (each.first + each.second) * (depth + valueDepth) * bytes <= most;
          };
          auto expected = llvm::find_if(sizes, fits);
          if (expected == sizes.end())
            --expected;
          attn::ScheduleAttr found = scheduleAttention(type, depth, valueDepth, target);
          ASSERT_EQ(std::pair(found.getRows(), found.getCols()), *expected)
              << name.str() << ", bytes " << bytes << ", head sizes " << depth << " and " << valueDepth;
          ASSERT_EQ(found.getRows() % group, 0);
        }
}

TEST_F(Schedules, BlocksOfContractionsHaveRowsOfOneSize) {
  for (StringRef name : {"portable", "v3", "v3-int8", "v4", "v4-bf16", "v4-amx"})
    for (unsigned bits : {8, 16, 32, 64}) {
      attn::ScheduleAttr found = scheduleContraction(&context, bits, *lookupCPUTarget(name));
      EXPECT_EQ(found.getCols() * std::max(bits, 32u), 256 * 32) << bits;
      EXPECT_EQ(found.getRows(), 192);
      EXPECT_EQ(found.getDepth(), 512);
    }
}

TEST_F(Schedules, AccumulatorsOfTensorCoresFitInRegisters) {
  for (StringRef name : {"sm_75", "sm_80", "sm_90a"})
    for (Type type : types())
      for (int64_t valueDepth = 1; valueDepth <= 256; ++valueDepth) {
        const GPUTarget &target = *lookupGPUTarget(name);
        int64_t rows = scheduleAttention(type, /*depth=*/64, valueDepth, Warpgroups::None, target).getRows();
        bool usesTensorCores = name != "sm_75" && type.getIntOrFloatBitWidth() == 16;
        // 128 threads have at most 128 elements each.
        bool fits = 128 * valueDepth <= 128 * 128;
        EXPECT_EQ(rows, usesTensorCores && !fits ? 64 : 128) << name.str() << ", head size " << valueDepth;
      }
}

TEST_F(Schedules, WarpgroupsHave64RowsEach) {
  for (int64_t depth : {64, 65, 256})
    for (int64_t valueDepth : {64, 65, 256}) {
      auto rows = [&](const char *name, Type type, Warpgroups warpgroups) {
        return scheduleAttention(type, depth, valueDepth, warpgroups, *lookupGPUTarget(name)).getRows();
      };
      Type type = Float16Type::get(&context);
      int64_t most = depth == 64 && valueDepth == 64 ? 3 : 2;
      EXPECT_EQ(rows("sm_90a", type, Warpgroups::Three), 64 * most) << depth << ", " << valueDepth;
      EXPECT_EQ(rows("sm_90a", type, Warpgroups::Two), 64 * 2) << depth << ", " << valueDepth;
      EXPECT_EQ(rows("sm_90a", Float32Type::get(&context), Warpgroups::Three), 128);
      EXPECT_EQ(rows("sm_80", type, Warpgroups::Three), valueDepth > 128 ? 64 : 128);
    }
}

} // namespace
