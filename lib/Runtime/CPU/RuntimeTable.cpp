//===- RuntimeTable.cpp - Selects the active runtime of a process -------------===//
//
// The copies share a GNU unique symbol, of which the dynamic linker keeps one definition per process, even among
// libraries loaded with RTLD_LOCAL.
//
//===----------------------------------------------------------------------===//
#include "RuntimeTable.h"
#include <atomic>
#include <dlfcn.h>

using namespace saccade::runtime;

// Zero until a copy registers its table. Assembly, because not every compiler can declare this binding in C++.
// Libraries that contain the runtime must export the symbol and must not be linked with -Bsymbolic.
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

/// Prevents the library of this copy from being unloaded: its threads run its code, and other copies call its table.
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

int32_t saccade_parallel_for(saccade_task task, void *context, int64_t count, int64_t scratch_bytes) {
  return activeTable().parallelFor(task, context, count, scratch_bytes);
}

void saccade_set_threads(int32_t threads) { activeTable().setThreads(threads); }

int32_t saccade_threads(void) { return activeTable().threads(); }

void saccade_set_parallel_for(saccade_host_parallel_for run, void *user) { activeTable().setParallelFor(run, user); }
