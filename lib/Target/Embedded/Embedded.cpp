//===- Embedded.cpp - Files embedded in the compiler --------------------------===//
//
// Embeds files with the assembler directive .incbin. Compiler caches do not track the dependencies of #embed.
//
//===----------------------------------------------------------------------===//
#include "Embedded.h"

#define EMBED(name, file)                                                                                              \
  asm(".pushsection .rodata." #name ", \"a\", @progbits\n"                                                             \
      ".balign 16\n"                                                                                                   \
      "saccade_embedded_" #name ":\n"                                                                                  \
      ".incbin \"" file "\"\n"                                                                                         \
      "saccade_embedded_" #name "_end:\n"                                                                              \
      ".globl saccade_embedded_" #name ", saccade_embedded_" #name "_end\n"                                            \
      ".hidden saccade_embedded_" #name ", saccade_embedded_" #name "_end\n"                                           \
      ".popsection");                                                                                                  \
  extern "C" __attribute__((visibility("hidden"))) const char saccade_embedded_##name[], saccade_embedded_##name##_end[]

EMBED(runtime, SACCADE_EMBED_RUNTIME);
EMBED(libc, SACCADE_EMBED_LIBC);
EMBED(libm, SACCADE_EMBED_LIBM);
EMBED(dltensor, SACCADE_EMBED_DLTENSOR);
#ifdef SACCADE_EMBED_RUNTIME_AARCH64
EMBED(runtime_aarch64, SACCADE_EMBED_RUNTIME_AARCH64);
EMBED(libc_aarch64, SACCADE_EMBED_LIBC_AARCH64);
EMBED(libm_aarch64, SACCADE_EMBED_LIBM_AARCH64);
#endif

static llvm::StringRef between(const char *begin, const char *end) {
  return llvm::StringRef(begin, static_cast<size_t>(end - begin));
}

#define TEXT(name) between(saccade_embedded_##name, saccade_embedded_##name##_end)

std::optional<saccade::embedded::LinkFiles> saccade::embedded::linkFiles(runtime::Architecture architecture) {
  if (architecture == runtime::hostProcessor().architecture)
    return LinkFiles{TEXT(runtime), TEXT(libc), TEXT(libm)};
#ifdef SACCADE_EMBED_RUNTIME_AARCH64
  if (architecture == runtime::Architecture::AArch64)
    return LinkFiles{TEXT(runtime_aarch64), TEXT(libc_aarch64), TEXT(libm_aarch64)};
#endif
  return std::nullopt;
}

llvm::StringRef saccade::embedded::dlTensorHeader() { return TEXT(dltensor); }
