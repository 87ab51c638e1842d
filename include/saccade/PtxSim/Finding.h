//===- Finding.h - What the PTX simulator reports -------------------*- C++ -*-===//
#ifndef SACCADE_PTXSIM_FINDING_H
#define SACCADE_PTXSIM_FINDING_H

#include <cstdint>
#include <string>

namespace saccade::ptxsim {

/// What kind of error a finding is.
enum class FindingKind : uint8_t {
  Syntax,        ///< the text is no PTX that the parser knows
  Unsupported,   ///< an instruction, modifier or operand that is not simulated
  BadLaunch,     ///< the launch does not fit the kernel: parameters, block size, shared memory
  OutOfBounds,   ///< an access outside of every allocation, or of another one than it began in
  Misaligned,    ///< an address that is no multiple of the access size
  ReadOnly,      ///< a write to parameters or constants, or `ld.global.nc` of what this launch wrote
  Uninitialised, ///< an undefined value decided something: an address, a branch, an output, a product
  Race,          ///< two accesses of shared memory that nothing orders, one of them a write
  Divergence,    ///< an instruction for the whole warp reached by a part of it
  Deadlock,      ///< warps wait for a barrier that nobody can complete
  Unwaited,      ///< a thread ended while its own asynchronous copies were under way
  Arithmetic,    ///< an integer division by zero, whose result PTX leaves open
  BadOperand,    ///< a run-time operand outside of what the instruction takes
  Trap,          ///< `trap` was executed
  Endless,       ///< more instructions than the launch allows
};

/// "race", "deadlock", ...
const char *name(FindingKind kind);

/// One error. `line` counts from 1 in the PTX text (0: no line); `source` is the text of that line.
struct Finding {
  FindingKind kind;
  unsigned line = 0;
  std::string source;
  std::string message;

  /// "line 12: race: <message>\n    12 | <source>".
  std::string str() const;
};

} // namespace saccade::ptxsim

#endif // SACCADE_PTXSIM_FINDING_H
