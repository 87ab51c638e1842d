//===- ParallelFor.cpp - The hook through which compiled code runs tasks ------===//
//
// Decides who runs a call: the host's parallel for, PyTorch's threads, our own pool, or the calling thread alone.
// One item, one thread, a call from inside a task and a pool in use by another host thread all run inline.
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

static std::atomic<int32_t> requestedThreads{0}; // 0: nobody asked
static std::atomic<saccade_host_parallel_for> hostParallelFor{nullptr};
static std::atomic<void *> hostUser{nullptr};

namespace {
/// One call. Its workers take items from one counter, however many of them come and whenever: at first many, an even share
/// of a quarter of what is left, at the end one by one. A task that has the next item, too, can fetch its operands ahead.
struct Job {
  saccade_task task;
  void *context;
  int64_t count;
  int64_t scratchBytes;
  int64_t workers;
  const void *caller; ///< its thread, whose scratch is taken already
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
    // Without scratch this worker leaves its share to the others.
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

/// How many threads a call may have where `torch`, if any, lends its own.
static int32_t threadsWith(const TorchPool *torch) {
  int32_t requested = requestedThreads.load(std::memory_order_relaxed);
  if (!torch)
    return requested ? requested : machineThreads();
  int32_t available = std::min(torch->threads(), ThreadPool::maxThreads);
  return requested ? std::min(requested, available) : available;
}

/// False, with nothing done, where there is one thread only.
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
  // What is left where no worker came, or those who came had no memory.
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

const RuntimeTable saccade::runtime::ownTable = {sizeof(RuntimeTable), parallelFor, setThreads, threads, setParallelFor};
