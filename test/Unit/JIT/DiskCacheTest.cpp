//===- DiskCacheTest.cpp - Cache of byte strings in files ---------------------===//
#include "saccade/JIT/DiskCache.h"
#include "llvm/ADT/ScopeExit.h"
#include "gtest/gtest.h"
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace saccade;
namespace fs = std::filesystem;

namespace {

/// A new directory for each test, in which the cache's directory is created by the first store.
class DiskCacheTest : public testing::Test {
protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "saccade-cache-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(name.data()));
    root = name;
  }
  void TearDown() override { fs::remove_all(root); }

  fs::path directory() const { return root / "below" / "cache"; }
  std::shared_ptr<DiskCache> open(uint64_t maxBytes = DiskCache::defaultMaxBytes) {
    auto cache = DiskCache::open(directory().string(), maxBytes);
    EXPECT_TRUE(bool(cache)) << llvm::toString(cache.takeError());
    return *cache;
  }
  std::string openError() {
    auto cache = DiskCache::open(directory().string());
    return cache ? "" : llvm::toString(cache.takeError());
  }

  /// The files with an extension, sorted.
  std::vector<fs::path> files(const char *extension) const {
    std::vector<fs::path> paths;
    for (const fs::directory_entry &each : fs::directory_iterator(directory()))
      if (each.path().extension() == extension)
        paths.push_back(each.path());
    llvm::sort(paths);
    return paths;
  }
  fs::path onlyEntry() const {
    std::vector<fs::path> entries = files(".entry");
    EXPECT_EQ(1u, entries.size());
    return entries.front();
  }

  static void write(const fs::path &path, llvm::StringRef contents) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(contents.data(), contents.size());
  }
  static void setAge(const fs::path &path, std::chrono::seconds age) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
  }

  fs::path root;
};

const std::string zeros("a\0b", 3);

TEST_F(DiskCacheTest, ReturnsWhatWasStored) {
  std::shared_ptr<DiskCache> cache = open();
  EXPECT_EQ(std::nullopt, cache->lookup("key"));
  EXPECT_FALSE(fs::exists(directory())) << "a lookup creates no directory";
  for (const std::string &value : {std::string("value"), std::string(), zeros, std::string(1 << 20, 'x')}) {
    cache->store("key", value);
    EXPECT_EQ(value, open()->lookup("key"));
  }
  cache->store(zeros, "binary key");
  EXPECT_EQ("binary key", cache->lookup(zeros));
  EXPECT_EQ(std::nullopt, cache->lookup("a"));
  EXPECT_EQ(1u, cache->info().hits);
  EXPECT_EQ(2u, cache->info().misses);
  cache->resetInfo();
  EXPECT_EQ(0u, cache->info().hits + cache->info().misses);
}

TEST_F(DiskCacheTest, OnlyTheOwnerHasAccess) {
  mode_t before = umask(0);
  open()->store("key", "value");
  umask(before);
  EXPECT_EQ(fs::perms::owner_all, fs::status(directory()).permissions());
  EXPECT_EQ(fs::perms::owner_read | fs::perms::owner_write, fs::status(onlyEntry()).permissions());
}

TEST_F(DiskCacheTest, EveryDamageOfAnEntryIsAMiss) {
  const std::string entry = encodeCacheEntry("key", "some value");
  ASSERT_EQ("some value", decodeCacheEntry(entry, "key"));
  for (size_t size = 0; size < entry.size(); ++size)
    EXPECT_EQ(std::nullopt, decodeCacheEntry(llvm::StringRef(entry).take_front(size), "key")) << size;
  for (size_t i = 0; i < entry.size(); ++i)
    for (int flip = 1; flip < 256; ++flip) {
      std::string damaged = entry;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      EXPECT_EQ(std::nullopt, decodeCacheEntry(damaged, "key")) << i << ' ' << flip;
    }
  EXPECT_EQ(std::nullopt, decodeCacheEntry(entry + zeros, "key"));
  EXPECT_EQ(std::nullopt, decodeCacheEntry(entry + entry, "key"));
  EXPECT_EQ(std::nullopt, decodeCacheEntry(std::string(entry.size(), '\0'), "key"));
}

TEST_F(DiskCacheTest, AnEntryOfAnotherKeyIsAMiss) {
  // Lengths of key and value that have the same sum, and prefixes.
  for (const char *key : {"ke", "keys", "kez", "keyv", ""})
    EXPECT_EQ(std::nullopt, decodeCacheEntry(encodeCacheEntry("key", "value"), key)) << key;
  std::shared_ptr<DiskCache> cache = open();
  cache->store("key", "value");
  write(onlyEntry(), encodeCacheEntry("another key", "value"));
  EXPECT_EQ(std::nullopt, cache->lookup("key"));
  cache->store("key", "value");
  EXPECT_EQ("value", cache->lookup("key")) << "the foreign entry is replaced";
}

