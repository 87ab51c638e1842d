//===- Embedded.h - Files embedded in the compiler ----------------*- C++ -*-===//
//
// The files for linking and for C headers, so that the tools do not require an installed runtime or C library headers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H
#define SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H

#include "llvm/ADT/StringRef.h"

namespace saccade::embedded {

/// The runtime, an archive of objects with hidden symbols.
llvm::StringRef runtimeArchive();
/// Stub libraries without code that define symbols of libc.so.6 and libm.so.6.
llvm::StringRef libcStub();
llvm::StringRef libmStub();
/// include/saccade-c/DLTensor.h
llvm::StringRef dlTensorHeader();

} // namespace saccade::embedded

#endif // SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H
