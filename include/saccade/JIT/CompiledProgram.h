//===- CompiledProgram.h - A program compiled to an object --------*- C++ -*-===//
//
// The result of the compiler before it is linked into a process, and its form and key in the disk cache.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_COMPILEDPROGRAM_H
#define SACCADE_JIT_COMPILEDPROGRAM_H

#include "saccade/JIT/Executable.h"

namespace saccade {

/// An object and what is needed to call and describe it.
struct CompiledProgram {
  std::vector<Entry> entries;
  std::vector<KernelInfo> kernels;
  std::string object;      ///< an ELF object, with the PTX of a GPU program
  Diagnostics diagnostics; ///< of the compilation
  CompileTimes times;      ///< zero if it was read from a cache
};

/// Compiles `module`, which the pipeline rewrites. Diagnostics go to the handlers of its context and are not repeated
/// in the error; `diagnostics` of the result stays empty.
llvm::Expected<CompiledProgram> compileProgram(mlir::ModuleOp module, const CompileOptions &options);

/// The same from MLIR text or bytecode. `name` is the file name in the diagnostics, which `sink` receives.
llvm::Expected<CompiledProgram> compileText(llvm::StringRef text, llvm::StringRef name, const CompileOptions &options,
                                            DiagnosticSink sink);

/// The value of a program in the disk cache.
std::string encodeProgram(const CompiledProgram &program);

/// The program of a value, or nullopt if it is malformed.
std::optional<CompiledProgram> decodeProgram(llvm::StringRef value);

/// Identifies the compiler: the version of LLVM, and the build IDs of this library or tool and of the LLVM and MLIR
/// libraries in the process. Empty if one has no build ID.
llvm::StringRef compilerIdentity();

/// Identifies the contents of a file that a compilation reads, by path, size and time of modification; "" for no file.
std::string fileIdentity(llvm::StringRef path);

/// The contents of a small file that a compilation reads; "" for no file.
std::string contentIdentity(llvm::StringRef path);

/// The key of a compilation in the disk cache. `kind` tells apart what is stored, with all that it depends on besides
/// the program and the options; `name` is the name of the program in messages. Empty if the result must not be cached:
/// inserted passes and plugins may have effects, dumps are files, and a compiler without identity has no key of its
/// own.
std::string makeDiskKey(llvm::StringRef kind, llvm::StringRef program, llvm::StringRef name,
                        const CompileOptions &options);

/// A key for a parsed module, which need not be as it was in its file. Its locations are part of the key.
std::string makeDiskKey(llvm::StringRef kind, mlir::ModuleOp module, const CompileOptions &options);

} // namespace saccade

#endif // SACCADE_JIT_COMPILEDPROGRAM_H
