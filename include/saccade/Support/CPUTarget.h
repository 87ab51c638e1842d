//===- CPUTarget.h - The CPU targets code is generated for --------*- C++ -*-===//
//
// The processor properties that scheduling and code generation depend on, one table row per CPU target. No other
// component tests for an ISA by name.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_CPUTARGET_H
#define SACCADE_SUPPORT_CPUTARGET_H

#include "mlir/IR/Types.h"
#include "mlir/Support/LLVM.h"
#include "saccade/Runtime/Entry.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace mlir {
class Operation;
}

namespace saccade {

/// An x86-64 CPU target. An expanded target has the properties of a level, and thus its schedules and kernels, but its
/// code runs on processors of a lower level: `translate` expands the intrinsics that these lack.
struct CPUTarget {
  llvm::StringRef name;     ///< as given to --target: "portable", "v3", "v4", "v4-bf16", "v4-amx", "v4-expanded"
  llvm::StringRef cpu;      ///< LLVM -mcpu
  llvm::StringRef features; ///< LLVM feature string in addition to `cpu`
  unsigned vectorBits;      ///< native vector width
  unsigned vectorRegisters; ///< architectural vector registers
  bool hasFMA;              ///< fused multiply-add instructions
  bool hasF16C;             ///< conversions between f16 and f32
  bool hasAVX512;           ///< vscalef, vreduce and mask registers
  bool hasBF16Dot;          ///< vdpbf16ps
  bool hasTiles;            ///< AMX tile registers and tdpbf16ps
  SaccadeCPUTarget runsOn;  ///< the least level of a processor that runs the code

  /// Whether the kernels use AVX-512 intrinsics and the code runs on processors without them.
  bool isExpanded() const { return hasAVX512 && runsOn < SaccadeCPUTargetV4; }
  /// The number of elements of `bits` bits in a vector register.
  unsigned lanes(unsigned bits) const { return vectorBits / bits; }
  /// The number of consecutive K elements of a matmul of these element types that one instruction multiplies and sums
  /// in a 32-bit lane: 2 for bf16 with vdpbf16ps, else 1.
  unsigned packingFactor(mlir::Type lhs, mlir::Type rhs) const;
  /// Whether matmuls of k-packs of `packingFactor` elements are computed in tile registers.
  bool usesTiles(unsigned packingFactor) const { return hasTiles && packingFactor == 2; }
  /// The rows of queries that attention computes together in a task of `rows` rows.
  int64_t groupRows(unsigned packingFactor, int64_t rows) const;
};

/// Task and tile row counts are multiples of this; the MR of every register block divides it.
inline constexpr int64_t rowGroup = 12;
/// The same in tile registers: two of 16 rows.
inline constexpr int64_t tileRowGroup = 32;

/// The CPU target `name`, or null. "host" is the most capable target that this machine runs.
const CPUTarget *lookupCPUTarget(llvm::StringRef name);

/// lookupCPUTarget for passes: an unknown name is an error at `op` that lists the valid names.
const CPUTarget *requireCPUTarget(mlir::Operation *op, llvm::StringRef name);

/// Whether this machine can execute code for `target`: the processor has the instructions, and the operating system
/// permits tile registers if the target has them.
bool hostRuns(const CPUTarget &target);

/// The names that `lookupCPUTarget` accepts, for messages: "host, portable, v3, ...".
llvm::StringRef cpuTargetNames();

} // namespace saccade

#endif // SACCADE_SUPPORT_CPUTARGET_H
