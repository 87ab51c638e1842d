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

/// Links the host modules of one program for further targets into `into`, and chains the tables of each of the
/// `entries`, as SaccadeEntry describes. The modules, `into` first, are those of CPU targets in the order in which a
/// call tries them, then those of GPUs, of which the first has the number `firstGPU`.
llvm::Error joinTargets(llvm::Module &into, std::vector<std::unique_ptr<llvm::Module>> others, size_t firstGPU,
                        llvm::ArrayRef<std::string> entries);

/// Adds the note from which `saccade.load` reads the `targets` and `entries` of a library, and whether the file is
/// complete and unchanged. linkSharedLibrary writes its hash.
void addLibraryNote(llvm::Module &module, llvm::ArrayRef<llvm::StringRef> targets, llvm::ArrayRef<std::string> entries);

/// Links an object made by `emitObject` for `target` with the runtime for its architecture. The library exports the
/// wrappers of `entries`. It depends on libc.so.6, and on libm.so.6 if the program calls it; one with kernels loads the
/// CUDA driver at the first call. The output is deterministic. Uses temporary files: failure to read or write one is an
/// `llvm::FileError`, any other error is a bug in Saccade. Thread-safe.
llvm::Expected<llvm::SmallVector<char, 0>> linkSharedLibrary(llvm::StringRef object,
                                                             llvm::ArrayRef<std::string> entries,
                                                             const CPUTarget &target, bool hasKernels = false);

} // namespace saccade

#endif // SACCADE_TARGET_SHAREDLIBRARY_H
