//===- CPUTarget.cpp - The table of CPU targets --------------------------------===//
//
// For x86-64, the targets are the microarchitecture levels of the psABI; v3-int8 adds AVX-VNNI-INT8, v4-bf16 adds
// AVX512_BF16 and AVX512_VNNI, which all processors with the former have, v4-amx AMX. The expanded targets are for
// tests: they run the kernels of another target on every processor with AVX2.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/CPUTarget.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"

using namespace saccade;

// The accumulators of a block and its operands fit in registers: 24 of 32, or 12 of 16. Blocks of few columns take more
// rows, because hiding the latency of FMA requires at least eight accumulators. 16 registers hold the constants of the
// exponential and two vectors in flight; without FMA, one, and products apart from sums leave none to unroll matmuls.
// 24 multiply-adds of 512 bits leave time to prefetch a later k-pack of the RHS; 12 of 256 bits do not. There the
// panels of the next block are prefetched into L2, which must hold two blocks. With the other prefetch this one costs 3
// to 6 %.
static constexpr KernelShapes sixteen = {.blockRows = 6,
                                         .wideBlockRows = 6,
                                         .blockVectors = 2,
                                         .unrolledPacks = 4,
                                         .weightVectors = 2,
                                         .unpackedRegisters = 8,
                                         .copiedPacks = 256,
                                         .prefetchedPacks = 0,
                                         .prefetchesPanels = true};
static constexpr KernelShapes sixteenWithoutFMA = [] {
  KernelShapes shapes = sixteen;
  shapes.unrolledPacks = shapes.weightVectors = 1;
  return shapes;
}();
static constexpr KernelShapes thirtyTwo = {.blockRows = 12,
                                           .wideBlockRows = 6,
                                           .blockVectors = 4,
                                           .unrolledPacks = 4,
                                           .weightVectors = 4,
                                           .unpackedRegisters = 16,
                                           .copiedPacks = 512,
                                           .prefetchedPacks = 32};
static constexpr KernelShapes thirtyTwoNarrow = [] {
  KernelShapes shapes = thirtyTwo;
  shapes.prefetchedPacks = 0;
  return shapes;
}();

// From 512 keys per tile on, the cost of rescaling and packing is negligible; matmuls of packed pairs are twice as fast
// and need twice as many. With more than 512 queries per task, the keys of shorter sequences are packed once. L2 has
// 1 MiB per core on current servers.
static constexpr AttentionTiles tiles = {.rows = 576, .cols = 512, .cacheBytes = 640 * 1024};
// Blocks of six rows read a tile twice as often as those of twelve. Then it pays that the keys, and the values, of a
// tile fit in L1. Processors with 16 registers may have no more than 512 KiB of L2.
static constexpr AttentionTiles smallTiles = {.rows = 288, .cols = 128, .cacheBytes = 640 * 1024};

/// The kernels of `target` under another name, for processors with other features.
static constexpr CPUTarget derived(CPUTarget target, llvm::StringRef name, SaccadeCPUTarget runsOn,
                                   llvm::StringRef features) {
  target.name = name;
  target.runsOn = runsOn;
  target.features = features;
  return target;
}

//===----------------------------------------------------------------------===//
// x86-64
//===----------------------------------------------------------------------===//

static constexpr CPUTarget portable = {.name = "portable",
                                       .runsOn = SaccadeCPUTargetPortable,
                                       .triple = "x86_64-unknown-linux-gnu",
                                       .cpu = "x86-64",
                                       .entryCPU = "x86-64",
                                       .vectorBits = 128,
                                       .vectorRegisters = 16,
                                       .shapes = sixteenWithoutFMA,
                                       .tiles = smallTiles};
static constexpr CPUTarget v3 = {.name = "v3",
                                 .runsOn = SaccadeCPUTargetV3,
                                 .triple = portable.triple,
                                 .cpu = "x86-64-v3",
                                 .entryCPU = portable.entryCPU,
                                 .vectorBits = 256,
                                 .vectorRegisters = 16,
                                 .hasFMA = true,
                                 .hasF16Conversions = true,
                                 .shapes = sixteen,
                                 .tiles = smallTiles};
static constexpr CPUTarget v3Int8 = [] {
  CPUTarget target = derived(v3, "v3-int8", SaccadeCPUTargetV3Int8, "+avxvnniint8");
  target.int8Dot = Int8Dot::VPDPBSSD;
  return target;
}();
static constexpr CPUTarget v4 = {.name = "v4",
                                 .runsOn = SaccadeCPUTargetV4,
                                 .triple = portable.triple,
                                 .cpu = "x86-64-v4",
                                 .features = "-prefer-256-bit",
                                 .entryCPU = portable.entryCPU,
                                 .vectorBits = 512,
                                 .vectorRegisters = 32,
                                 .hasFMA = true,
                                 .hasF16Conversions = true,
                                 .hasAVX512 = true,
                                 .shapes = thirtyTwo,
                                 .tiles = tiles};
