//===- DiskCache.cpp - Cache of byte strings in files -------------------------===//
//
// A writer holds a file lock on its temporary file. The kernel releases the lock when the process ends, so that prune()
// removes exactly the files whose writers are gone. llvm::localCache and llvm::pruneCache are not used: the former
// installs signal handlers, which a library must not, and the latter ends the process if the directory is removed while
// it runs.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/DiskCache.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Errno.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/xxhash.h"
#include <dirent.h>
#include <fcntl.h>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using namespace saccade;

static constexpr StringLiteral entrySuffix = ".entry", temporarySuffix = ".temporary";
/// An empty file; the time of its last change is the time of the last pruning.
static constexpr char pruneStamp[] = "last-prune";
/// Seconds between prunings, and the resolution of the times of use.
static constexpr time_t interval = 60;

/// Whether a time is not within the last interval. A time in the future is that of a wrong clock.
static bool isOld(time_t changed) {
  time_t now = time(nullptr);
  return changed > now + interval || changed + interval < now;
}

namespace {
/// An open file, or -1.
class Descriptor {
public:
  explicit Descriptor(int number) : number(number) {}
  Descriptor(Descriptor &&other) : number(std::exchange(other.number, -1)) {}
  Descriptor &operator=(Descriptor &&) = delete;
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
  explicit operator bool() const { return number >= 0; }
  operator int() const { return number; }

private:
  int number;
};
} // namespace

static Descriptor openAt(int directory, const char *name, int flags) {
  return Descriptor(sys::RetryAfterSignal(-1, ::openat, directory, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600));
}

//===----------------------------------------------------------------------===//
// Directories
//===----------------------------------------------------------------------===//

/// Why a directory must not be used, or nullopt.
static std::optional<std::string> findFault(const struct stat &status) {
  if (!S_ISDIR(status.st_mode))
    return "it is not a directory";
  if (status.st_uid != geteuid())
    return ("it belongs to user " + Twine(status.st_uid) + ", expected user " + Twine(geteuid())).str();
  if (status.st_mode & (S_IWGRP | S_IWOTH)) {
    std::string mode;
    raw_string_ostream(mode) << format("%03o", status.st_mode & 0777);
    return "other users can write it (mode " + mode + "), expected a mode like 700";
  }
  return std::nullopt;
}

/// Whether `path` is a symbolic link that another user has made, who could direct it to any directory of this user.
static bool isForeignLink(const std::string &path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode) && status.st_uid != geteuid() &&
         status.st_uid != 0;
}

