//===- CPUTarget.cpp - The table of CPU targets --------------------------------===//
//
// For x86-64, the targets are the microarchitecture levels of the psABI; v4-bf16 adds AVX512_BF16 and
// AVX512_VNNI, which all processors with the former have, v4-amx AMX. The
// expanded targets are for tests: they run the kernels of another target on every processor with AVX2.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/CPUTarget.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace saccade;

static constexpr const char *x86 = "x86_64-unknown-linux-gnu";
static constexpr const char *aarch64 = "aarch64-unknown-linux-gnu";
static constexpr const char *avx512 = "-prefer-256-bit";
static constexpr const char *withBF16 = "-prefer-256-bit,+avx512bf16,+avx512vnni";
static constexpr const char *withTiles = "-prefer-256-bit,+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16";

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

static const CPUTarget targets[] = {
    // name, runs on, triple, cpu, features, CPU of entries, bits, registers, FMA, F16 conversions, AVX-512, bf16 dot,
    // tile registers, int8 dot, products of lanes, SVE, shapes, tiles of attention, expanded from
    {"portable", SaccadeCPUTargetPortable, x86, "x86-64", "", "x86-64", 128, 16, false, false, false, "", false, "",
     false, false, sixteenWithoutFMA, smallTiles},
    {"v3", SaccadeCPUTargetV3, x86, "x86-64-v3", "", "x86-64", 256, 16, true, true, false, "", false, "", false, false,
     sixteen, smallTiles},
    {"v4", SaccadeCPUTargetV4, x86, "x86-64-v4", avx512, "x86-64", 512, 32, true, true, true, "", false, "", false,
     false, thirtyTwo, tiles},
    {"v4-bf16", SaccadeCPUTargetV4BF16, x86, "x86-64-v4", withBF16, "x86-64", 512, 32, true, true, true, "vdpbf16ps",
     false, "vpdpbusd", false, false, thirtyTwo, tiles},
    {"v4-amx", SaccadeCPUTargetV4AMX, x86, "x86-64-v4", withTiles, "x86-64", 512, 32, true, true, true, "vdpbf16ps",
     true, "vpdpbusd", false, false, thirtyTwo, tiles},
    {"v4-expanded", SaccadeCPUTargetV3, x86, "x86-64-v3", "", "x86-64", 512, 32, true, true, true, "", false, "", false,
     false, thirtyTwo, tiles, "v4"},
    {"v4-bf16-expanded", SaccadeCPUTargetV3, x86, "x86-64-v3", "", "x86-64", 512, 32, true, true, true, "vdpbf16ps",
     false, "vpdpbusd", false, false, thirtyTwo, tiles, "v4-bf16"},
    {"v4-amx-expanded", SaccadeCPUTargetV3, x86, "x86-64-v3", "", "x86-64", 512, 32, true, true, true, "vdpbf16ps",
     true, "vpdpbusd", false, false, thirtyTwo, tiles, "v4-amx"},
    {"aarch64", SaccadeCPUTargetAArch64, aarch64, "generic", "", "generic", 128, 32, true, true, false, "", false, "",
     true, false, thirtyTwoNarrow, tiles},
    {"aarch64-bf16", SaccadeCPUTargetAArch64BF16, aarch64, "generic", "+bf16,+i8mm", "generic", 128, 32, true, true,
     false, "bfdot", false, "smmla", true, false, thirtyTwoNarrow, tiles},
    {"aarch64-sve256", SaccadeCPUTargetAArch64SVE256, aarch64, "generic", "+sve,+bf16,+i8mm", "generic", 256, 32, true,
     true, false, "bfdot", false, "smmla", false, true, thirtyTwoNarrow, tiles},
};

bool saccade::hostRuns(const CPUTarget &target) { return runtime::hostRuns(target.processor()); }

std::string saccade::explainHostRefusal(const CPUTarget &target) {
  std::string message = ("this machine cannot run code for target '" + target.name + "'").str();
  if (target.processor().architecture != runtime::hostProcessor().architecture)
    message +=
        ", which is for processors of another architecture; saccade-run runs it in an emulator that --runner names, "
        "and saccade-compile writes files for them";
  return message;
}

unsigned CPUTarget::packingFactor(mlir::Type lhs, mlir::Type rhs) const {
  if (hasTiles && lhs.isF16() && rhs.isF16())
    return 2;
  return lhs == rhs ? vectorPackingFactor(lhs) : 1;
}

unsigned saccade::partsOfElements(mlir::Type element, unsigned packingFactor) {
  return element.isF16() && packingFactor == 2 ? 2 : 1;
}

unsigned CPUTarget::depthOfProduct(mlir::Type lhs, mlir::Type rhs, mlir::Type result) const {
  unsigned elements = lhs.isF16() && !result.isF16() ? 1 : packingFactor(lhs, rhs);
  return usesMatrixProducts(elements) ? blockDepth : elements;
}

AttentionTiles CPUTarget::attentionTiles(unsigned packingFactor) const {
  // Groups of rows in tile registers are larger, and so are the scores of a group. Processors with them have 2 MiB.
  if (usesTiles(packingFactor))
    return {.rows = 512, .cols = 512, .cacheBytes = 2 * tiles.cacheBytes};
  return {tiles.rows, tiles.cols * packingFactor, tiles.cacheBytes};
}

int64_t CPUTarget::groupRows(unsigned packingFactor, int64_t rows) const {
  return usesTiles(packingFactor) && rows % tileRowGroup == 0 ? tileRowGroup : rowGroup;
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