TEST_F(DiskCacheTest, DamagedFilesAreMissesAndAreReplaced) {
  std::shared_ptr<DiskCache> cache = open();
  cache->store("key", "value");
  const std::string entry = encodeCacheEntry("key", "value");
  for (llvm::StringRef contents : {llvm::StringRef(entry).drop_back(), llvm::StringRef(), llvm::StringRef("text")}) {
    write(onlyEntry(), contents);
    EXPECT_EQ(std::nullopt, cache->lookup("key"));
    cache->store("key", "value");
    EXPECT_EQ("value", cache->lookup("key"));
  }
}

TEST_F(DiskCacheTest, FilesThatOthersMayHaveWrittenAreNotUsed) {
  std::shared_ptr<DiskCache> cache = open();
  cache->store("key", "value");
  fs::path entry = onlyEntry(), moved = root / "moved";
  for (fs::perms writable : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(entry, fs::perms::owner_read | writable);
    EXPECT_EQ(std::nullopt, cache->lookup("key"));
  }
  fs::permissions(entry, fs::perms::owner_read);
  EXPECT_EQ("value", cache->lookup("key"));
  fs::rename(entry, moved);
  fs::create_symlink(moved, entry);
  EXPECT_EQ(std::nullopt, cache->lookup("key")) << "a link";
  fs::remove(entry);
  ASSERT_EQ(0, mkfifo(entry.c_str(), 0600));
  EXPECT_EQ(std::nullopt, cache->lookup("key")) << "a pipe";
  fs::remove(entry);
  fs::create_directory(entry);
  EXPECT_EQ(std::nullopt, cache->lookup("key")) << "a directory";
  if (geteuid() == 0) {
    fs::remove(entry);
    fs::rename(moved, entry);
    ASSERT_EQ(0, chown(entry.c_str(), 1, 1));
    EXPECT_EQ(std::nullopt, cache->lookup("key")) << "another owner";
  }
}

TEST_F(DiskCacheTest, ADirectoryThatOthersMayWriteIsNotUsed) {
  std::shared_ptr<DiskCache> cache = open();
  cache->store("key", "value");
  std::string prefix = "cannot cache compiled programs in '" + directory().string() + "': ";
  for (auto [writable, mode] : {std::pair(fs::perms::group_write, "720"), std::pair(fs::perms::others_write, "702")}) {
    fs::permissions(directory(), fs::perms::owner_all | writable);
    EXPECT_EQ(prefix + "other users can write it (mode " + mode + "), expected a mode like 700", openError());
    EXPECT_EQ(std::nullopt, cache->lookup("key")) << "it is checked at every use";
    cache->store("another", "value");
    EXPECT_EQ(1u, files(".entry").size());
  }
  fs::permissions(directory(), fs::perms::owner_all);
  EXPECT_EQ("value", cache->lookup("key"));
  if (geteuid() == 0) {
    ASSERT_EQ(0, chown(directory().c_str(), 1, 1));
    EXPECT_EQ(prefix + "it belongs to user 1, expected user 0", openError());
    EXPECT_EQ(std::nullopt, cache->lookup("key"));
  }
  fs::remove_all(directory());
  write(directory(), "text");
  EXPECT_EQ(prefix + "it is not a directory", openError());
}

TEST_F(DiskCacheTest, ALinkOfAnotherUserIsNotFollowed) {
  open()->store("key", "value");
  fs::path link = directory().string() + "-link";
  fs::create_directory_symlink(directory(), link);
  std::shared_ptr<DiskCache> own = llvm::cantFail(DiskCache::open(link.string()));
  EXPECT_EQ("value", own->lookup("key"));
  if (geteuid() == 0) {
    ASSERT_EQ(0, lchown(link.c_str(), 1, 1));
    EXPECT_EQ(std::nullopt, own->lookup("key"));
    own->store("another", "value");
    EXPECT_EQ(1u, files(".entry").size());
    llvm::Expected<std::shared_ptr<DiskCache>> refused = DiskCache::open(link.string() + "/");
    ASSERT_FALSE(bool(refused));
    EXPECT_NE(std::string::npos, llvm::toString(refused.takeError()).find("a symbolic link of another user"));
  }
  fs::remove(link);
}

TEST_F(DiskCacheTest, AnUnusableDirectoryIsNoError) {
  write(root / "below", "a file where a folder should be");
  std::shared_ptr<DiskCache> cache = open();
  cache->store("key", "value");
  cache->prune();
  EXPECT_EQ(std::nullopt, cache->lookup("key"));
  EXPECT_EQ("", llvm::toString(cache->clear()));
}

TEST_F(DiskCacheTest, AFullDiskIsNoErrorAndLeavesNoFile) {
  std::shared_ptr<DiskCache> cache = open();
  cache->store("small", "value");
  rlimit before;
  ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &before));
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limited = {1000, before.rlim_max};
  ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &limited));
  cache->store("large", std::string(5000, 'x')); // the second write fails
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::nullopt, cache->lookup("large"));
  EXPECT_EQ("value", cache->lookup("small"));
  EXPECT_TRUE(files(".temporary").empty());
}

