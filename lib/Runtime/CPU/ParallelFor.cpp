//===- ParallelFor.cpp - Parallel loops of compiled code ----------------------===//
//
// Selects the executor of a loop: the host's parallel loop, PyTorch's threads, the runtime's pool, or the calling
// thread. Loops with one item or one thread, nested loops, and loops while the pool is in use run on the calling
// thread.
//
//===----------------------------------------------------------------------===//
#include "RuntimeTable.h"
#include "Scratch.h"
#include "ThreadPool.h"
#include "TorchPool.h"
#include <algorithm>
#include <atomic>
#include <sched.h>
#include <unistd.h>

using namespace saccade::runtime;

static std::atomic<int32_t> requestedThreads{0}; // 0: not set
static std::atomic<saccade_host_parallel_for> hostParallelFor{nullptr};
static std::atomic<void *> hostUser{nullptr};

namespace {
/// One call. Workers take ranges of items from a shared counter; a range is 1 / (4 * workers) of the remaining items
/// (guided self-scheduling). Within a range, a task can prefetch the operands of the next item.
struct Job {
  saccade_task task;
  void *context;
  int64_t count;
  int64_t scratchBytes;
  int64_t workers;
  const void *caller; ///< the calling thread, whose scratch is `callerScratch`
  void *callerScratch;
  alignas(64) std::atomic<int64_t> next{0};

  void runItems(void *scratch) {
    int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      int64_t end = begin + std::max<int64_t>(1, (count - begin) / (4 * workers));
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed))
        continue;
      task(context, begin, end, scratch);
      begin = next.load(std::memory_order_relaxed);
    }
  }

  static void work(void *data) {
    auto *job = static_cast<Job *>(data);
    if (ScratchScope::thread() == job->caller)
      return job->runItems(job->callerScratch);
    // Without scratch this worker takes no items.
    ScratchScope scratch(job->scratchBytes);
    if (scratch.get())
      job->runItems(scratch.get());
  }
};
} // namespace

static int32_t machineThreads() {
  static std::atomic<int32_t> known{0};
  int32_t count = known.load(std::memory_order_relaxed);
  if (count == 0) {
    cpu_set_t allowed;
    count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed)
                                                                 : static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
    count = std::clamp(count, 1, ThreadPool::maxThreads);
    known.store(count, std::memory_order_relaxed);
  }
  return count;
}

/// The maximum number of threads of a call, on the threads of `torch` unless it is null.
static int32_t threadsWith(const TorchPool *torch) {
  int32_t requested = requestedThreads.load(std::memory_order_relaxed);
  if (!torch)
    return requested ? requested : machineThreads();
  int32_t available = std::min(torch->threads(), ThreadPool::maxThreads);
  return requested ? std::min(requested, available) : available;
}

/// Runs a job; returns false, with no item run, if only one thread is available.
static bool runOnThreads(Job &job) {
  saccade_host_parallel_for host = hostParallelFor.load(std::memory_order_acquire);
  const TorchPool *torch = host ? nullptr : TorchPool::find();
  auto workers = static_cast<int32_t>(std::min<int64_t>(threadsWith(torch), job.count));
  if (workers < 2)
    return false;
  job.workers = workers;
  if (host) {
    host(hostUser.load(std::memory_order_relaxed), workers, Job::work, &job);
  } else if (torch && torch->isAlive()) {
    torch->run(workers, Job::work, &job);
  } else {
    ThreadPool *pool = ThreadPool::get();
    if (!pool || !pool->run(workers, Job::work, &job))
      return false;
  }
  // Run the items that remain if workers were missing or had no scratch.
  job.runItems(job.callerScratch);
  return true;
}

static int32_t parallelFor(saccade_task task, void *context, int64_t count, int64_t scratchBytes) {
  if (count <= 0)
    return 0;
  ScratchScope scratch(scratchBytes);
  if (!scratch.get())
    return 1;
  if (count > 1 && scratch.isOutermost() && requestedThreads.load(std::memory_order_relaxed) != 1) {
    Job job{task, context, count, scratchBytes, /*workers=*/1, ScratchScope::thread(), scratch.get()};
    if (runOnThreads(job))
      return 0;
  }
  task(context, 0, count, scratch.get());
  return 0;
}

static void setThreads(int32_t threads) {
  requestedThreads.store(std::clamp(threads, 0, ThreadPool::maxThreads), std::memory_order_relaxed);
}

static int32_t threads() { return threadsWith(hostParallelFor.load() ? nullptr : TorchPool::find()); }

static void setParallelFor(saccade_host_parallel_for run, void *user) {
  hostUser.store(user, std::memory_order_relaxed);
  hostParallelFor.store(run, std::memory_order_release);
}

constinit const RuntimeTable saccade::runtime::ownTable = {sizeof(RuntimeTable), parallelFor, setThreads, threads,
                                                           setParallelFor};
