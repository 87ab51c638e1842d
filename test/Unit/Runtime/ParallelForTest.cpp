//===- ParallelForTest.cpp - Parallel loops and memory of the runtime ---------===//
#include "saccade/Runtime/Runtime.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <sched.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

/// Calls saccade_parallel_for with a callable of (begin, end, scratch).
template <typename Body> int32_t parallelFor(int64_t count, int64_t scratchBytes, Body body) {
  auto task = [](void *context, int64_t begin, int64_t end, void *scratch) {
    (*static_cast<Body *>(context))(begin, end, scratch);
  };
  return saccade_parallel_for(task, &body, count, scratchBytes);
}

class ParallelFor : public testing::Test {
protected:
  void SetUp() override { saccade_set_threads(4); }
  void TearDown() override { saccade_set_threads(0); }
};

/// The number of times that each of `count` items ran.
std::vector<int> timesRun(int64_t count) {
  std::vector<std::atomic<int>> runs(count);
  EXPECT_EQ(0, parallelFor(count, 64, [&](int64_t begin, int64_t end, void *) {
              for (int64_t i = begin; i < end; ++i)
                ++runs[i];
            }));
  return {runs.begin(), runs.end()};
}

TEST_F(ParallelFor, RunsEveryItemExactlyOnce) {
  for (int64_t count : {0, 1, 2, 3, 4, 5, 63, 1000})
    EXPECT_EQ(std::vector<int>(count, 1), timesRun(count)) << count;
}

TEST_F(ParallelFor, ManyShortCallsRunAllItems) {
  for (int round = 0; round < 5000; ++round)
    ASSERT_EQ(std::vector<int>(7, 1), timesRun(7)) << round;
}

TEST_F(ParallelFor, ManyMoreThreadsThanProcessorsRunAllItems) {
  for (int threads : {64, 192}) {
    saccade_set_threads(threads);
    for (int round = 0; round < 20; ++round)
      ASSERT_EQ(std::vector<int>(1000, 1), timesRun(1000)) << threads;
  }
}

TEST_F(ParallelFor, SleepingWorkersWakeUpForTheNextCall) {
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> inside{0};
    // Times out unless both items run concurrently.
    EXPECT_EQ(0, parallelFor(2, 0, [&](int64_t begin, int64_t end, void *) {
                auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
                inside += end - begin;
                while (inside < 2 && std::chrono::steady_clock::now() < limit)
                  std::this_thread::yield();
                EXPECT_EQ(2, inside);
              }));
  }
}

TEST_F(ParallelFor, OneThreadRunsInlineAndInOneCall) {
  saccade_set_threads(1);
  std::vector<std::pair<int64_t, int64_t>> calls;
  std::thread::id self = std::this_thread::get_id();
  parallelFor(9, 0, [&](int64_t begin, int64_t end, void *) {
    EXPECT_EQ(self, std::this_thread::get_id());
    calls.emplace_back(begin, end);
  });
  EXPECT_EQ((std::vector<std::pair<int64_t, int64_t>>{{0, 9}}), calls);
}

TEST_F(ParallelFor, ItemsAreHandedOutInAscendingOrder) {
  std::mutex lock;
  std::vector<std::vector<int64_t>> seen;
  thread_local int mine = -1;
  mine = -1;
  parallelFor(500, 0, [&](int64_t begin, int64_t, void *) {
    std::lock_guard guard(lock);
    if (mine < 0 || mine >= static_cast<int>(seen.size())) {
      mine = seen.size();
      seen.emplace_back();
    }
    seen[mine].push_back(begin);
  });
  for (const std::vector<int64_t> &items : seen)
    EXPECT_TRUE(std::is_sorted(items.begin(), items.end()));
}

