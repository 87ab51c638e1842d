//===- StaticLLVM.cpp - Definitions for the static build ----------------------===//
//
// Part of libsaccade.so only if LLVM is linked statically.
//
//===----------------------------------------------------------------------===//
#include <cstdint>
#include <cstdlib>
#include <unistd.h>

/// LLVM's archives were compiled for glibc 2.36, which introduced this function; with a definition, the library loads with
/// older versions too. The name stays local (exports.map).
extern "C" uint32_t arc4random() noexcept {
  uint32_t number;
  if (getentropy(&number, sizeof(number)) != 0)
    std::abort(); // as glibc does
  return number;
}
