//===- DebugTypes.h - Debug output by pass --------------------------*- C++ -*-===//
//
// Passes print with DEBUG_WITH_TYPE("attn-<pass>", ...). The packaged LLVM has no -debug-only option, so the tools have
// one of their own.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_DEBUGTYPES_H
#define SACCADE_SUPPORT_DEBUGTYPES_H

#include "llvm/ADT/StringRef.h"

namespace saccade {

/// Enables the debug output of these comma-separated types, the flags of passes without dashes, on stderr. False if the
/// build has no debug output (NDEBUG).
bool setDebugTypes(llvm::StringRef types);

} // namespace saccade

#endif
