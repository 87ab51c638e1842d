//===- DiskCache.h - Cache of byte strings in files ---------------*- C++ -*-===//
//
// A cache that processes share: one entry is one file with its full key, and any doubt about a file is a miss.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_DISKCACHE_H
#define SACCADE_JIT_DISKCACHE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace saccade {

/// A cache of values by key in the files of a directory. Any number of processes may use and prune a directory at once,
/// and may be killed at any time. A file is written under a temporary name and renamed, and a reader uses only a file
/// that is complete and has its key. All functions are thread-safe and have no lock that a process could leave locked.
/// An unusable directory, a full disk and a lack of permission make misses, not errors.
///
/// Values become executable code, so that only files of this user are read, in a directory that only this user can
/// write.
class DiskCache {
public:
  static constexpr uint64_t defaultMaxBytes = uint64_t(1) << 30;

  /// A cache in `directory`, which `store` creates with the permissions 0700 if it does not exist. Fails if it exists
  /// and is no directory, belongs to another user, or can be written by others.
  static llvm::Expected<std::shared_ptr<DiskCache>> open(llvm::StringRef directory,
                                                         uint64_t maxBytes = defaultMaxBytes);

  /// The value of `key`, or nullopt.
  std::optional<std::string> lookup(llvm::StringRef key);

  /// Adds or replaces the value of `key`. At most once a minute, the least recently used entries beyond `maxBytes` are
  /// removed afterwards.
  void store(llvm::StringRef key, llvm::StringRef value);

  /// Removes the least recently used entries beyond `maxBytes`, and temporary files of processes that have ended.
  void prune();

  /// Removes all entries. Fails if one cannot be removed.
  llvm::Error clear();

  struct Info {
    uint64_t hits = 0, misses = 0; ///< of `lookup`
  };
  Info info() const { return {hits, misses}; }
  void resetInfo() { hits = misses = 0; }

private:
  DiskCache(llvm::StringRef directory, uint64_t maxBytes) : directory(directory.str()), maxBytes(maxBytes) {}

  const std::string directory;
  const uint64_t maxBytes;
  std::atomic<uint64_t> hits = 0, misses = 0;
};

/// Opens the cache of a tool's --cache-dir. Null without a directory, and after a warning on stderr if it must not be
/// used.
std::shared_ptr<DiskCache> openCache(llvm::StringRef tool, llvm::StringRef directory);

/// The contents of an entry's file: checksum, format, version, lengths, key and value.
std::string encodeCacheEntry(llvm::StringRef key, llvm::StringRef value);

/// The value in the contents of a file, or nullopt if they are not exactly those of an entry with this key.
std::optional<llvm::StringRef> decodeCacheEntry(llvm::StringRef contents, llvm::StringRef key);

} // namespace saccade

#endif // SACCADE_JIT_DISKCACHE_H
