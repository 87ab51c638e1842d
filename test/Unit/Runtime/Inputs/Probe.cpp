//===- Probe.cpp - A shared library with a copy of the runtime ----------------===//
//
// Linked like a compiled program: it contains the runtime and exports its functions and the runtime table only. Its
// tasks record the threads that ran them.
//
//===----------------------------------------------------------------------===//
#include "saccade/Runtime/Runtime.h"
#include <ctime>
#include <unistd.h>

namespace {

struct Record {
  int32_t *threads; ///< per item, the thread that ran it
  int32_t *runs;    ///< per item, the number of runs
  int64_t microseconds;
};

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1'000'000 + time.tv_nsec / 1000;
}

void task(void *context, int64_t begin, int64_t end, void *) {
  const auto *record = static_cast<Record *>(context);
  for (int64_t item = begin; item < end; ++item) {
    record->threads[item] = gettid();
    __atomic_fetch_add(&record->runs[item], 1, __ATOMIC_RELAXED);
    for (int64_t end = now() + record->microseconds; now() < end;)
      ;
  }
}

} // namespace

// NOLINTBEGIN(readability-identifier-naming): called from Python.
/// Runs `count` items of `microseconds` each; counts them in `runs` and records their threads in `threads`.
extern "C" int32_t probe_run(int64_t count, int64_t microseconds, int32_t *threads, int32_t *runs) {
  Record record{threads, runs, microseconds};
  return saccade_parallel_for(task, &record, count, 256);
}

/// A body for torch_parallel_for that makes a call of four items per index. `data` holds four threads and four counts
/// per index.
extern "C" void probe_region(int64_t begin, int64_t end, void *data) {
  for (int64_t i = begin; i < end; ++i) {
    int32_t *mine = static_cast<int32_t *>(data) + 8 * i;
    probe_run(4, 200, mine, mine + 4);
  }
}
// NOLINTEND(readability-identifier-naming)
