//===- ThreadPool.h - The threads that run tasks ------------------*- C++ -*-===//
//
// One pool a process. A caller opens a job, works on it itself, and waits only for the workers that
// joined: one that wakes up late holds up nobody.
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

  /// The pool of this process; a new one in the child of a fork, whose threads are not there. Null without memory.
  static ThreadPool *get();

  /// Calls `work(context)` once on the calling thread and on up to `threads` - 1 others at the same time; false, with
  /// nothing done, where another host thread is using the pool.
  bool run(int threads, saccade_work work, void *context);

private:
  explicit ThreadPool(pid_t process) : process(process) {}
  void startWorkers(int expected);
  void workerLoop();
  bool tryJoin(uint32_t &seen);
  void leave();

  // The gate is one word, so that joining a job and closing it cannot cross:
  // the number of the job, whether it is open, how many workers are inside.
  static constexpr uint32_t joinedMask = 0x7ff, openBit = 0x800, jobUnit = 0x1000;
  alignas(64) std::atomic<uint32_t> gate{0};
  alignas(64) std::atomic<uint32_t> sleepers{0};
  saccade_work work = nullptr; ///< the job's; read only by those inside
  void *context = nullptr;
  std::atomic<uint32_t> joinLimit{0}; ///< how many workers the job may have at once
  std::atomic<int> callerProcessor{-1};
  std::atomic<bool> taken{false};     ///< by a calling host thread
  int workers = 0;                    ///< started; touched by the owner of `taken` only
  const pid_t process;
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_THREADPOOL_H
