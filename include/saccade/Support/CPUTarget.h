//===- CPUTarget.h - The CPU targets code is generated for --------*- C++ -*-===//
//
// What schedule and code generators must know of a processor. One row a level; nothing else
// in the compiler asks for an ISA by name.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_CPUTARGET_H
#define SACCADE_SUPPORT_CPUTARGET_H

#include "mlir/IR/Types.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace mlir {
class Operation;
}

namespace saccade {

/// An x86-64 CPU target.
struct CPUTarget {
  llvm::StringRef name;     ///< as given to --target: "portable", "v3", "v4", "v4-bf16"
  llvm::StringRef cpu;      ///< LLVM -mcpu
  llvm::StringRef features; ///< LLVM feature string on top of it
  unsigned vectorBits;      ///< native vector width
  unsigned vectorRegisters; ///< architectural vector registers
  bool hasFMA;              ///< fused multiply-add instructions
  bool hasF16C;             ///< conversions between f16 and f32
  bool hasAVX512;           ///< vscalef, vreduce and mask registers
  bool hasBF16Dot;          ///< vdpbf16ps

  /// How many elements of `bits` bits one register holds.
  unsigned lanes(unsigned bits) const { return vectorBits / bits; }
  /// How many neighbours along the reduced dimension of a product of such elements one instruction multiplies and sums in
  /// a lane: 2 for bf16 with vdpbf16ps, else 1.
  unsigned packingFactor(mlir::Type left, mlir::Type right) const;
};

/// The rows that are computed together, and that tasks are cut into multiples of: every register block's row count
/// divides it.
inline constexpr int64_t rowGroup = 12;

/// The level of that name, or null. "host" is the best level that this machine runs.
const CPUTarget *lookupCPUTarget(llvm::StringRef name);

/// The same for a pass: where there is no such level, an error at `op` that names those there are.
const CPUTarget *requireCPUTarget(mlir::Operation *op, llvm::StringRef name);

/// All names that `lookupCPUTarget` knows, for messages: "host, portable, v3, v4, v4-bf16".
llvm::StringRef cpuTargetNames();

} // namespace saccade

#endif // SACCADE_SUPPORT_CPUTARGET_H
