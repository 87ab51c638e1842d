//===- Embedded.h - The files inside the compiler -----------------*- C++ -*-===//
//
// What linking and header writing need, so that nothing of ours or the system's must be installed beside the tool.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H
#define SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H

#include "llvm/ADT/StringRef.h"

namespace saccade::embedded {

/// The runtime as an archive of objects with hidden symbols.
llvm::StringRef runtimeArchive();
/// Shared libraries without code that name what libc.so.6 and libm.so.6 offer.
llvm::StringRef libcStub();
llvm::StringRef libmStub();
/// include/saccade-c/DLTensor.h
llvm::StringRef dlTensorHeader();

} // namespace saccade::embedded

#endif // SACCADE_LIB_TARGET_EMBEDDED_EMBEDDED_H
