//===- CPUTarget.cpp - The table of CPU targets --------------------------------===//
//
// The targets are the microarchitecture levels of the x86-64 psABI; v4-bf16 adds AVX512_BF16, v4-amx AMX. The expanded
// targets are for tests: they run the kernels of a level on every processor with AVX2.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/CPUTarget.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"
#include "saccade/Runtime/TileRegisters.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

using namespace saccade;

static constexpr const char *withBF16 = "-prefer-256-bit,+avx512bf16";
static constexpr const char *withTiles = "-prefer-256-bit,+avx512bf16,+amx-tile,+amx-bf16";

static const CPUTarget targets[] = {
    // name, cpu, features, bits, registers, FMA, F16C, AVX-512, bf16 dot, tiles, runs on
    {"portable", "x86-64", "", 128, 16, false, false, false, false, false, SaccadeCPUTargetPortable},
    {"v3", "x86-64-v3", "", 256, 16, true, true, false, false, false, SaccadeCPUTargetV3},
    {"v4", "x86-64-v4", "-prefer-256-bit", 512, 32, true, true, true, false, false, SaccadeCPUTargetV4},
    {"v4-bf16", "x86-64-v4", withBF16, 512, 32, true, true, true, true, false, SaccadeCPUTargetV4BF16},
    {"v4-amx", "x86-64-v4", withTiles, 512, 32, true, true, true, true, true, SaccadeCPUTargetV4AMX},
    {"v4-expanded", "x86-64-v3", "", 512, 32, true, true, true, false, false, SaccadeCPUTargetV3},
    {"v4-bf16-expanded", "x86-64-v3", "", 512, 32, true, true, true, true, false, SaccadeCPUTargetV3},
    {"v4-amx-expanded", "x86-64-v3", "", 512, 32, true, true, true, true, true, SaccadeCPUTargetV3},
};

/// The most capable target whose instructions this processor has.
static llvm::StringRef processorTarget() {
  llvm::StringMap<bool> has = llvm::sys::getHostCPUFeatures();
  auto all = [&](std::initializer_list<const char *> features) {
    return llvm::all_of(features, [&](const char *feature) { return has.lookup(feature); });
  };
  // LLVM uses all instructions of a level. Virtual machines may lack single ones.
  if (!all({"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt"}))
    return "portable";
  if (!all({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}))
    return "v3";
  if (!all({"avx512bf16"}))
    return "v4";
  return all({"amx-tile", "amx-bf16"}) ? "v4-amx" : "v4-bf16";
}

static const CPUTarget *find(llvm::StringRef name) {
  for (const CPUTarget &target : targets)
    if (target.name == name)
      return &target;
  return nullptr;
}

bool saccade::hostRuns(const CPUTarget &target) {
  // Cached, because CPUID traps in a virtual machine.
  static const CPUTarget &processor = *find(processorTarget());
  if (target.runsOn > processor.runsOn)
    return false;
  // The permission is not asked for before code needs it.
  auto mayUseTiles = [] {
    static const bool answer = runtime::requestTileRegisters();
    return answer;
  };
  return target.runsOn < SaccadeCPUTargetV4AMX || mayUseTiles();
}

unsigned CPUTarget::packingFactor(mlir::Type lhs, mlir::Type rhs) const {
  return hasBF16Dot && lhs.isBF16() && rhs.isBF16() ? 2 : 1;
}

int64_t CPUTarget::groupRows(unsigned packingFactor, int64_t rows) const {
  return usesTiles(packingFactor) && rows % tileRowGroup == 0 ? tileRowGroup : rowGroup;
}

const CPUTarget *saccade::lookupCPUTarget(llvm::StringRef name) {
  if (name != "host")
    return find(name);
  static const CPUTarget *best = [] {
    const CPUTarget *processor = find(processorTarget());
    return hostRuns(*processor) ? processor : find("v4-bf16");
  }();
  return best;
}

const CPUTarget *saccade::requireCPUTarget(mlir::Operation *op, llvm::StringRef name) {
  const CPUTarget *target = lookupCPUTarget(name);
  if (!target)
    op->emitError() << "unknown target '" << name << "', expected one of " << cpuTargetNames();
  return target;
}

llvm::StringRef saccade::cpuTargetNames() {
  return "host, portable, v3, v4, v4-bf16, v4-amx, v4-expanded, v4-bf16-expanded, v4-amx-expanded";
}
