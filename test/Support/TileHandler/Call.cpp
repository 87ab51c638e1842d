//===- Call.cpp - saccade-call with tile registers in software -----------------===//
//
// Linked with saccade-call. Libraries that it loads find `syscall` here, which grants the permission to use tile
// registers without asking Linux for it.
//
//===----------------------------------------------------------------------===//
#include "Handler.h"
#include <cerrno>
#include <cstdarg>
#include <sys/syscall.h>

extern "C" __attribute__((visibility("default"))) long syscall(long number, ...) {
  constexpr long requestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
  va_list list;
  va_start(list, number);
  long words[6];
  for (long &word : words)
    word = va_arg(list, long);
  va_end(list);
  if (number == SYS_arch_prctl && words[0] == requestPermission)
    return 0;
  register long r10 asm("r10") = words[3], r8 asm("r8") = words[4], r9 asm("r9") = words[5];
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(words[0]), "S"(words[1]), "d"(words[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095)
    return result;
  errno = int(-result);
  return -1;
}

static const bool isInstalled = (tilehandler::install(), true);
