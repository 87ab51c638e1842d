//===- SharedLibrary.h - One file that any host can load ----------*- C++ -*-===//
//
// The linker and the C header of a program compiled ahead of time.
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

/// What a shared library offers of a program, and the text that says so in C.
struct LibraryInterface {
  std::vector<std::string> entries; ///< names of its functions, each part of a C identifier
  std::string header;               ///< a C header that includes nothing of ours
};

/// Reads the public functions of a program: before it is compiled, or behind, where its weights are prepacked. `fileName` is that of the header, for its text only,
/// which tells of tensors on a GPU where `hasKernels` says so.
/// Nothing after a diagnostic where there is none, or where the name of one cannot be part of a C function's name.
std::optional<LibraryInterface> getLibraryInterface(mlir::ModuleOp program, llvm::StringRef fileName,
                                                    bool hasKernels = false);

/// Links the object that `emitObject` made with the runtime. The library exports the faces of `entries` and needs
/// libc.so.6 only, and libm.so.6 where the program calls it; one with kernels loads NVIDIA's driver when it is called. The
/// same object gives the same bytes.
/// Works on files in the system's folder for temporary ones; where one of them cannot be read or written the error is
/// an `llvm::FileError`, any other is a bug of ours. May be called from several threads.
llvm::Expected<llvm::SmallVector<char, 0>> linkSharedLibrary(llvm::StringRef object,
                                                             llvm::ArrayRef<std::string> entries,
                                                             bool hasKernels = false);

} // namespace saccade

#endif // SACCADE_TARGET_SHAREDLIBRARY_H
