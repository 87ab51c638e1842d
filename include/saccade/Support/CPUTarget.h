//===- CPUTarget.h - The CPU targets code is generated for --------*- C++ -*-===//
//
// The processor properties that scheduling and code generation depend on, one table row per CPU target. No other
// component tests for a target or an ISA by name.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_CPUTARGET_H
#define SACCADE_SUPPORT_CPUTARGET_H

#include "mlir/IR/Types.h"
#include "mlir/Support/LLVM.h"
#include "saccade/Runtime/CPUTargets.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>

namespace mlir {
class Operation;
}

namespace saccade {

/// The sizes of kernels that depend on the number and width of vector registers.
struct KernelShapes {
  unsigned blockRows;         ///< rows of a register block of narrow columns: scores, packed matmuls
  unsigned wideBlockRows;     ///< rows of a register block of more than two registers of columns
  unsigned blockVectors;      ///< the most registers of columns of a register block with rows of vectors (values)
  unsigned unrolledPacks;     ///< k-packs that an iteration of a matmul multiplies
  unsigned weightVectors;     ///< registers of scores that an iteration of the softmax weighs
  unsigned unpackedRegisters; ///< accumulators of the values of split-KV
  unsigned copiedPacks;       ///< k-packs of the blocks of a matmul that copies its LHS
  unsigned prefetchedPacks;   ///< how many k-packs later the RHS of a matmul is prefetched into L1; 0 for never
  bool prefetchesPanels;      ///< whether the packed RHS of the next block of a matmul is prefetched into L2
};

/// The tile sizes of attention, which are halved until the operands of a task fit in cache.
struct AttentionTiles {
  int64_t rows;       ///< queries of a task
  int64_t cols;       ///< keys of a tile, times the elements of a k-pack
  int64_t cacheBytes; ///< the part of L2 that the operands of a task may fill
};

/// The instruction that adds products of pairs of bf16 to f32.
enum class BF16Dot { None, VDPBF16PS, BFDOT };
/// The instruction that adds products of int8 to i32.
enum class Int8Dot { None, VPDPBUSD, VPDPBSSD, SMMLA };

/// The name of the instruction for messages, such as "vdpbf16ps"; empty for none.
llvm::StringRef stringify(BF16Dot instruction);
llvm::StringRef stringify(Int8Dot instruction);

/// A CPU target. An expanded target has the properties of another one, and thus its schedules and kernels, but its code
/// runs on processors without some of these features: `translate` expands the intrinsics that they lack.
struct CPUTarget {
  llvm::StringRef name;              ///< as given to --target: "portable", "v4-bf16", "v4-expanded"
  SaccadeCPUTarget runsOn;           ///< the row of CPUTargets.def: what a processor must have to run the code
  llvm::StringRef triple;            ///< of LLVM
  llvm::StringRef cpu;               ///< LLVM -mcpu
  llvm::StringRef features = "";     ///< LLVM feature string in addition to `cpu`
  llvm::StringRef entryCPU;          ///< LLVM -mcpu of entries, which run on every processor of the architecture
  unsigned vectorBits;               ///< native vector width
  unsigned vectorRegisters;          ///< architectural vector registers
  bool hasFMA = false;               ///< fused multiply-add instructions
  bool hasF16Conversions = false;    ///< instructions that convert between f16 and f32
  bool hasAVX512 = false;            ///< vscalef, vreduce and mask registers
  BF16Dot bf16Dot = BF16Dot::None;   ///< products of bf16
  bool hasTiles = false;             ///< AMX tile registers and tdpbf16ps
  Int8Dot int8Dot = Int8Dot::None;   ///< products of int8
  bool hasLaneProducts = false;      ///< products of a vector and a lane of another register, in one instruction
  bool hasSVE = false;               ///< vectors are SVE registers of `vectorBits` bits on processors that run the code
  const KernelShapes &shapes;        ///< of the kernels
  AttentionTiles tiles;              ///< of attention, except where it uses tile registers
  llvm::StringRef expandedFrom = ""; ///< of an expanded target: the target with its properties

  /// What a processor must have to run the code.
  const runtime::CPUTargetRow &processor() const { return *runtime::findCPUTarget(runsOn); }
  /// Whether the kernels use AVX-512 intrinsics and the code runs on processors without them.
  bool isExpanded() const { return !expandedFrom.empty(); }
  /// The number of elements of `bits` bits in a vector register.
  unsigned lanes(unsigned bits) const { return vectorBits / bits; }
  bool hasBF16Dot() const { return bf16Dot != BF16Dot::None; }
};

/// Task and tile row counts are multiples of this; the MR of every register block divides it.
inline constexpr int64_t rowGroup = 12;
/// The same in tile registers: two of 16 rows.
inline constexpr int64_t tileRowGroup = 32;

/// The CPU target `name`, or null. "host" is the preferred target among those that this machine runs.
const CPUTarget *lookupCPUTarget(llvm::StringRef name);

/// The target whose code runs on every processor of an architecture.
const CPUTarget &baselineCPUTarget(runtime::Architecture architecture);

/// Whether one library may have code for both targets.
inline bool isSameArchitecture(const CPUTarget &a, const CPUTarget &b) {
  return a.processor().architecture == b.processor().architecture;
}

/// lookupCPUTarget for passes: an unknown name is an error at `op` that lists the valid names.
const CPUTarget *requireCPUTarget(mlir::Operation *op, llvm::StringRef name);

/// Whether this machine can execute code for `target`: the processor has the instructions, and the operating system
/// permits tile registers if the target has them.
bool hostRuns(const CPUTarget &target);
/// The message for a call of code for `target` on a machine that cannot execute it.
std::string explainHostRefusal(const CPUTarget &target);

/// The names that `lookupCPUTarget` accepts, for messages: "host, portable, v3, ...".
llvm::StringRef cpuTargetNames();

} // namespace saccade

#endif // SACCADE_SUPPORT_CPUTARGET_H
