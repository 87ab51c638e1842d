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
#include "WorkList.h"
#include <algorithm>
#include <atomic>
#include <sched.h>
#include <unistd.h>

using namespace saccade::runtime;

static std::atomic<int32_t> requestedThreads{0}; // 0: not set
static std::atomic<saccade_host_parallel_for> hostParallelFor{nullptr};
static std::atomic<void *> hostUser{nullptr};

namespace {
/// One call.
struct Job {
  saccade_task task;
  void *context;
  int64_t count;
  int64_t scratchBytes;
  const void *caller; ///< the calling thread, whose scratch is `callerScratch`
  void *callerScratch;
  const Topology &topology;
  WorkList items;

  void runItems(void *scratch) {
    int64_t begin, end;
    for (int domain = topology.current(); items.take(domain, begin, end);)
      task(context, begin, end, scratch);
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

/// Runs the items; returns false, with no item run, if only one thread is available.
static bool runOnThreads(saccade_task task, void *context, int64_t count, int64_t scratchBytes, void *scratch) {
  saccade_host_parallel_for host = hostParallelFor.load(std::memory_order_acquire);
  const TorchPool *torch = host ? nullptr : TorchPool::find();
  auto workers = static_cast<int32_t>(std::min<int64_t>(threadsWith(torch), count));
  if (workers < 2)
    return false;
  const Topology &topology = Topology::get();
  Job job{task,
          context,
          count,
          scratchBytes,
          ScratchScope::thread(),
          scratch,
          topology,
          WorkList(count, workers, topology)};
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
  if (count > 1 && scratch.isOutermost() && requestedThreads.load(std::memory_order_relaxed) != 1 &&
      runOnThreads(task, context, count, scratchBytes, scratch.get()))
    return 0;
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
