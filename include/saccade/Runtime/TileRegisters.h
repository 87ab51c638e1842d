//===- TileRegisters.h - Permission to use tile registers ---------*- C++ -*-===//
#ifndef SACCADE_RUNTIME_TILEREGISTERS_H
#define SACCADE_RUNTIME_TILEREGISTERS_H

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace saccade::runtime {

/// Asks the operating system for the right to use AMX tile registers, whose state it saves for every thread of a
/// process that has it. Returns false if it refuses, such as for an alternate signal stack that is too small. Linux
/// grants it to all threads of the process, and from then on `sigaltstack` refuses stacks that the state does not fit
/// (Documentation/arch/x86/xstate.rst).
inline bool requestTileRegisters() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long requestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
  constexpr long tileData = 18;              // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
#else
  return false;
#endif
}

} // namespace saccade::runtime

#endif // SACCADE_RUNTIME_TILEREGISTERS_H
