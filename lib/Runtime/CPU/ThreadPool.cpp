//===- ThreadPool.cpp - The runtime's thread pool -----------------------------===//
//
// Waiting threads spin briefly, because the next parallel loop of a model usually follows at once, and then sleep on
// the gate's futex, which frees the cores for the host.
//
//===----------------------------------------------------------------------===//
#include "ThreadPool.h"
#include <csignal>
#include <ctime>
#include <linux/futex.h>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace saccade::runtime;

// Both wait on the gate: workers for a job to open, the caller for the last worker to leave.
static constexpr uint32_t workerChannel = 1, callerChannel = 2;

static void sleepWhile(std::atomic<uint32_t> &word, uint32_t value, uint32_t channel) {
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value, nullptr, nullptr, channel);
}

static void wake(std::atomic<uint32_t> &word, int count, uint32_t channel) {
  syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, count, nullptr, nullptr, channel);
}

static void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

static int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// Spins for at most about 30 microseconds; returns whether `done()` became true.
template <typename Predicate> static bool spinUntil(Predicate done) {
  int64_t end = nanoseconds() + 30'000;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done())
        return true;
      relax();
    }
  } while (nanoseconds() < end);
  return false;
}

/// Moves the calling worker off `processor`, on which its caller runs. In a virtual machine, Linux regards processors
/// that the hypervisor has descheduled as busy and wakes workers on the caller's processor, from which it migrates them
/// only after milliseconds. `avoided` is the processor excluded by the previous call, or -1.
static void leaveProcessor(int processor, int &avoided) {
  cpu_set_t allowed;
  if (sched_getcpu() != processor || sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
    return;
  if (avoided >= 0)
    CPU_SET(avoided, &allowed);
  CPU_CLR(processor, &allowed);
  if (CPU_COUNT(&allowed) != 0 && sched_setaffinity(0, sizeof(allowed), &allowed) == 0)
    avoided = processor;
}

ThreadPool *ThreadPool::get() {
  // Leaked: workers may outlive static destructors, and the pool of a parent process has locks in an unknown state.
  static std::atomic<ThreadPool *> pool{nullptr};
  ThreadPool *known = pool.load(std::memory_order_acquire);
  pid_t process = getpid();
  while (!known || known->process != process) {
    void *memory = saccade_allocate(sizeof(ThreadPool));
    if (!memory)
      return nullptr;
    auto *fresh = new (memory) ThreadPool(process);
    if (pool.compare_exchange_strong(known, fresh, std::memory_order_acq_rel))
      return fresh;
    saccade_release(fresh);
  }
  return known;
}

void ThreadPool::startWorkers(int expected) {
  if (workers >= expected)
    return;
  // Workers block signals, except synchronous faults, so that the host's handlers run on the host's threads.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  for (; workers < expected; ++workers) {
    pthread_t thread;
    auto body = [](void *pool) -> void * {
      static_cast<ThreadPool *>(pool)->workerLoop();
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, body, this) != 0)
      break; // the job runs with fewer threads
    pthread_detach(thread);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool ThreadPool::run(int threads, saccade_work work, void *context) {
  if (taken.exchange(true, std::memory_order_acquire))
    return false;
  int helpers = threads - 1;
  startWorkers(helpers);
  this->work = work;
  this->context = context;
  joinLimit.store(helpers, std::memory_order_relaxed);
  callerProcessor.store(sched_getcpu(), std::memory_order_relaxed);
  // Open the job. No worker is inside, so the sum does not carry between the fields.
  gate.fetch_add(jobUnit + openBit);
  if (sleepers.load() != 0)
    wake(gate, helpers, workerChannel);

  work(context);

  uint32_t state = gate.fetch_and(~openBit) & ~openBit;
  auto empty = [&] { return ((state = gate.load(std::memory_order_acquire)) & joinedMask) == 0; };
  if (!spinUntil(empty))
    while (!empty())
      sleepWhile(gate, state, callerChannel);
  taken.store(false, std::memory_order_release);
  return true;
}

bool ThreadPool::tryJoin(uint32_t &seen) {
  uint32_t state = gate.load(std::memory_order_acquire);
  while (state & openBit) {
    uint32_t job = state / jobUnit;
    if (job == seen || (state & joinedMask) >= joinLimit.load(std::memory_order_relaxed))
      return false;
    if (gate.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) {
      seen = job;
      return true;
    }
  }
  return false;
}

void ThreadPool::leave() {
  uint32_t state = gate.fetch_sub(1, std::memory_order_acq_rel) - 1;
  if ((state & (openBit | joinedMask)) == 0)
    wake(gate, 1, callerChannel);
}

void ThreadPool::workerLoop() {
  uint32_t seen = UINT32_MAX; // not the number of a job
  int avoided = -1;
  for (;;) {
    bool joined = spinUntil([&] { return tryJoin(seen); }), slept = !joined;
    while (!joined) {
      uint32_t state = gate.load();
      sleepers.fetch_add(1);
      // A job that opens in between changes the gate, so the futex call returns at once.
      if (!(joined = tryJoin(seen)))
        sleepWhile(gate, state, workerChannel);
      sleepers.fetch_sub(1);
      joined = joined || tryJoin(seen);
    }
    if (slept)
      leaveProcessor(callerProcessor.load(std::memory_order_relaxed), avoided);
    work(context);
    leave();
  }
}
