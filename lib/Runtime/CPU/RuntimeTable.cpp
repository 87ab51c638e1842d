//===- RuntimeTable.cpp - Finds the one runtime of a process --------------------------===//
//
// The copies meet at a symbol that the dynamic linker keeps unique in a process, even among libraries that were
// loaded with RTLD_LOCAL and do not see one another otherwise.
//
//===----------------------------------------------------------------------===//
#include "RuntimeTable.h"
#include <atomic>
#include <dlfcn.h>

using namespace saccade::runtime;

// Zero until a copy has published itself. No C++ declaration gives this binding with every compiler. The symbol must
// stay dynamic wherever the runtime is linked into a shared library, and must not be bound there (-Bsymbolic).
asm(R"(
  .pushsection .bss.saccade_runtime_v1, "aw", @nobits
  .globl saccade_runtime_v1
  .type saccade_runtime_v1, @gnu_unique_object
  .size saccade_runtime_v1, 8
  .balign 8
saccade_runtime_v1:
  .zero 8
  .popsection
)");

extern "C" __attribute__((visibility("default"))) std::atomic<const RuntimeTable *> saccade_runtime_v1;
static_assert(sizeof(saccade_runtime_v1) == 8);

/// Keeps the library of this copy loaded for good: its threads sleep in its code, and others hold its table.
static void stayLoaded() {
  Dl_info own;
  if (dladdr(&ownTable, &own) != 0)
    dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static const RuntimeTable &activeTable() {
  const RuntimeTable *known = saccade_runtime_v1.load(std::memory_order_acquire);
  if (known)
    return *known;
  stayLoaded();
  return saccade_runtime_v1.compare_exchange_strong(known, &ownTable, std::memory_order_acq_rel) ? ownTable : *known;
}

int32_t saccade_parallel_for(saccade_task task, void *context, int64_t count, int64_t scratchBytes) {
  return activeTable().parallelFor(task, context, count, scratchBytes);
}

void saccade_set_threads(int32_t threads) { activeTable().setThreads(threads); }

int32_t saccade_threads(void) { return activeTable().threads(); }

void saccade_set_parallel_for(saccade_host_parallel_for run, void *user) { activeTable().setParallelFor(run, user); }
