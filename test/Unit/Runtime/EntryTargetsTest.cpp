//===- EntryTargetsTest.cpp - Selection of the code of a call -----------------===//
//
// An entry with tables for several targets: a call runs the first CPU target that the processor and the limit allow,
// or the GPU's code if a tensor is on a CUDA device.
//
//===----------------------------------------------------------------------===//
#include "Arguments.h"
#include "saccade/Runtime/CPUTargets.h"
#include "saccade/Runtime/TileRegisters.h"
#include "gtest/gtest.h"
#include <string>

// A name of its own: several tests are one translation unit.
namespace entry_targets {
namespace {

/// The number of the table whose code ran last.
int ran = -1;

template <int number> const char *call(void **) {
  ran = number;
  return nullptr;
}
const char *shapes(void **, int64_t *) { return nullptr; }

SaccadeStatus callGPU(const SaccadeEntry *entry, int32_t, void **args, const char **message) {
  *message = entry->call(args);
  return SaccadeSuccess;
}

const SaccadeValueType type = floats("x");
SaccadeKernels kernels = {callGPU, "", nullptr, 80, 0, 128, 0, nullptr};

template <int number>
SaccadeEntry table(int32_t target, const SaccadeEntry *next, const SaccadeEntry *gpu = nullptr,
                   SaccadeKernels *of = nullptr) {
  return {SACCADE_ENTRY_VERSION, 1, 0, target, "f", &type, call<number>, shapes, of, next, gpu};
}

const SaccadeEntry gpu = table<9>(SaccadeCPUTargetPortable, nullptr, nullptr, &kernels);
const SaccadeEntry portable = table<0>(SaccadeCPUTargetPortable, nullptr);
const SaccadeEntry v3 = table<1>(SaccadeCPUTargetV3, &portable);
const SaccadeEntry v4 = table<2>(SaccadeCPUTargetV4, &v3);
const SaccadeEntry bf16 = table<3>(SaccadeCPUTargetV4BF16, &v4);
const SaccadeEntry amx = table<4>(SaccadeCPUTargetV4AMX, &bf16);
/// A processor that does not exist yet.
const SaccadeEntry future = table<5>(1000, &amx, &gpu);

class EntryTargets : public testing::Test {
protected:
  void TearDown() override { saccade_set_cpu_limit(nullptr); }

  /// Runs `entry`; returns the number of the table whose code ran, or the status of a refusal, negated.
  int run(const SaccadeEntry &entry) {
    ran = -100;
    SaccadeStatus status = saccade_entry_call(&entry, args.data(), 1);
    return status == SaccadeSuccess ? ran : -int(status);
  }