static constexpr CPUTarget v4BF16 = [] {
  CPUTarget target = derived(v4, "v4-bf16", SaccadeCPUTargetV4BF16, "-prefer-256-bit,+avx512bf16,+avx512vnni");
  target.bf16Dot = BF16Dot::VDPBF16PS;
  target.int8Dot = Int8Dot::VPDPBUSD;
  return target;
}();
static constexpr CPUTarget v4AMX = [] {
  CPUTarget target =
      derived(v4BF16, "v4-amx", SaccadeCPUTargetV4AMX, "-prefer-256-bit,+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16");
  target.hasTiles = true;
  return target;
}();

/// The target whose code runs on the processors of v3, with the kernels of `target`.
static constexpr CPUTarget expanded(CPUTarget target, llvm::StringRef name) {
  target.expandedFrom = target.name;
  target.cpu = v3.cpu;
  return derived(target, name, v3.runsOn, v3.features);
}

//===----------------------------------------------------------------------===//
// AArch64
//===----------------------------------------------------------------------===//

static constexpr CPUTarget aarch64 = {.name = "aarch64",
                                      .runsOn = SaccadeCPUTargetAArch64,
                                      .triple = "aarch64-unknown-linux-gnu",
                                      .cpu = "generic",
                                      .entryCPU = "generic",
                                      .vectorBits = 128,
                                      .vectorRegisters = 32,
                                      .hasFMA = true,
                                      .hasF16Conversions = true,
                                      .hasLaneProducts = true,
                                      .shapes = thirtyTwoNarrow,
                                      .tiles = tiles};
static constexpr CPUTarget aarch64BF16 = [] {
  CPUTarget target = derived(aarch64, "aarch64-bf16", SaccadeCPUTargetAArch64BF16, "+bf16,+i8mm");
  target.bf16Dot = BF16Dot::BFDOT;
  target.int8Dot = Int8Dot::SMMLA;
  return target;
}();
static constexpr CPUTarget aarch64SVE256 = [] {
  CPUTarget target = derived(aarch64BF16, "aarch64-sve256", SaccadeCPUTargetAArch64SVE256, "+sve,+bf16,+i8mm");
  target.vectorBits = 256;
  target.hasLaneProducts = false;
  target.hasSVE = true;
  return target;
}();

static constexpr CPUTarget targets[] = {portable,
                                        v3,
                                        v3Int8,
                                        v4,
                                        v4BF16,
                                        v4AMX,
                                        expanded(v4, "v4-expanded"),
                                        expanded(v4BF16, "v4-bf16-expanded"),
                                        expanded(v4AMX, "v4-amx-expanded"),
                                        aarch64,
                                        aarch64BF16,
                                        aarch64SVE256};

llvm::StringRef saccade::stringify(BF16Dot instruction) {
  switch (instruction) {
  case BF16Dot::None:
    return "";
  case BF16Dot::VDPBF16PS:
    return "vdpbf16ps";
  case BF16Dot::BFDOT:
    return "bfdot";
  }
  llvm_unreachable("unknown instruction");
}

llvm::StringRef saccade::stringify(Int8Dot instruction) {
  switch (instruction) {
  case Int8Dot::None:
    return "";
  case Int8Dot::VPDPBUSD:
    return "vpdpbusd";
  case Int8Dot::VPDPBSSD:
    return "vpdpbssd";
  case Int8Dot::SMMLA:
    return "smmla";
  }
  llvm_unreachable("unknown instruction");
}

bool saccade::hostRuns(const CPUTarget &target) { return runtime::hostRuns(target.processor()); }

std::string saccade::explainHostRefusal(const CPUTarget &target) {
  std::string message = ("this machine cannot run code for target '" + target.name + "'").str();
  if (target.processor().architecture != runtime::hostProcessor().architecture)
    message +=
        ", which is for processors of another architecture; saccade-run runs it in an emulator that --runner names, "
        "and saccade-compile writes files for them";
  return message;
}

const CPUTarget *saccade::lookupCPUTarget(llvm::StringRef name) {
  if (name != "host") {
    const CPUTarget *found = llvm::find_if(targets, [&](const CPUTarget &target) { return target.name == name; });
    return found == std::end(targets) ? nullptr : found;
  }
  static const CPUTarget *best = [] {
    const CPUTarget *best = nullptr;
    for (const CPUTarget &target : targets)
      if (!target.isExpanded() && (!best || target.processor().rank() >= best->processor().rank()) && hostRuns(target))
        best = &target;
    return best; // every architecture has a target without features
  }();
  return best;
}

const CPUTarget &saccade::baselineCPUTarget(runtime::Architecture architecture) {
  return *llvm::find_if(targets, [&](const CPUTarget &target) {
    return target.processor().architecture == architecture && target.processor().features == 0;
  });
}

const CPUTarget *saccade::requireCPUTarget(mlir::Operation *op, llvm::StringRef name) {
  const CPUTarget *target = lookupCPUTarget(name);
  if (!target)
    op->emitError() << "unknown target '" << name << "', expected one of " << cpuTargetNames();
  return target;
}

llvm::StringRef saccade::cpuTargetNames() {
  static const std::string names =
      "host, " + llvm::join(llvm::map_range(targets, [](const CPUTarget &target) { return target.name; }), ", ");
  return names;
}
