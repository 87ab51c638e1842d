//===- ThreadPool.h - The runtime's thread pool -------------------*- C++ -*-===//
//
// One pool per process. A caller opens a job, takes part in it, and waits only for the workers that joined, so that a
// worker that wakes up late does not delay it.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CPU_THREADPOOL_H
#define SACCADE_LIB_RUNTIME_CPU_THREADPOOL_H

#include "saccade/Runtime/Runtime.h"
#include <atomic>
#include <sys/types.h>

namespace saccade::runtime {

class [[gnu::visibility("hidden")]] ThreadPool {
public:
  static constexpr int maxThreads = 1024;

  /// The pool of this process; a new one in the child of a fork, which has no worker threads. Null if out of memory.
  static ThreadPool *get();

  /// Calls `work(context)` once on the calling thread and on at most `threads` - 1 workers concurrently. Returns false,
  /// without a call, if another host thread is using the pool.
  bool run(int threads, saccade_work work, void *context);

private:
  explicit ThreadPool(pid_t process) : process(process) {}
  void startWorkers(int expected);
  void workerLoop();
  bool tryJoin(uint32_t &seen);
  void leave();

  // One atomic word, so that joining a job and closing it cannot race: the job's number, whether it is open, and the
  // number of workers inside.
  static constexpr uint32_t joinedMask = 0x7ff, openBit = 0x800, jobUnit = 0x1000;
  alignas(64) std::atomic<uint32_t> gate{0};
  alignas(64) std::atomic<uint32_t> sleepers{0};
  saccade_work work = nullptr; ///< of the job; read only by workers inside it
  void *context = nullptr;
  std::atomic<uint32_t> joinLimit{0}; ///< maximum number of workers inside the job
  std::atomic<int> callerProcessor{-1};
  std::atomic<bool> taken{false}; ///< in use by a host thread
  int workers = 0;                ///< number of started workers; guarded by `taken`
  const pid_t process;
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_THREADPOOL_H