  Matrix x{3};
  std::vector<SaccadeArgument> args = {wrap(x.tensor)};
};

TEST_F(EntryTargets, TheHighestAllowedTargetRuns) {
  // The operating system must also permit tile registers.
  const int host = __builtin_cpu_supports("amx-bf16") && saccade::runtime::requestTileRegisters() ? 4
                   : __builtin_cpu_supports("avx512bf16")                                         ? 3
                   : __builtin_cpu_supports("avx512vl")                                           ? 2
                   : __builtin_cpu_supports("x86-64-v3")                                          ? 1
                                                                                                  : 0;
  const char *const names[] = {"portable", "v3", "v4", "v4-bf16", "v4-amx"};
  EXPECT_EQ(host, run(future));
  EXPECT_STREQ(names[host], saccade_entry_target(&future));
  for (int limit = 0; limit < 5; ++limit) {
    EXPECT_EQ(nullptr, saccade_set_cpu_limit(names[limit]));
    EXPECT_EQ(std::min(limit, host), run(future)) << "limited to " << names[limit];
    EXPECT_STREQ(names[std::min(limit, host)], saccade_entry_target(&future));
  }
  EXPECT_EQ(nullptr, saccade_set_cpu_limit(nullptr));
  EXPECT_EQ(host, run(future));
}

TEST_F(EntryTargets, AnEntryWithoutCodeForTheProcessorIsRefused) {
  const SaccadeEntry further = table<7>(1001, nullptr);
  const SaccadeEntry alone = table<6>(1000, nullptr);
  EXPECT_EQ(-SaccadeUnsupported, run(alone));
  EXPECT_EQ(nullptr, saccade_entry_target(&alone));
  EXPECT_EQ(-SaccadeUnsupported, run(further));
  ASSERT_EQ(nullptr, saccade_set_cpu_limit("portable"));
  const SaccadeEntry two = table<2>(SaccadeCPUTargetPortable + 1, nullptr);
  EXPECT_EQ(-SaccadeUnsupported, run(two));
  EXPECT_EQ(nullptr, saccade_entry_target(&two));
  if (__builtin_cpu_supports("x86-64-v3"))
    EXPECT_STREQ("f: compiled for target v3, calls are limited to portable", saccade_entry_last_error());
}

TEST_F(EntryTargets, TheOrderOfTargetsDoesNotReplaceFeatures) {
  // A later row of the table, of another architecture.
  const SaccadeEntry other = table<8>(SaccadeCPUTargetAArch64, &portable);
  EXPECT_EQ(0, run(other));
  const SaccadeEntry alone = table<8>(SaccadeCPUTargetAArch64, nullptr);
  EXPECT_EQ(-SaccadeUnsupported, run(alone));
  EXPECT_TRUE(
      std::string(saccade_entry_last_error()).starts_with("f: compiled for target aarch64, this processor has "));
  EXPECT_NE(nullptr, saccade_set_cpu_limit("aarch64"));
}

/// v3-int8 and v4 each have a feature that the other one lacks.
TEST_F(EntryTargets, TargetsNeedNotFormAChain) {
  using saccade::runtime::findCPUTarget;
  const auto &lower = *findCPUTarget(SaccadeCPUTargetV3), &one = *findCPUTarget(SaccadeCPUTargetV3Int8),
             &other = *findCPUTarget(SaccadeCPUTargetV4);
  EXPECT_TRUE(one.includes(lower) && other.includes(lower) && !one.includes(other) && !other.includes(one));
  EXPECT_TRUE(other.rank() > one.rank() && one.rank() > lower.rank());
  const SaccadeEntry int8 = table<6>(SaccadeCPUTargetV3Int8, &portable);
  EXPECT_EQ(__builtin_cpu_supports("avxvnniint8") ? 6 : 0, run(int8));
  for (const char *limit : {"v3", "v4", "v4-amx"}) {
    ASSERT_EQ(nullptr, saccade_set_cpu_limit(limit));
    EXPECT_EQ(0, run(int8)) << "limited to " << limit;
  }
  ASSERT_EQ(nullptr, saccade_set_cpu_limit("v3-int8"));
  EXPECT_EQ(__builtin_cpu_supports("x86-64-v3") ? 1 : 0, run(v4));
}

/// Rows are added at the end of the table, also for targets below others.
TEST_F(EntryTargets, ATargetIsPreferredToThoseThatItIncludes) {
  using saccade::runtime::CPUTargetRow;
  const CPUTargetRow lower = {"lower", saccade::runtime::Architecture::X86, 0b0110},
                     higher = {"higher", saccade::runtime::Architecture::X86, 0b0111};
  ASSERT_TRUE(higher.includes(lower));
  EXPECT_GT(higher.rank(), lower.rank());
  for (int32_t i = 0; const CPUTargetRow *row = saccade::runtime::findCPUTarget(i); ++i)
    EXPECT_LE(saccade::runtime::hostProcessor().includes(*row) ? row->rank() : 0,
              saccade::runtime::hostCPUTarget().rank())
        << row->name;
}

TEST_F(EntryTargets, ATensorOnAGPUSelectsItsCode) {
  x.tensor.device = {kDLCUDA, 2};
  EXPECT_EQ(9, run(future));
  ASSERT_EQ(nullptr, saccade_set_cpu_limit("portable")); // is for CPUs only
  EXPECT_EQ(9, run(future));
  EXPECT_EQ(-SaccadeTypeError, run(bf16));
  EXPECT_STREQ("f: argument 'x' (tensor<?x4xf32>): on cuda:2, expected cpu", saccade_entry_last_error());
}

TEST_F(EntryTargets, AnUnknownLimitChangesNothing) {
  ASSERT_EQ(nullptr, saccade_set_cpu_limit("portable"));
  EXPECT_STREQ("saccade_set_cpu_limit: found 'v5', expected one of portable, v3, v4, v4-bf16, v4-amx, v3-int8",
               saccade_set_cpu_limit("v5"));
  EXPECT_STREQ("portable", saccade_entry_target(&future));
}

} // namespace
} // namespace entry_targets
