//===- Embedded.h - Files embedded in the compiler ----------------*- C++ -*-===//
//
// The files for linking and for C headers, so that the tools do not require an installed runtime or C library headers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H
#define SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H

#include "saccade/Runtime/CPUTargets.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace saccade::embedded {

/// What a shared library is linked with.
struct LinkFiles {
  llvm::StringRef runtime;    ///< an archive of objects with hidden symbols
  llvm::StringRef libc, libm; ///< stubs without code that define symbols of libc.so.6 and libm.so.6
};

/// The files for an architecture; nullopt if this build has none for it.
std::optional<LinkFiles> linkFiles(runtime::Architecture architecture);
/// include/saccade-c/DLTensor.h
llvm::StringRef dlTensorHeader();

} // namespace saccade::embedded

#endif // SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H
