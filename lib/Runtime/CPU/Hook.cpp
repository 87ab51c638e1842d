//===- Hook.cpp - Finds the one runtime of a process --------------------------===//
//
// The copies meet at a symbol that the dynamic linker keeps unique in a process, even among libraries that were
// loaded with RTLD_LOCAL and do not see one another otherwise.
//
//===----------------------------------------------------------------------===//
#include "Hook.h"
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

extern "C" __attribute__((visibility("default"))) std::atomic<const Hook *> saccade_runtime_v1;
static_assert(sizeof(saccade_runtime_v1) == 8);

/// Keeps the library of this copy loaded for good: its threads sleep in its code, and others hold its table.
static void stayLoaded() {
  Dl_info own;
  if (dladdr(&ownHook, &own) != 0)
    dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static const Hook &hook() {
  const Hook *known = saccade_runtime_v1.load(std::memory_order_acquire);
  if (known)
    return *known;
  stayLoaded();
  return saccade_runtime_v1.compare_exchange_strong(known, &ownHook, std::memory_order_acq_rel) ? ownHook : *known;
}

int32_t saccade_parallel_for(saccade_task task, void *context, int64_t count, int64_t scratchBytes) {
  return hook().parallelFor(task, context, count, scratchBytes);
}

void saccade_set_threads(int32_t threads) { hook().setThreads(threads); }

int32_t saccade_threads(void) { return hook().threads(); }

void saccade_set_parallel_for(saccade_host_parallel_for run, void *user) { hook().setParallelFor(run, user); }
