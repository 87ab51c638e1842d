//===- SharedLibrary.h - Shared libraries and their C headers -----*- C++ -*-===//
//
// Links a program that is compiled ahead of time into a shared library and generates its C header.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TARGET_SHAREDLIBRARY_H
#define SACCADE_TARGET_SHAREDLIBRARY_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <string>
#include <vector>

namespace saccade {

/// The functions that a shared library exports, and their C header.
struct LibraryInterface {
  std::vector<std::string> entries; ///< names of the functions, each valid within a C identifier
  std::string header;               ///< a self-contained C header
};

/// Reads the public functions of a program, before or after the pipeline (after it if weights are prepacked).
/// `fileName` is the name of the header, which documents GPU tensors if `hasKernels`. Returns nullopt after a
/// diagnostic if there is no public function or the name of one cannot be part of a C identifier.
std::optional<LibraryInterface> getLibraryInterface(mlir::ModuleOp program, llvm::StringRef fileName,
                                                    bool hasKernels = false);

/// Links an object made by `emitObject` with the runtime. The library exports the wrappers of `entries`. It depends on
/// libc.so.6, and on libm.so.6 if the program calls it; one with kernels loads the CUDA driver at the first call. The
/// output is deterministic. Uses temporary files: failure to read or write one is an `llvm::FileError`, any other error
/// is a bug in Saccade. Thread-safe.
llvm::Expected<llvm::SmallVector<char, 0>>
linkSharedLibrary(llvm::StringRef object, llvm::ArrayRef<std::string> entries, bool hasKernels = false);

} // namespace saccade

#endif // SACCADE_TARGET_SHAREDLIBRARY_H
