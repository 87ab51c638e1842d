//===- CPUTargets.h - Processors that run a CPU target -----------*- C++ -*-===//
#ifndef SACCADE_RUNTIME_CPUTARGETS_H
#define SACCADE_RUNTIME_CPUTARGETS_H

#include "saccade/Runtime/Entry.h"
#include <bit>
#include <cstddef>

namespace saccade::runtime {

/// Architectures of processors.
enum class Architecture : int32_t { X86, AArch64 };

/// A row of CPUTargets.def: what a processor must have to run the code of a target.
struct CPUTargetRow {
  const char *name; ///< for --target, such as "v4-bf16"
  Architecture architecture;
  uint64_t features; ///< a set of bits, one for each SACCADE_CPU_FEATURE

  /// Whether code for `other` runs wherever code for this target does.
  bool includes(const CPUTargetRow &other) const {
    return architecture == other.architecture && (other.features & ~features) == 0;
  }
  /// Of two targets that a processor runs, the one of higher rank is preferred, or the later row if both are equal. A
  /// target has a higher rank than those that it includes, wherever their rows are.
  int rank() const { return std::popcount(features); }
  /// Whether code of the target uses AMX tile registers, for which the operating system must give a permission.
  bool hasTiles() const;
};

/// The row of `target`, or null for one that this version does not know.
const CPUTargetRow *findCPUTarget(int32_t target);

/// The architecture and the features of this processor; cached.
CPUTargetRow hostProcessor();

/// Whether the operating system permits tile registers. The first call asks for the permission, which is not done
/// before code needs it, because it makes small alternate signal stacks invalid. Cached.
bool mayUseTileRegisters();

/// Whether this processor has the features of `target`, and the permission for tile registers if it needs them.
bool hostRuns(const CPUTargetRow &target);

/// The preferred target whose features the processor has, for messages.
const CPUTargetRow &hostCPUTarget();

/// The target that calls are limited to, or null without a limit.
const CPUTargetRow *cpuLimit();
/// Writes the names of the targets of this architecture, such as "portable, v3, v4".
void writeCPUTargetNames(char *text, size_t bytes);
/// Limits calls to code that runs on processors of the target `name`, or removes the limit if `name` is null. Returns
/// false if this architecture has no target of the name.
bool limitCPUTarget(const char *name);

} // namespace saccade::runtime

#endif // SACCADE_RUNTIME_CPUTARGETS_H
