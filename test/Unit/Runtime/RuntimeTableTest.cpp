//===- RuntimeTableTest.cpp - One runtime a process, and a host's own parallel for ----===//
#include "saccade/Runtime/Runtime.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <atomic>
#include <dlfcn.h>
#include <filesystem>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

/// A library with a copy of the runtime; each object loads a separate library.
class Copy {
public:
  Copy() {
    std::string path = testing::TempDir() + "saccade-probe-XXXXXX";
    close(mkstemp(path.data()));
    std::filesystem::copy_file(SACCADE_PROBE, path, std::filesystem::copy_options::overwrite_existing);
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(library) << dlerror();
    std::filesystem::remove(path);
  }
  ~Copy() { dlclose(library); }

  template <typename Function> Function *find(const char *name) const {
    return reinterpret_cast<Function *>(dlsym(library, name));
  }

  /// The threads that ran `count` items of `microseconds` each.
  std::set<int32_t> run(int64_t count, int64_t microseconds) const {
    std::vector<int32_t> threads(count), runs(count);
    auto *probe = find<int32_t(int64_t, int64_t, int32_t *, int32_t *)>("probe_run");
    EXPECT_EQ(0, probe(count, microseconds, threads.data(), runs.data()));
    EXPECT_EQ(std::vector<int32_t>(count, 1), runs);
    return {threads.begin(), threads.end()};
  }

private:
  void *library;
};

class RuntimeTable : public testing::Test {
protected:
  void SetUp() override { saccade_set_threads(2); }
  void TearDown() override {
    saccade_set_parallel_for(nullptr, nullptr);
    saccade_set_threads(0);
  }
};

size_t threadsOfProcess() {
  std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST_F(RuntimeTable, CopiesShareSettingsAndThreads) {
  Copy first, second;
  EXPECT_NE(first.find<void()>("probe_run"), second.find<void()>("probe_run")) << "these are one library";
  first.find<void(int32_t)>("saccade_set_threads")(3);
  EXPECT_EQ(3, saccade_threads());
  EXPECT_EQ(3, second.find<int32_t()>("saccade_threads")());

  first.run(300, 100);
  size_t before = threadsOfProcess();
  second.run(300, 100);
  EXPECT_EQ(before, threadsOfProcess()) << "the second copy started threads of its own";
}

TEST_F(RuntimeTable, ACallOfOneCopyInsideATaskOfAnotherRunsSerially) {
  Copy copy;
  std::atomic<int> calls{0};
  auto task = [&](int64_t) {
    EXPECT_EQ(std::set<int32_t>{gettid()}, copy.run(50, 20));
    ++calls;
  };
  auto callTask = [](void *context, int64_t begin, int64_t, void *) {
    (*static_cast<decltype(task) *>(context))(begin);
  };
  EXPECT_EQ(0, saccade_parallel_for(callTask, &task, 4, 0));
  EXPECT_EQ(4, calls);
}

/// A host that starts `started` of the requested workers on its own threads.
struct Host {
  int32_t started;
  int32_t asked = 0, calls = 0;
  static void run(void *user, int32_t workers, saccade_work work, void *context) {
    auto *host = static_cast<Host *>(user);
    host->asked = workers;
    ++host->calls;
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < std::min(workers, host->started); ++i)
      threads.emplace_back(work, context);
    for (std::thread &thread : threads)
      thread.join();
  }
};

TEST_F(RuntimeTable, AHostsParallelForRunsTheItems) {
  Copy copy;
  Host host{2};
  saccade_set_parallel_for(Host::run, &host);
  std::set<int32_t> threads = copy.run(100, 50);
  EXPECT_EQ(1, host.calls);
  EXPECT_EQ(2, host.asked);
  EXPECT_FALSE(threads.contains(gettid()));
  EXPECT_LE(threads.size(), 2u);
}

TEST_F(RuntimeTable, AHostStartsAtMostOneWorkerPerItem) {
  Copy copy;
  Host host{9};
  saccade_set_threads(9);
  saccade_set_parallel_for(Host::run, &host);
  copy.run(3, 10);
  EXPECT_EQ(3, host.asked);
  copy.run(1, 10);
  EXPECT_EQ(1, host.calls) << "one item needs no other thread";
}

TEST_F(RuntimeTable, TheCallerRunsRemainingItems) {
  Copy copy;
  Host host{0};
  saccade_set_parallel_for(Host::run, &host);
  EXPECT_EQ(std::set<int32_t>{gettid()}, copy.run(20, 10));
  EXPECT_EQ(1, host.calls);
}

TEST_F(RuntimeTable, NoHostGoesBackToTheDefault) {
  Copy copy;
  Host host{2};
  saccade_set_parallel_for(Host::run, &host);
  saccade_set_parallel_for(nullptr, nullptr);
  copy.run(20, 10);
  EXPECT_EQ(0, host.calls);
}

} // namespace