TEST_F(ParallelFor, NeighboursStayTogetherUntilFewAreLeft) {
  std::mutex lock;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  parallelFor(1000, 0, [&](int64_t begin, int64_t end, void *) {
    std::lock_guard guard(lock);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  int64_t done = 0;
  for (auto [begin, end] : ranges) {
    EXPECT_EQ(done, begin);
    // Four threads: a sixteenth of the remaining items.
    EXPECT_EQ(std::max<int64_t>(1, (1000 - begin) / 16), end - begin);
    done = end;
  }
  EXPECT_EQ(1000, done);
}

TEST_F(ParallelFor, ScratchIsAlignedLargeEnoughAndPrivate) {
  for (int64_t bytes : {0, 1, 100, 1 << 20}) {
    EXPECT_EQ(0, parallelFor(64, bytes, [&](int64_t begin, int64_t, void *scratch) {
                EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(scratch) % 64);
                auto *memory = static_cast<volatile char *>(scratch);
                for (int64_t i = 0; i < bytes; i += 97)
                  memory[i] = static_cast<char>(begin);
                for (int64_t i = 0; i < bytes; i += 97)
                  EXPECT_EQ(static_cast<char>(begin), memory[i]);
              }));
  }
}

TEST_F(ParallelFor, ScratchThatCannotBeHadIsReportedAndNothingRuns) {
  bool ran = false;
  EXPECT_EQ(1, parallelFor(4, INT64_MAX / 2, [&](int64_t, int64_t, void *) { ran = true; }));
  EXPECT_FALSE(ran);
}

TEST_F(ParallelFor, NestedCallsRunSeriallyWithScratchOfTheirOwn) {
  std::atomic<int64_t> sum{0};
  parallelFor(8, 128, [&](int64_t, int64_t, void *outer) {
    std::thread::id self = std::this_thread::get_id();
    parallelFor(10, 128, [&](int64_t begin, int64_t end, void *inner) {
      EXPECT_NE(outer, inner);
      EXPECT_EQ(self, std::this_thread::get_id());
      for (int64_t i = begin; i < end; ++i)
        sum += i;
    });
  });
  EXPECT_EQ(8 * 45, sum);
}

TEST_F(ParallelFor, HostThreadsMayCallAtOnce) {
  std::vector<std::thread> hosts;
  for (int host = 0; host < 4; ++host)
    hosts.emplace_back([] {
      for (int round = 0; round < 300; ++round)
        ASSERT_EQ(std::vector<int>(11, 1), timesRun(11));
    });
  for (std::thread &host : hosts)
    host.join();
}

TEST_F(ParallelFor, AWorkerThatSleptWorksOnAnotherProcessor) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2)
    GTEST_SKIP() << "there is one processor";
  saccade_set_threads(2);
  int apart = 0;
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5)); // workers spin for 30 µs
    std::atomic<int> inside{0};
    std::array<std::atomic<int>, 2> processors{-1, -1};
    parallelFor(2, 0, [&](int64_t begin, int64_t, void *) {
      auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      for (++inside; inside < 2 && std::chrono::steady_clock::now() < limit;)
        ;
      processors[begin] = sched_getcpu();
    });
    apart += processors[0] != processors[1];
  }
  // The caller may migrate in some of the rounds.
  EXPECT_GE(apart, 10);
}

TEST_F(ParallelFor, WorksInTheChildOfAFork) {
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "the thread sanitizer allows no threads after a fork";
#endif
#endif
  ASSERT_EQ(std::vector<int>(16, 1), timesRun(16)); // the parent's threads are running
  pid_t child = fork();
  if (child == 0) {
    std::atomic<int> inside{0};
    bool together = false;
    parallelFor(2, 0, [&](int64_t, int64_t, void *) {
      auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      for (++inside; inside < 2 && std::chrono::steady_clock::now() < limit;)
        std::this_thread::yield();
      together = inside == 2;
    });
    _exit(together ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(ParallelFor, ThreadCountZeroIsTheNumberOfProcessors) {
  saccade_set_threads(0);
  EXPECT_GE(saccade_threads(), 1);
  saccade_set_threads(3);
  EXPECT_EQ(3, saccade_threads());
}

TEST(Memory, IsAlignedAndZeroBytesAreNotAFailure) {
  for (int64_t bytes : {0, 1, 63, 64, 65, 100000}) {
    void *memory = saccade_allocate(bytes);
    ASSERT_NE(nullptr, memory);
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(memory) % 64);
    saccade_release(memory);
  }
  saccade_release(nullptr);
  EXPECT_EQ(nullptr, saccade_allocate(-1));
  EXPECT_EQ(nullptr, saccade_allocate(INT64_MAX));
}

TEST(Memory, ReleasedBlocksServeTheNextCallOfTheThread) {
  // The blocks of a call are cached for the next one, regardless of preceding sizes.
  for (int64_t stale = 1; stale < 20; ++stale)
    saccade_release(saccade_allocate(stale << 13));
  auto call = [](std::array<void *, 3> &blocks) {
    for (auto [i, bytes] : {std::pair(0, 500'000), std::pair(1, 4'000), std::pair(2, 4'000)})
      blocks[i] = saccade_allocate(bytes);
    for (void *block : blocks)
      saccade_release(block);
    std::sort(blocks.begin(), blocks.end());
  };
  std::array<void *, 3> first, second;
  call(first), call(second);
  EXPECT_EQ(first, second);
  std::thread([&] {
    std::array<void *, 3> other;
    call(other);
    for (void *block : other)
      EXPECT_FALSE(std::binary_search(first.begin(), first.end(), block));
  }).join();
}

TEST(Memory, BlocksServeSizesThatGrow) {
  // As the temporaries of a decode loop, whose sequences get longer.
  void *first = saccade_allocate(270'000);
  saccade_release(first);
  for (int64_t bytes = 270'000; bytes <= 520'000; bytes += 10'000) {
    void *block = saccade_allocate(bytes);
    EXPECT_EQ(first, block) << bytes;
    saccade_release(block);
  }
  // A small request takes the block that fits best.
  void *small = saccade_allocate(200'000);
  saccade_release(small);
  EXPECT_EQ(small, saccade_allocate(200'000));
  saccade_release(small);
}

TEST(Memory, SmallRequestsDoNotUseLargeBlocks) {
  void *large = saccade_allocate(1 << 22);
  saccade_release(large);
  void *small = saccade_allocate(100);
  EXPECT_NE(large, small);
  EXPECT_EQ(large, saccade_allocate(1 << 22));
  saccade_release(large);
  saccade_release(small);
  // Blocks above the limit are not cached.
  void *huge = saccade_allocate(int64_t(1) << 28);
  saccade_release(huge);
  EXPECT_EQ(large, saccade_allocate(1 << 22));
  saccade_release(large);
}

} // namespace
