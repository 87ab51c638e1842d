//===- RuntimeTable.h - The active runtime of a process -----------*- C++ -*-===//
//
// Every compiled library and the compiler's library contain a copy of the runtime. The copy that is called first serves
// all of them, because several thread pools would compete for the cores.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CPU_RUNTIMETABLE_H
#define SACCADE_LIB_RUNTIME_CPU_RUNTIMETABLE_H

#include "saccade/Runtime/Runtime.h"

namespace saccade::runtime {

/// The functions that a copy provides to the others. The layout is fixed for the symbol saccade_runtime_v1; members may
/// be appended, and callers must check `bytes` before they use one.
struct RuntimeTable {
  int64_t bytes; ///< size of this table
  int32_t (*parallelFor)(saccade_task task, void *context, int64_t count, int64_t scratchBytes);
  void (*setThreads)(int32_t threads);
  int32_t (*threads)();
  void (*setParallelFor)(saccade_host_parallel_for run, void *user);
};

/// The table of this copy (ParallelFor.cpp), which is initialised at compile time.
[[gnu::visibility("hidden")]] extern const RuntimeTable ownTable; // NOLINT(bugprone-dynamic-static-initializers)

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_RUNTIMETABLE_H
