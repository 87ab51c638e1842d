//===- ParallelFor.cpp - The hook through which compiled code runs tasks ------===//
//
// Decides between the pool and the caller's own thread: one item, one thread, a call from inside a
// task and a pool in use by another host thread all run inline.
//
//===----------------------------------------------------------------------===//
#include "Scratch.h"
#include "ThreadPool.h"
#include <algorithm>
#include <sched.h>
#include <unistd.h>

using namespace saccade::runtime;

static int32_t machineThreads() {
  cpu_set_t allowed;
  int32_t count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                      ? CPU_COUNT(&allowed)
                      : static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::clamp(count, 1, ThreadPool::maxThreads);
}

static std::atomic<int32_t> &threadCount() {
  static std::atomic<int32_t> count{machineThreads()};
  return count;
}

void saccade_set_threads(int32_t threads) {
  threadCount().store(threads <= 0 ? machineThreads() : std::min(threads, ThreadPool::maxThreads),
                      std::memory_order_relaxed);
}

int32_t saccade_threads(void) { return threadCount().load(std::memory_order_relaxed); }

int32_t saccade_parallel_for(saccade_task task, void *context, int64_t count, int64_t scratchBytes) {
  if (count <= 0)
    return 0;
  ScratchScope scratch(scratchBytes);
  if (!scratch.get())
    return 1;
  int32_t threads = saccade_threads();
  if (count > 1 && threads > 1 && scratch.isOutermost() &&
      ThreadPool::get().run({task, context, count, scratchBytes}, threads, scratch.get()))
    return 0;
  task(context, 0, count, scratch.get());
  return 0;
}
