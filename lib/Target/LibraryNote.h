//===- LibraryNote.h - The note that identifies a shared library -*- C++ -*-===//
#ifndef SACCADE_LIB_TARGET_LIBRARYNOTE_H
#define SACCADE_LIB_TARGET_LIBRARYNOTE_H

#include "llvm/ADT/ArrayRef.h"

namespace saccade {

/// Writes the size and the SHA-256 of a linked library into its note, if it has one.
void sealLibraryNote(llvm::MutableArrayRef<char> library);

} // namespace saccade

#endif // SACCADE_LIB_TARGET_LIBRARYNOTE_H