/// Opens the directory for openat(). Checks it at each use, because it can be replaced while a process runs.
static Descriptor openDirectory(const std::string &path) {
  if (isForeignLink(path))
    return Descriptor(-1);
  Descriptor directory(sys::RetryAfterSignal(-1, ::open, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status;
  if (directory && (fstat(directory, &status) != 0 || findFault(status)))
    return Descriptor(-1);
  return directory;
}

/// The names in a directory with one of the suffixes.
static std::vector<std::string> listFiles(const std::string &path, std::initializer_list<StringRef> suffixes) {
  std::vector<std::string> names;
  DIR *stream = opendir(path.c_str());
  if (!stream)
    return names;
  while (const dirent *each = readdir(stream))
    if (any_of(suffixes, [&](StringRef suffix) { return StringRef(each->d_name).ends_with(suffix); }))
      names.emplace_back(each->d_name);
  closedir(stream);
  return names;
}

Expected<std::shared_ptr<DiskCache>> DiskCache::open(StringRef directory, uint64_t maxBytes) {
  SmallString<128> path(directory.rtrim('/'));
  if (path.empty())
    path = "/";
  if (std::error_code error = sys::fs::make_absolute(path)) // the process may change its working directory
    return createStringError("cannot cache compiled programs in '" + directory + "': " + error.message());
  std::shared_ptr<DiskCache> cache(new DiskCache(path, maxBytes));
  struct stat status;
  if (isForeignLink(cache->directory))
    return createStringError("cannot cache compiled programs in '" + directory +
                             "': it is a symbolic link of another user");
  if (::stat(cache->directory.c_str(), &status) == 0)
    if (std::optional<std::string> fault = findFault(status))
      return createStringError("cannot cache compiled programs in '" + directory + "': " + *fault);
  return cache;
}

std::shared_ptr<DiskCache> saccade::openCache(StringRef tool, StringRef directory) {
  if (directory.empty())
    return nullptr;
  Expected<std::shared_ptr<DiskCache>> cache = DiskCache::open(directory);
  if (cache)
    return std::move(*cache);
  errs() << tool << ": warning: " << toString(cache.takeError()) << '\n';
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

/// The file name of a key. Keys of equal names replace each other.
static std::string fileName(StringRef key) {
  XXH128_hash_t hash = xxh3_128bits(arrayRefFromStringRef(key));
  std::string name;
  raw_string_ostream(name) << format_hex_no_prefix(hash.high64, 16) << format_hex_no_prefix(hash.low64, 16)
                           << entrySuffix;
  return name;
}

static bool readAll(int file, char *into, size_t size) {
  while (size) {
    ssize_t count = sys::RetryAfterSignal(-1, ::read, file, into, size);
    if (count <= 0)
      return false;
    into += count;
    size -= count;
  }
  return true;
}

static bool writeAll(int file, StringRef bytes) {
  while (!bytes.empty()) {
    ssize_t count = sys::RetryAfterSignal(-1, ::write, file, bytes.data(), bytes.size());
    if (count < 0)
      return false;
    bytes = bytes.drop_front(count);
  }
  return true;
}

/// Reads a file into memory, which other processes cannot change after it was checked.
static std::optional<std::string> readEntry(const std::string &path, const std::string &name, uint64_t maxBytes) {
  Descriptor directory = openDirectory(path);
  if (!directory)
    return std::nullopt;
  Descriptor file = openAt(directory, name.c_str(), O_RDONLY | O_NONBLOCK);
  struct stat status;
  if (!file || fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
      (status.st_mode & (S_IWGRP | S_IWOTH)) || uint64_t(status.st_size) > maxBytes)
    return std::nullopt;
  std::string contents(status.st_size, '\0');
  if (!readAll(file, contents.data(), contents.size()))
    return std::nullopt;
  // prune() sorts by the time of modification, because many file systems do not record reads.
  if (isOld(status.st_mtime))
    futimens(file, nullptr);
  return contents;
}

std::optional<std::string> DiskCache::lookup(StringRef key) {
  if (std::optional<std::string> contents = readEntry(directory, fileName(key), maxBytes))
    if (std::optional<StringRef> value = decodeCacheEntry(*contents, key)) {
      ++hits;
      contents->erase(0, contents->size() - value->size());
      return contents;
    }
  ++misses;
  return std::nullopt;
}

/// A name that no other process or thread uses.
static std::string temporaryName(StringRef name) {
  std::random_device random;
  return (name + "." + utohexstr(uint64_t(random()) << 32 | random()) + temporarySuffix).str();
}

void DiskCache::store(StringRef key, StringRef value) {
  std::string contents = encodeCacheEntry(key, value), name = fileName(key), temporary = temporaryName(name);
  if (contents.size() > maxBytes)
    return;
  if (isForeignLink(directory))
    return;
  // A failure is found when the directory is opened.
  (void)sys::fs::create_directories(directory, /*IgnoreExisting=*/true, sys::fs::owner_all);
  {
    Descriptor place = openDirectory(directory);
    if (!place)
      return;
    Descriptor file = openAt(place, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL);
    if (!file)
      return;
    // prune() may remove the file before it is locked; then it cannot be renamed. Without locks, it may always do so.
    (void)flock(file, LOCK_EX | LOCK_NB);
    if (!writeAll(file, contents) || renameat(place, temporary.c_str(), place, name.c_str()) != 0) {
      unlinkat(place, temporary.c_str(), 0);
      return;
    }
  }
  struct stat stamp;
  if (::stat((directory + "/" + pruneStamp).c_str(), &stamp) != 0 || isOld(stamp.st_mtime))
    prune();
}

//===----------------------------------------------------------------------===//
// Removal
//===----------------------------------------------------------------------===//

/// Whether the writer of a temporary file has ended.
static bool isAbandoned(int directory, const std::string &name) {
  Descriptor file = openAt(directory, name.c_str(), O_RDONLY | O_NONBLOCK);
  return file && flock(file, LOCK_EX | LOCK_NB) == 0;
}

void DiskCache::prune() {
  Descriptor place = openDirectory(directory);
  if (!place)
    return;
  if (Descriptor stamp = openAt(place, pruneStamp, O_WRONLY | O_CREAT))
    futimens(stamp, nullptr);
  for (const std::string &name : listFiles(directory, {temporarySuffix}))
    if (isAbandoned(place, name))
      unlinkat(place, name.c_str(), 0);

  struct File {
    std::string name;
    uint64_t bytes;
    std::pair<time_t, long> lastUse;
  };
  std::vector<File> files;
  uint64_t total = 0;
  for (std::string &name : listFiles(directory, {entrySuffix})) {
    struct stat status;
    if (fstatat(place, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;                                               // another process has removed it
    uint64_t bytes = alignTo<4096>(uint64_t(status.st_size)); // st_blocks may be 0 before the file system writes it
    total += bytes;
    files.push_back({std::move(name), bytes, {status.st_mtim.tv_sec, status.st_mtim.tv_nsec}});
  }
  llvm::sort(files, [](const File &a, const File &b) { return a.lastUse < b.lastUse; });
  for (const File &file : files) {
    if (total <= maxBytes)
      return;
    unlinkat(place, file.name.c_str(), 0);
    total -= file.bytes;
  }
}

Error DiskCache::clear() {
  Descriptor place = openDirectory(directory);
  if (!place)
    return Error::success(); // there is nothing that lookup() would use
  Error result = Error::success();
  for (const std::string &name : listFiles(directory, {entrySuffix, temporarySuffix, pruneStamp}))
    if (unlinkat(place, name.c_str(), 0) != 0 && errno != ENOENT)
      result = joinErrors(std::move(result),
                          createStringError("cannot remove '" + directory + "/" + name + "': " + sys::StrError()));
  return result;
}
