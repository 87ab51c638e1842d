//===- OutputFile.h - Write what a tool makes ---------------------*- C++ -*-===//
//
// Nobody ever sees half a file, and what is no regular file stays what it is.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_OUTPUTFILE_H
#define SACCADE_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace saccade {

/// Writes a file, or standard output where `path` is '-'. A regular file or a new one is made beside its place and
/// moved there when it is complete; links are followed. Devices and pipes are written in place. `last` runs when all is
/// written but not yet in its place; where it fails the file stays out of it.
llvm::Error writeOutput(
    llvm::StringRef path, llvm::function_ref<llvm::Error(llvm::raw_ostream &)> write,
    llvm::function_ref<llvm::Error()> last = [] { return llvm::Error::success(); });

/// Flushes standard output and says what went wrong with it so far.
llvm::Error flushStandardOutput();

} // namespace saccade

#endif // SACCADE_SUPPORT_OUTPUTFILE_H
