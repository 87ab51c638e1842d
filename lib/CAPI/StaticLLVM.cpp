//===- StaticLLVM.cpp - Definitions for the static build ----------------------===//
//
// Part of libsaccade.so only if LLVM is linked statically.
//
//===----------------------------------------------------------------------===//
#include "llvm/Plugins/PassPlugin.h"
#include <cstdint>
#include <cstdlib>
#include <unistd.h>

/// LLVM's archives were compiled for glibc 2.36, which introduced this function; with a definition, the library loads
/// with older versions too. The name stays local (exports.map).
extern "C" uint32_t arc4random() noexcept {
  uint32_t number;
  if (getentropy(&number, sizeof(number)) != 0)
    std::abort(); // as glibc does
  return number;
}

// Extensions of LLVM, such as Polly, are registered by the pipeline of link-time optimization, which LLD contains and
// Saccade does not run. An extension that registers nothing takes the place of each.
#define HANDLE_EXTENSION(Extension)                                                                                    \
  llvm::PassPluginLibraryInfo get##Extension##PluginInfo() {                                                           \
    return {LLVM_PLUGIN_API_VERSION, #Extension, LLVM_VERSION_STRING, [](llvm::PassBuilder &) {}};                     \
  }
#include "llvm/Support/Extension.def"
