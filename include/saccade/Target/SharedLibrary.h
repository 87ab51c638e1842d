//===- SharedLibrary.h - Shared libraries and their C headers -----*- C++ -*-===//
//
// Links a program that is compiled ahead of time into a shared library and generates its C header.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TARGET_SHAREDLIBRARY_H
#define SACCADE_TARGET_SHAREDLIBRARY_H

#include "mlir/IR/BuiltinOps.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/GPUTarget.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class Module;
}

namespace saccade {

/// A target of a library: a CPU, or a GPU, whose host code runs on every CPU.
struct LibraryTarget {
  const CPUTarget *cpu = nullptr;
  const GPUTarget *gpu = nullptr; ///< null for a CPU

  llvm::StringRef name() const { return gpu ? gpu->name : cpu->name; }
};

/// The functions that a shared library exports, and their C header.
struct LibraryInterface {
  std::vector<std::string> entries; ///< names of the functions, each valid within a C identifier
  std::string header;               ///< a self-contained C header
};

/// Reads the public functions of a program, before or after the pipeline (after it if weights are prepacked).
/// `fileName` is the name of the header, which documents where the tensors of these `targets` are. Returns nullopt
/// after a diagnostic if there is no public function or the name of one cannot be part of a C identifier.
std::optional<LibraryInterface> getLibraryInterface(mlir::ModuleOp program, llvm::StringRef fileName,
                                                    llvm::ArrayRef<LibraryTarget> targets);

/// Whether a program has the same machine code for two CPU targets, one part of a library: `a` and `b` are the program
/// compiled for `forA`, and for `forB`, whose features `forA` has. The part is generated for `forB`.
bool haveEqualCode(mlir::ModuleOp a, const CPUTarget &forA, mlir::ModuleOp b, const CPUTarget &forB);

/// Host code as a part of a library.
struct LibraryPart {
  /// All targets of the library: CPU targets in the order in which a call tries them, then GPUs.
  llvm::ArrayRef<LibraryTarget> targets;
  size_t first = 0; ///< the number of the first target that runs the code
  size_t count = 1; ///< the number of consecutive targets that run it

  /// The target for which the code is generated, which the others include.
  const LibraryTarget &target() const { return targets[first + count - 1]; }
};

/// Makes the translated host code of a program a part of a library: the `entries` get a table for each target of the
/// part, chained to those of the other parts as SaccadeEntry describes, and symbols other than the tables and, in the
/// first part, the exported ones become internal. The linker keeps one copy of equal constants of several parts. The
/// code of a library for one target is not changed.
void addToLibrary(llvm::Module &host, const LibraryPart &part, llvm::ArrayRef<std::string> entries);

/// Adds the note from which `saccade.load` reads the `targets` and `entries` of a library, and whether the file is
/// complete and unchanged. linkSharedLibrary writes its hash.
void addLibraryNote(llvm::Module &module, llvm::ArrayRef<llvm::StringRef> targets, llvm::ArrayRef<std::string> entries);

/// Links objects made by `emitObject` with the runtime for the architecture of `target`. The library exports the
/// wrappers of `entries`. It depends on libc.so.6, and on libm.so.6 if the program calls it; one with kernels loads the
/// CUDA driver at the first call. The output is deterministic. Uses temporary files: failure to read or write one is an
/// `llvm::FileError`, any other error is a bug in Saccade. Thread-safe.
llvm::Expected<llvm::SmallVector<char, 0>> linkSharedLibrary(llvm::ArrayRef<llvm::StringRef> objects,
                                                             llvm::ArrayRef<std::string> entries,
                                                             const CPUTarget &target, bool hasKernels = false);

} // namespace saccade

#endif // SACCADE_TARGET_SHAREDLIBRARY_H
