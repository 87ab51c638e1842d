//===- MemoryChecks.cpp - Checked memory for calls ----------------------------===//
//
// Replaces the runtime functions of linked objects on threads that have a ScopedMemoryChecks. The loop itself still
// runs in the runtime, on its threads.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/MemoryChecks.h"
#include "Linker.h"
#include "saccade/JIT/TaskTimes.h"
#include "llvm/ADT/DenseMap.h"
#include <mutex>

using namespace saccade;

static thread_local ScopedMemoryChecks *currentChecks = nullptr;

ScopedMemoryChecks::ScopedMemoryChecks(Guard guard) : before(currentChecks), guard(guard) { currentChecks = this; }
ScopedMemoryChecks::~ScopedMemoryChecks() { currentChecks = before; }

static constexpr int64_t alignment = 64;
/// Larger temporaries come from the runtime, which can refuse them without ending the process.
static constexpr int64_t maxChecked = int64_t(1) << 30;

/// Ends the process if something was written outside of `memory`.
static void checkRest(const GuardedMemory &memory, const char *what) {
  if (memory.isRestIntact())
    return;
  llvm::errs() << "error: compiled code writes outside of " << what << '\n';
  std::abort();
}

/// A loop whose tasks run on checked scratch.
struct saccade::CheckedLoop {
  saccade_task task;
  void *context;
  int64_t scratchBytes;
  ScopedMemoryChecks *checks;

  /// Runs items on a thread of the runtime.
  static void run(void *data, int64_t begin, int64_t end, void *) {
    const auto &loop = *static_cast<CheckedLoop *>(data);
    // The task of a nested loop allocates on this thread.
    ScopedMemoryChecks *before = std::exchange(currentChecks, loop.checks);
    GuardedMemory scratch(loop.scratchBytes, alignment, loop.checks->mode(), "scratch memory");
    loop.checks->items += end - begin;
    while (begin < end) {
      int64_t next = std::min(end, begin + 1 + begin % 3 % 2);
      scratch.poison();
      loop.task(loop.context, begin, next, scratch.data());
      checkRest(scratch, "scratch memory");
      begin = next;
    }
    currentChecks = before;
  }
};

namespace {

/// The live temporaries of all threads.
struct Temporaries {
  std::mutex lock;
  llvm::DenseMap<void *, std::unique_ptr<GuardedMemory>> blocks;
};

} // namespace

static Temporaries &temporaries() {
  static Temporaries instance;
  return instance;
}

static int32_t runLoop(saccade_task task, void *context, int64_t count, int64_t scratchBytes) {
  if (!currentChecks)
    return saccade_parallel_for(task, context, count, scratchBytes);
  CheckedLoop loop{task, context, scratchBytes, currentChecks};
  return saccade_parallel_for(CheckedLoop::run, &loop, count, 0);
}

int32_t saccade::checkedParallelFor(saccade_task task, void *context, int64_t count, int64_t scratchBytes) {
  ScopedTaskTimes *times = ScopedTaskTimes::current();
  if (!times)
    return runLoop(task, context, count, scratchBytes);
  ScopedTaskTimes::Clock::time_point begin = ScopedTaskTimes::Clock::now();
  int32_t status = runLoop(task, context, count, scratchBytes);
  times->add(task, count, begin, ScopedTaskTimes::Clock::now());
  return status;
}

void *saccade::checkedAllocate(int64_t bytes) {
  if (!currentChecks || bytes < 0 || bytes > maxChecked)
    return saccade_allocate(bytes);
  auto memory = std::make_unique<GuardedMemory>(bytes, alignment, currentChecks->mode(), "temporary memory");
  void *data = memory->data();
  std::lock_guard guard(temporaries().lock);
  temporaries().blocks[data] = std::move(memory);
  return data;
}

void saccade::checkedRelease(void *memory) {
  if (!currentChecks)
    return saccade_release(memory);
  std::unique_ptr<GuardedMemory> block;
  {
    std::lock_guard guard(temporaries().lock);
    auto it = temporaries().blocks.find(memory);
    if (it != temporaries().blocks.end()) {
      block = std::move(it->second);
      temporaries().blocks.erase(it);
    }
  }
  if (!block)
    return saccade_release(memory);
  checkRest(*block, "temporary memory");
}