TEST_F(DiskCacheTest, PruningRemovesWhatWasUsedLongestAgo) {
  std::shared_ptr<DiskCache> cache = open(3 * 8192);
  for (int i = 0; const char *key : {"a", "b", "c"}) {
    std::vector<fs::path> before = fs::exists(directory()) ? files(".entry") : std::vector<fs::path>();
    cache->store(key, std::string(5000, 'x')); // two blocks of 4096 bytes
    for (const fs::path &entry : files(".entry"))
      if (!llvm::is_contained(before, entry))
        setAge(entry, std::chrono::hours(10 - i++));
  }
  EXPECT_TRUE(cache->lookup("a")) << "so that it is the last used";
  cache->store("d", "value");
  cache->prune();
  EXPECT_EQ(3u, files(".entry").size());
  EXPECT_EQ(std::nullopt, cache->lookup("b"));
  for (const char *key : {"a", "c", "d"})
    EXPECT_TRUE(cache->lookup(key)) << key;
  open(4096)->prune();
  EXPECT_LE(files(".entry").size(), 1u);
  open(1000)->store("huge", std::string(1000, 'x'));
  EXPECT_EQ(std::nullopt, cache->lookup("huge")) << "larger than the cache";
}

TEST_F(DiskCacheTest, StoringPrunesOnceAMinute) {
  std::shared_ptr<DiskCache> cache = open(4096);
  cache->store("a", "value"); // prunes
  for (const char *key : {"b", "c"})
    cache->store(key, "value");
  EXPECT_EQ(3u, files(".entry").size());
  setAge(directory() / "last-prune", std::chrono::minutes(2));
  cache->store("d", "value");
  EXPECT_EQ(1u, files(".entry").size());
}

TEST_F(DiskCacheTest, PruningRemovesTemporaryFilesOfEndedProcesses) {
  std::shared_ptr<DiskCache> cache = open();
  cache->store("key", "value");
  fs::path abandoned = directory() / "0.entry.0.temporary", inUse = directory() / "0.entry.1.temporary";
  write(abandoned, "half of an ent");
  write(inUse, "half of an ent");
  int file = ::open(inUse.c_str(), O_RDONLY);
  ASSERT_EQ(0, flock(file, LOCK_EX));
  cache->prune();
  EXPECT_EQ((std::vector<fs::path>{inUse}), files(".temporary"));
  close(file);
  cache->prune();
  EXPECT_TRUE(files(".temporary").empty());
  EXPECT_EQ("value", cache->lookup("key"));
}

TEST_F(DiskCacheTest, ClearingRemovesItsFilesOnly) {
  std::shared_ptr<DiskCache> cache = open();
  cache->store("a", "value");
  cache->store("b", "value");
  write(directory() / "notes.txt", "of the user");
  write(directory() / "0.entry.0.temporary", "");
  EXPECT_EQ("", llvm::toString(cache->clear()));
  EXPECT_EQ(std::nullopt, cache->lookup("a"));
  EXPECT_EQ(1, std::distance(fs::directory_iterator(directory()), fs::directory_iterator()));
  EXPECT_TRUE(fs::exists(directory() / "notes.txt"));
  EXPECT_EQ("", llvm::toString(cache->clear()));
  fs::create_directories(directory() / "full.entry" / "folder");
  EXPECT_NE(std::string::npos, llvm::toString(cache->clear()).find("cannot remove '"));
}

/// Looks up and stores values, which follow from their keys, until it is killed. Exits with 1 after a wrong value.
[[noreturn]] void useForever(DiskCache &cache, unsigned seed, unsigned keys) {
  std::srand(seed);
  while (true) {
    std::string key = std::to_string(std::rand() % keys), value(20000 + key.size() * 1000, key.back());
    if (std::optional<std::string> found = cache.lookup(key)) {
      if (*found != value)
        _exit(1);
    } else {
      cache.store(key, value);
    }
    if (std::rand() % 4 == 0)
      cache.prune();
  }
}

TEST_F(DiskCacheTest, KilledProcessesNeverLeaveWrongValues) {
  constexpr unsigned processes = 4, keys = 8, kills = 100;
  std::shared_ptr<DiskCache> cache = open(5 * 24576); // less than all values
  std::vector<pid_t> running(processes);
  unsigned seed = 0;
  auto start = [&] {
    pid_t child = fork();
    if (child == 0)
      useForever(*cache, ++seed, keys);
    ++seed;
    return child;
  };
  for (pid_t &child : running)
    child = start();
  auto stop = [](pid_t child) {
    int status = 0;
    kill(child, SIGKILL);
    EXPECT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFSIGNALED(status)) << "a wrong value";
  };
  std::srand(1);
  for (unsigned i = 0; i < kills; ++i) {
    usleep(std::rand() % 5000);
    pid_t &child = running[std::rand() % processes];
    stop(child);
    child = start();
  }
  for (pid_t child : running)
    stop(child);
  cache->prune();
  EXPECT_TRUE(files(".temporary").empty());
  EXPECT_LE(files(".entry").size(), 5u);
  EXPECT_FALSE(files(".entry").empty());
  cache->store("0", "value");
  EXPECT_EQ("value", cache->lookup("0"));
}

} // namespace
