//===- KernelCache.h - In-memory cache of compiled programs -------*- C++ -*-===//
//
// Caches compiled programs by source, name and options. The values of dynamic extents are not part of the key, so a new
// sequence length or batch size does not recompile.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_KERNELCACHE_H
#define SACCADE_JIT_KERNELCACHE_H

#include "saccade/JIT/Executable.h"
#include "saccade/Support/ForkSafeMutex.h"
#include "llvm/ADT/StringMap.h"

namespace saccade {

/// An LRU cache. All functions are thread-safe.
class KernelCache {
public:
  /// Keeps up to `limit` programs, at least one, and evicts the least recently used.
  explicit KernelCache(size_t limit = 1024) : limit(limit) {}

  /// A reference keeps the code alive, also after the cache is destroyed.
  using Program = std::shared_ptr<const Executable>;

  struct Info {
    uint64_t hits = 0;         ///< requests that found a program or waited for another thread's compilation
    uint64_t compilations = 0; ///< calls of `compile`, failures included
    uint64_t modules = 0;      ///< programs in the cache
  };

  /// The key of a program: its text or bytecode, all options, and its name, which appears in messages of calls.
  static std::string makeKey(llvm::StringRef source, llvm::StringRef name, const CompileOptions &options);

  using Load = llvm::function_ref<Program()>;
  using Compile = llvm::function_ref<llvm::Expected<Program>()>;

  /// Returns the program of `key`. On a miss, calls `load` on this thread, which may find the program elsewhere, and
  /// `compile` if it returns null. Concurrent requests for the same key wait for that; other keys do not wait. Failures
  /// are not cached: a thread that waited for a failed compilation calls its own `load` and `compile`.
  llvm::Expected<Program> get(llvm::StringRef key, Load load, Compile compile);
  llvm::Expected<Program> get(llvm::StringRef key, Compile compile) {
    return get(key, [] { return Program(); }, compile);
  }

  Info info() const;
  /// Removes all programs and resets the counts.
  void clear();

private:
  struct Slot;

  /// Removes programs beyond the limit from the map. Must be called with the lock held; the caller destroys the
  /// returned slots after it releases the lock.
  std::vector<std::shared_ptr<Slot>> evictLRU();

  const size_t limit;

  mutable ForkSafeMutex lock; ///< guards the members below; never held while compiling
  llvm::StringMap<std::shared_ptr<Slot>> slots;
  uint64_t hits = 0, compilations = 0;
  uint64_t clock = 0; ///< incremented by every request
};

} // namespace saccade

#endif // SACCADE_JIT_KERNELCACHE_H
