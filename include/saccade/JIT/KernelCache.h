//===- KernelCache.h - Programs compiled before -------------------*- C++ -*-===//
//
// Compiled programs in memory, found again by everything that went into them. Sizes that a program leaves open are no
// part of that, so a new length or batch never compiles again.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_KERNELCACHE_H
#define SACCADE_JIT_KERNELCACHE_H

#include "saccade/JIT/Executable.h"
#include "saccade/Support/ForkSafeMutex.h"
#include "llvm/ADT/StringMap.h"

namespace saccade {

/// Every function may be called from several threads at once.
class KernelCache {
public:
  /// Keeps up to `limit` programs, at least one; beyond it forgets the one asked for longest ago.
  explicit KernelCache(size_t limit = 1024) : limit(limit) {}

  /// Whoever holds one keeps the code alive, also after the cache is gone.
  using Program = std::shared_ptr<const Executable>;

  struct Info {
    uint64_t hits = 0;         ///< requests that found a program, or waited for another thread's
    uint64_t compilations = 0; ///< runs of the compiler, refused programs included
    uint64_t modules = 0;      ///< programs in the cache now
  };

  /// What a program is found by: its text or bytecode, every option, and its name, for messages of calls name places
  /// in the file.
  static std::string makeKey(llvm::StringRef source, llvm::StringRef name, const CompileOptions &options);

  /// The program of `key`, made by `compile` on this thread where there is none. A thread that asks for what another
  /// one is compiling waits for it; other programs are compiled meanwhile. Failures are not kept: who waited for one
  /// tries for itself and gets an error of its own.
  llvm::Expected<Program> get(llvm::StringRef key, llvm::function_ref<llvm::Expected<Program>()> compile);

  Info info() const;
  /// Forgets all programs and starts the counts at 0.
  void clear();

private:
  struct Slot;

  /// Takes programs beyond the limit out of the map. To be called with the lock held; what is returned goes after it.
  std::vector<std::shared_ptr<Slot>> evictLRU();

  const size_t limit;

  mutable ForkSafeMutex lock; ///< of all below; never held while compiling
  llvm::StringMap<std::shared_ptr<Slot>> slots;
  uint64_t hits = 0, compilations = 0;
  uint64_t clock = 0; ///< goes on with every request
};

} // namespace saccade

#endif // SACCADE_JIT_KERNELCACHE_H
