//===- CPUTarget.cpp - Detection of the features of the processor -------------===//
//
// Detects the features that CPU targets require, so that a library on a processor without them reports an error instead
// of faulting. Reads CPUID and XCR0 (Intel SDM vol. 1, 14.3 and 15.2), because the built-in functions of compilers
// require their run-time libraries, and on AArch64 what Linux reports (Documentation/arch/arm64/elf_hwcaps.rst). The
// limit of saccade_set_cpu_limit is one variable for all libraries of a process.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/CPUTargets.h"
#include "saccade/Runtime/TileRegisters.h"
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

using namespace saccade::runtime;

//===----------------------------------------------------------------------===//
// The tables of CPUTargets.def
//===----------------------------------------------------------------------===//

namespace {

/// Where processors report features.
enum Word { Leaf1C, Leaf7B, Leaf7C, Leaf7D, Leaf71A, Leaf71D, Extended1C, HWCAP2, SVELength, numWords };

/// Register state that the operating system saves, as bits of XCR0.
enum State : uint32_t { None = 0, Ymm = 1 << 1 | 1 << 2, Zmm = Ymm | 7 << 5, Tiles = 3 << 17 };

struct Feature {
  Architecture architecture;
  Word word;
  int bit;
  uint32_t state;
};

enum FeatureNumber {
#define SACCADE_CPU_FEATURE(id, architecture, word, bit, state) number##id,
#include "saccade/Runtime/CPUTargets.def"
};

constexpr Feature features[] = {
#define SACCADE_CPU_FEATURE(id, architecture, word, bit, state) {Architecture::architecture, word, bit, state},
#include "saccade/Runtime/CPUTargets.def"
};
static_assert(std::size(features) <= 64);

#define SACCADE_CPU_FEATURE(id, architecture, word, bit, state) constexpr uint64_t id = uint64_t(1) << number##id;
#include "saccade/Runtime/CPUTargets.def"

#define F(id) featuresOf##id
#define SACCADE_CPU_TARGET(id, name, architecture, features) constexpr uint64_t featuresOf##id = features;
#include "saccade/Runtime/CPUTargets.def"

constexpr CPUTargetRow targets[] = {
#define SACCADE_CPU_TARGET(id, name, architecture, features) {name, Architecture::architecture, featuresOf##id},
#include "saccade/Runtime/CPUTargets.def"
};

} // namespace

bool CPUTargetRow::hasTiles() const { return (features & AMXTile) != 0; }

const CPUTargetRow *saccade::runtime::findCPUTarget(int32_t target) {
  return target >= 0 && target < int32_t(std::size(targets)) ? &targets[target] : nullptr;
}

//===----------------------------------------------------------------------===//
// Detection
//===----------------------------------------------------------------------===//

#if defined(__x86_64__)
static constexpr Architecture hostArchitecture = Architecture::X86;

/// Fills the words, and returns the state that the operating system saves.
static uint32_t readWords(unsigned (&words)[numWords]) {
  unsigned a, b, c, d, saved = 0, high;
  constexpr int osxsave = 27;
  if (!__get_cpuid(1, &a, &b, &c, &d))
    return 0;
  words[Leaf1C] = c;
  if (c >> osxsave & 1)
    asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if (__get_cpuid(0x80000001, &a, &b, &c, &d))
    words[Extended1C] = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
    words[Leaf7B] = b, words[Leaf7C] = c, words[Leaf7D] = d;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d))
    words[Leaf71A] = a, words[Leaf71D] = d;
  return saved;
}
#elif defined(__aarch64__)
static constexpr Architecture hostArchitecture = Architecture::AArch64;

/// Fills the words. Linux reports only features whose state it saves. The length of SVE registers is an attribute of
/// the thread (Documentation/arch/arm64/sve.rst), which new threads inherit.
static uint32_t readWords(unsigned (&words)[numWords]) {
  words[HWCAP2] = unsigned(getauxval(AT_HWCAP2));
  if (int bytes = prctl(PR_SVE_GET_VL); bytes >= 0)
    words[SVELength] = 1u << (bytes & PR_SVE_VL_LEN_MASK) / 16;
  return 0;
}
#else
#error "the runtime has no detection of features for this architecture"
#endif

static uint64_t detectFeatures() {
  unsigned words[numWords] = {};
  uint32_t saved = readWords(words);
  uint64_t found = 0;
  for (size_t i = 0; i < std::size(features); ++i) {
    const Feature &feature = features[i];
    if (feature.architecture == hostArchitecture && words[feature.word] >> feature.bit & 1 &&
        (feature.state & ~saved) == 0)
      found |= uint64_t(1) << i;
  }
  return found;
}

CPUTargetRow saccade::runtime::hostProcessor() {
  // Cached, because CPUID traps in a virtual machine. Concurrent calls compute the same value.
  static std::atomic<bool> isKnown{false};
  static std::atomic<uint64_t> known{0};
  if (!isKnown.load(std::memory_order_acquire)) {
    known.store(detectFeatures(), std::memory_order_relaxed);
    isKnown.store(true, std::memory_order_release);
  }
  return {"", hostArchitecture, known.load(std::memory_order_relaxed)};
}

bool saccade::runtime::mayUseTileRegisters() {
  // Concurrent calls get the same answer.
  static std::atomic<int> known{-1};
  int answer = known.load(std::memory_order_relaxed);
  if (answer < 0)
    known.store(answer = requestTileRegisters(), std::memory_order_relaxed);
  return answer;
}

bool saccade::runtime::hostRuns(const CPUTargetRow &target) {
  return hostProcessor().includes(target) && (!target.hasTiles() || mayUseTileRegisters());
}

const CPUTargetRow &saccade::runtime::hostCPUTarget() {
  const CPUTargetRow *best = nullptr;
  for (const CPUTargetRow &target : targets)
    if (hostProcessor().includes(target) && (!best || target.rank() >= best->rank()))
      best = &target;
  return *best; // every architecture has a target without features
}

//===----------------------------------------------------------------------===//
// The limit
//===----------------------------------------------------------------------===//

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

const CPUTargetRow *saccade::runtime::cpuLimit() {
  return findCPUTarget(saccade_cpu_limit_v1.load(std::memory_order_relaxed) - 1);
}

void saccade::runtime::writeCPUTargetNames(char *text, size_t bytes) {
  size_t at = 0;
  for (const CPUTargetRow &target : targets)
    if (target.architecture == hostArchitecture && at < bytes)
      at += size_t(snprintf(text + at, bytes - at, "%s%s", at ? ", " : "", target.name));
}

bool saccade::runtime::limitCPUTarget(const char *name) {
  int32_t limit = 0;
  for (size_t i = 0; name && i < std::size(targets); ++i)
    if (targets[i].architecture == hostArchitecture && strcmp(name, targets[i].name) == 0)
      limit = int32_t(i) + 1;
  if (name && limit == 0)
    return false;
  saccade_cpu_limit_v1.store(limit, std::memory_order_relaxed);
  return true;
}
