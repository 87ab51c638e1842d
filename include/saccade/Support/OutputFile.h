//===- OutputFile.h - Atomic writes of output files ---------------*- C++ -*-===//
//
// Writes the output files of the tools: regular files are replaced atomically, devices and pipes are written in place.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_OUTPUTFILE_H
#define SACCADE_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace saccade {

/// Writes a file, or standard output if `path` is "-". A regular or new file is written to a temporary file in the same
/// folder and renamed when it is complete; symbolic links are followed. `last` runs after the contents are written and
/// before the rename; if it fails, the file is discarded.
llvm::Error writeOutput(
    llvm::StringRef path, llvm::function_ref<llvm::Error(llvm::raw_ostream &)> write,
    llvm::function_ref<llvm::Error()> last = [] { return llvm::Error::success(); });

/// Whether an output file would replace an input: both paths refer to the same regular file (device and inode), also
/// through links. "-" as the input is standard input; "-" as the output never is.
bool isSameFile(llvm::StringRef input, llvm::StringRef output);

/// Flushes standard output and returns its first write error.
llvm::Error flushStandardOutput();

} // namespace saccade

#endif // SACCADE_SUPPORT_OUTPUTFILE_H
