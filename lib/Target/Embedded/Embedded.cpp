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

static llvm::StringRef between(const char *begin, const char *end) {
  return llvm::StringRef(begin, static_cast<size_t>(end - begin));
}

#define TEXT(name) between(saccade_embedded_##name, saccade_embedded_##name##_end)
llvm::StringRef saccade::embedded::runtimeArchive() { return TEXT(runtime); }
llvm::StringRef saccade::embedded::libcStub() { return TEXT(libc); }
llvm::StringRef saccade::embedded::libmStub() { return TEXT(libm); }
llvm::StringRef saccade::embedded::dlTensorHeader() { return TEXT(dltensor); }
