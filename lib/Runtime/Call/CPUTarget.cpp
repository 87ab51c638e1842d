//===- CPUTarget.cpp - Detection of the CPU target ----------------------------===//
//
// Detects the CPU target, so that a library on a processor without the required features reports an error instead of
// faulting. Reads CPUID and XCR0 (Intel SDM vol. 1, 14.3 and 15.2), because the built-in functions of compilers require
// their run-time libraries. The limit of saccade_set_cpu_limit is one variable for all libraries of a process.
//
//===----------------------------------------------------------------------===//
#include "CPUTarget.h"
#include "saccade/Runtime/TileRegisters.h"
#include <atomic>
#include <cstring>
#include <initializer_list>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

using namespace saccade::runtime;

#if defined(__x86_64__)
static SaccadeCPUTarget detectCPUTarget() {
  auto has = [](unsigned word, std::initializer_list<int> bits) {
    for (int bit : bits)
      if (!(word >> bit & 1))
        return false;
    return true;
  };
  unsigned a, b, c, d;
  constexpr int fma = 12, movbe = 22, popcnt = 23, osxsave = 27, avx = 28, f16c = 29, lzcnt = 5;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, {fma, movbe, popcnt, osxsave, avx, f16c}))
    return SaccadeCPUTargetPortable;
  if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !has(c, {lzcnt}))
    return SaccadeCPUTargetPortable;
  unsigned saved, high;
  asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  constexpr int sse = 1, ymm = 2, masks = 5, zmmUpper = 6, moreZmm = 7;
  constexpr int bmi1 = 3, avx2 = 5, bmi2 = 8;
  if (!has(saved, {sse, ymm}) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, {bmi1, avx2, bmi2}))
    return SaccadeCPUTargetPortable;
  constexpr int avx512f = 16, avx512dq = 17, avx512cd = 28, avx512bw = 30, avx512vl = 31;
  if (!has(saved, {masks, zmmUpper, moreZmm}) || !has(b, {avx512f, avx512dq, avx512cd, avx512bw, avx512vl}))
    return SaccadeCPUTargetV3;
  constexpr int avx512bf16 = 5;
  constexpr int amxBF16 = 22, amxTile = 24, tileConfig = 17, tileData = 18;
  bool hasTiles = has(d, {amxBF16, amxTile}) && has(saved, {tileConfig, tileData});
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !has(a, {avx512bf16}))
    return SaccadeCPUTargetV4;
  return hasTiles ? SaccadeCPUTargetV4AMX : SaccadeCPUTargetV4BF16;
}
#else
static SaccadeCPUTarget detectCPUTarget() { return SaccadeCPUTargetPortable; }
#endif

SaccadeCPUTarget saccade::runtime::hostCPUTarget() {
  // Cached, because CPUID traps in a virtual machine. Concurrent calls compute the same value.
  static std::atomic<int> known{-1};
  int target = known.load(std::memory_order_relaxed);
  if (target < 0)
    known.store(target = detectCPUTarget(), std::memory_order_relaxed);
  return static_cast<SaccadeCPUTarget>(target);
}

bool saccade::runtime::mayUseTileRegisters() {
  // Concurrent calls get the same answer.
  static std::atomic<int> known{-1};
  int answer = known.load(std::memory_order_relaxed);
  if (answer < 0)
    known.store(answer = requestTileRegisters(), std::memory_order_relaxed);
  return answer;
}

// 0 without a limit, else the target + 1. A unique symbol, as in CPU/RuntimeTable.cpp.
asm(R"(
  .pushsection .bss.saccade_cpu_limit_v1, "aw", @nobits
  .globl saccade_cpu_limit_v1
  .type saccade_cpu_limit_v1, @gnu_unique_object
  .size saccade_cpu_limit_v1, 4
  .balign 4
saccade_cpu_limit_v1:
  .zero 4
  .popsection
)");

extern "C" __attribute__((visibility("default"))) std::atomic<int32_t> saccade_cpu_limit_v1;
static_assert(sizeof(saccade_cpu_limit_v1) == 4);

SaccadeCPUTarget saccade::runtime::allowedCPUTarget() {
  SaccadeCPUTarget host = hostCPUTarget();
  int32_t limit = saccade_cpu_limit_v1.load(std::memory_order_relaxed);
  return limit == 0 || limit > host ? host : static_cast<SaccadeCPUTarget>(limit - 1);
}

bool saccade::runtime::limitCPUTarget(const char *name) {
  int32_t limit = 0;
  for (int32_t target = SaccadeCPUTargetPortable; name && target <= SaccadeCPUTargetV4AMX; ++target)
    if (strcmp(name, cpuTargetName(static_cast<SaccadeCPUTarget>(target))) == 0)
      limit = target + 1;
  if (name && limit == 0)
    return false;
  saccade_cpu_limit_v1.store(limit, std::memory_order_relaxed);
  return true;
}

const char *saccade::runtime::cpuTargetName(SaccadeCPUTarget target) {
  switch (target) {
  case SaccadeCPUTargetPortable:
    return "portable";
  case SaccadeCPUTargetV3:
    return "v3";
  case SaccadeCPUTargetV4:
    return "v4";
  case SaccadeCPUTargetV4BF16:
    return "v4-bf16";
  case SaccadeCPUTargetV4AMX:
    return "v4-amx";
  }
  return "a newer one";
}
