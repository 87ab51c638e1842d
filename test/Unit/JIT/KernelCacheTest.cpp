//===- KernelCacheTest.cpp - In-memory cache of compiled programs -------------===//
//
// The cache does not access programs, so the tests use placeholder pointers.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/KernelCache.h"
#include "gtest/gtest.h"
#include <future>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace saccade;

namespace {

using Program = KernelCache::Program;
using Result = llvm::Expected<Program>;

/// A placeholder for a program.
Program standIn() {
  auto owner = std::make_shared<int>();
  return Program(owner, reinterpret_cast<const Executable *>(owner.get()));
}

Result make() { return standIn(); }
Result fail() { return llvm::createStringError("refused"); }
Result mustNotRun() {
  ADD_FAILURE() << "compiled again";
  return standIn();
}

void expectInfo(const KernelCache &cache, uint64_t hits, uint64_t compilations, uint64_t modules) {
  KernelCache::Info info = cache.info();
  EXPECT_EQ(hits, info.hits);
  EXPECT_EQ(compilations, info.compilations);
  EXPECT_EQ(modules, info.modules);
}

std::string errorOf(Result result) { return result ? "" : llvm::toString(result.takeError()); }

TEST(KernelCache, KeysTellProgramsAndOptionsApart) {
  CompileOptions plain;
  std::vector<CompileOptions> options(10, plain);
  options[1].target = lookupCPUTarget("portable");
  options[2].stopAfter = "tiling";
  options[3].insertions = {{"tiling", "cse"}};
  options[4].insertions = {{"tiling", "cse"}, {"tiling", "cse"}};
  options[5].dumpStages = "folder";
  options[6].lint = true;
  options[7].verifyEach = !plain.verifyEach;
  options[8].dumpPage = true;
  options[9].scheduleTable = "table.json";
  for (size_t i = 0; i < options.size(); ++i)
    for (size_t j = 0; j < options.size(); ++j)
      // If the host's target is "portable", the first two are equal.
      if (i == j || i > 1 || j > 1)
        EXPECT_EQ(i == j,
                  KernelCache::makeKey("p", "file", options[i]) == KernelCache::makeKey("p", "file", options[j]))
            << i << j;
  EXPECT_NE(KernelCache::makeKey("p", "file", plain), KernelCache::makeKey("q", "file", plain));
  EXPECT_NE(KernelCache::makeKey("p", "other", plain), KernelCache::makeKey("p", "file", plain));
  EXPECT_NE(KernelCache::makeKey("ep", "fil", plain), KernelCache::makeKey("p", "file", plain));
  CompileOptions left, right;
  left.insertions = {{"a", "bc"}};
  right.insertions = {{"ab", "c"}};
  EXPECT_NE(KernelCache::makeKey("p", "file", left), KernelCache::makeKey("p", "file", right));
  EXPECT_EQ(KernelCache::makeKey("p", "file", plain), KernelCache::makeKey("p", "file", CompileOptions()));
}

TEST(KernelCache, FindsWhatItHas) {
  KernelCache cache;
  Result first = cache.get("a", make), again = cache.get("a", mustNotRun), other = cache.get("b", make);
  ASSERT_TRUE(first && again && other);
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  expectInfo(cache, 1, 2, 2);
}

TEST(KernelCache, CompilesOnlyWhatIsNotFoundElsewhere) {
  KernelCache cache;
  Program elsewhere = standIn();
  Result found = cache.get("a", [&] { return elsewhere; }, mustNotRun);
  ASSERT_TRUE(bool(found));
  EXPECT_EQ(elsewhere, *found);
  expectInfo(cache, 0, 0, 1);
  EXPECT_EQ("", errorOf(cache.get("a", mustNotRun)));
  EXPECT_EQ("", errorOf(cache.get("b", [] { return Program(); }, make)));
  expectInfo(cache, 1, 1, 2);
}

TEST(KernelCache, ForgetsWhatWasAskedForLongestAgo) {
  KernelCache cache(2);
  Result a = cache.get("a", make), b = cache.get("b", make);
  ASSERT_TRUE(a && b);
  ASSERT_EQ("", errorOf(cache.get("a", mustNotRun))); // so b is the oldest
  ASSERT_EQ("", errorOf(cache.get("c", make)));
  expectInfo(cache, 1, 3, 2);
  EXPECT_EQ(2, a->use_count());
  EXPECT_EQ(1, b->use_count()) << "the cache holds what it has forgotten";
  EXPECT_EQ("", errorOf(cache.get("a", mustNotRun)));
  EXPECT_EQ("", errorOf(cache.get("c", mustNotRun)));
  EXPECT_EQ("", errorOf(cache.get("b", make)));
  expectInfo(cache, 3, 4, 2);
}

TEST(KernelCache, CodeThatIsForgottenMayUseTheCache) {
  KernelCache cache(1);
  uint64_t modules = 0;
  auto makeLooking = [&]() -> Result {
    std::shared_ptr<int> owner(new int, [&](int *number) {
      delete number;
      modules = cache.info().modules; // deadlocks if the lock is held
    });
    return Program(owner, reinterpret_cast<const Executable *>(owner.get()));
  };
  EXPECT_EQ("", errorOf(cache.get("a", makeLooking)));
  EXPECT_EQ("", errorOf(cache.get("b", make)));
  EXPECT_EQ(1u, modules);
}

TEST(KernelCache, KeepsNoFailures) {
  KernelCache cache;
  EXPECT_EQ("refused", errorOf(cache.get("a", fail)));
  expectInfo(cache, 0, 1, 0);
  EXPECT_EQ("", errorOf(cache.get("a", make)));
  expectInfo(cache, 0, 2, 1);
}

/// A compilation on a separate thread, which ends when it is released.
class SlowCompilation {
public:
  SlowCompilation(KernelCache &cache, llvm::StringRef key, Result (*result)())
      : done([&cache, key, result, this] {
          return errorOf(cache.get(key, [&] {
            started.set_value();
            mayEnd.get_future().wait();
            return result();
          }));
        }) {
    thread = std::thread(std::ref(done));
    started.get_future().wait();
  }
  std::string end() {
    std::future<std::string> error = done.get_future();
    mayEnd.set_value();
    thread.join();
    return error.get();
  }

private:
  std::promise<void> started, mayEnd;
  std::packaged_task<std::string()> done;
  std::thread thread;
};

/// Requests "a" on a separate thread, which has to wait.
std::future<std::string> askMeanwhile(KernelCache &cache, Result (*compile)()) {
  auto asked = std::async(std::launch::async, [&cache, compile] { return errorOf(cache.get("a", compile)); });
  EXPECT_EQ(std::future_status::timeout, asked.wait_for(std::chrono::milliseconds(50)));
  return asked;
}

TEST(KernelCache, WaitsForAnotherThreadOnlyWhereItMakesTheSame) {
  KernelCache cache;
  SlowCompilation slow(cache, "a", make);
  EXPECT_EQ("", errorOf(cache.get("b", make)));
  expectInfo(cache, 0, 2, 1);
  std::future<std::string> waiting = askMeanwhile(cache, mustNotRun);
  EXPECT_EQ("", slow.end());
  EXPECT_EQ("", waiting.get());
  expectInfo(cache, 1, 2, 2);
}

TEST(KernelCache, WhoWaitedForAFailureTriesForItself) {
  KernelCache cache;
  SlowCompilation slow(cache, "a", fail);
  std::future<std::string> waiting = askMeanwhile(cache, make);
  EXPECT_EQ("refused", slow.end());
  EXPECT_EQ("", waiting.get());
  expectInfo(cache, 0, 2, 1);
}

TEST(KernelCache, ForgetsNothingThatIsBeingMade) {
  KernelCache cache(1);
  SlowCompilation slow(cache, "a", make);
  EXPECT_EQ("", errorOf(cache.get("b", make)));
  EXPECT_EQ("", errorOf(cache.get("c", make)));
  std::future<std::string> waiting = askMeanwhile(cache, mustNotRun);
  EXPECT_EQ("", slow.end());
  EXPECT_EQ("", waiting.get());
  EXPECT_EQ("", errorOf(cache.get("a", mustNotRun)));
  expectInfo(cache, 2, 3, 1);
}

TEST(KernelCache, ForgetsAlsoWhatIsBeingMade) {
  KernelCache cache;
  Result kept = cache.get("b", make);
  ASSERT_TRUE(bool(kept));
  SlowCompilation slow(cache, "a", make);
  cache.clear();
  expectInfo(cache, 0, 0, 0);
  EXPECT_EQ("", errorOf(cache.get("a", make)));
  EXPECT_EQ("", slow.end());
  expectInfo(cache, 0, 1, 1);
  EXPECT_EQ(1, kept->use_count());
}

TEST(KernelCache, ChildrenOfAForkDoNotWaitForThreadsOfTheParent) {
  KernelCache cache;
  SlowCompilation slow(cache, "a", make);
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(errorOf(cache.get("a", make)).empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ("", slow.end());
}

TEST(KernelCache, ChildrenOfAForkFindItsLockFree) {
  KernelCache cache;
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop)
      (void)cache.info();
  });
  int hanging = 0;
  for (int i = 0; i < 100 && hanging == 0; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(5);
      (void)cache.info();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    hanging += !WIFEXITED(status);
  }
  stop = true;
  busy.join();
  EXPECT_EQ(0, hanging);
}

} // namespace
