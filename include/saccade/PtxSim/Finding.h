//===- Finding.h - Errors that the PTX simulator reports ------------*- C++ -*-===//
#ifndef SACCADE_PTXSIM_FINDING_H
#define SACCADE_PTXSIM_FINDING_H

#include <cstdint>
#include <string>

namespace saccade::ptxsim {

/// Kind of error.
enum class FindingKind : uint8_t {
  Syntax,           ///< the text is not valid PTX
  Unsupported,      ///< an instruction, modifier or operand that is not simulated
  BadLaunch,        ///< the launch does not fit the kernel: parameters, block size, shared memory
  OutOfBounds,      ///< an access outside of every allocation or across the end of one
  Misaligned,       ///< an address that is not a multiple of the access size
  ReadOnly,         ///< a write to parameters or constants, or `ld.global.nc` of memory written by this launch
  Uninitialised,    ///< use of an undefined value as an address, a predicate, an output or an mma operand
  Race,             ///< two unordered accesses of memory or of a register of wgmma, one of them a write
  Divergence,       ///< an instruction of a warp or warpgroup reached by only some lanes or warps
  Deadlock,         ///< warps wait for a barrier that cannot complete
  Unwaited,         ///< a thread or block ended before its asynchronous operations were waited for
  Arithmetic,       ///< an integer division by zero, whose result is undefined in PTX
  BadOperand,       ///< a run-time operand outside of the instruction's range
  Trap,             ///< `trap` was executed
  InstructionLimit, ///< a warp executed more instructions than `Launch::maxInstructions`
};

/// Printed name: "race", "deadlock", ...
const char *name(FindingKind kind);

/// One error. `line` is the 1-based line of the PTX text (0: none); `source` is the text of that line.
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
