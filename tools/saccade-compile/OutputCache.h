//===- OutputCache.h - Outputs of saccade-compile in files --------*- C++ -*-===//
#ifndef SACCADE_TOOLS_COMPILE_OUTPUTCACHE_H
#define SACCADE_TOOLS_COMPILE_OUTPUTCACHE_H

#include "Options.h"
#include "mlir/IR/BuiltinOps.h"
#include "saccade/JIT/DiskCache.h"
#include "saccade/Target/SharedLibrary.h"

namespace saccade {

/// The entry of one compilation in the folder of --cache-dir.
class OutputCache {
public:
  /// `program` is the parsed module, before the pipeline.
  OutputCache(mlir::ModuleOp program, const LibraryInterface &interface, const Options &options);

  /// Reads the output, and the header into `interface`. Returns false if there is no entry.
  bool load(LibraryInterface &interface, llvm::SmallVectorImpl<char> &output);

  /// Stores both, if they depend on the program and the command line only.
  void store(const LibraryInterface &interface, llvm::StringRef output);

private:
  std::shared_ptr<DiskCache> cache;
  std::string key; ///< empty if the output must not be cached
};

} // namespace saccade

#endif // SACCADE_TOOLS_COMPILE_OUTPUTCACHE_H
