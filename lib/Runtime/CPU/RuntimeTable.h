//===- RuntimeTable.h - The one runtime of a process ----------------------*- C++ -*-===//
//
// Every artifact carries a copy of the runtime, and so does the compiler's library. The first copy that is called
// serves them all: two pools would hold each other's cores.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CPU_RUNTIMETABLE_H
#define SACCADE_LIB_RUNTIME_CPU_RUNTIMETABLE_H

#include "saccade/Runtime/Runtime.h"

namespace saccade::runtime {

/// What a copy does for the others; fixed for as long as the symbol is called saccade_runtime_v1. Entries may be added
/// at the end, and whoever calls those compares `bytes` first.
struct RuntimeTable {
  int64_t bytes; ///< of this table
  int32_t (*parallelFor)(saccade_task task, void *context, int64_t count, int64_t scratchBytes);
  void (*setThreads)(int32_t threads);
  int32_t (*threads)();
  void (*setParallelFor)(saccade_host_parallel_for run, void *user);
};

/// This copy's own (ParallelFor.cpp).
[[gnu::visibility("hidden")]] extern const RuntimeTable ownTable;

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_RUNTIMETABLE_H
