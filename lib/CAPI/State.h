//===- State.h - Types behind the handles of the C API ------------*- C++ -*-===//
#ifndef SACCADE_LIB_CAPI_STATE_H
#define SACCADE_LIB_CAPI_STATE_H

#include "saccade-c/saccade.h"
#include "saccade/JIT/DiskCache.h"
#include "saccade/JIT/KernelCache.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Support/ForkSafeMutex.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <atomic>

struct SaccadeContext {
  saccade::KernelCache cache;
  saccade::ForkSafeMutex lock; ///< guards the members below
  std::shared_ptr<saccade::DiskCache> disk;
  SaccadeDiagnosticHandler handler = nullptr;
  void *user = nullptr;
};

struct SaccadeFunction {
  const SaccadeEntry *entry;
  saccade::TVMFFIFunction tvmFFI;
};

struct SaccadeModule {
  std::atomic<size_t> references{1};
  saccade::KernelCache::Program program; ///< owns the code that `functions` refer to
  std::vector<SaccadeFunction> functions;
};

namespace saccade {

/// Stores `message` for saccade_last_error() and returns `result`.
SaccadeResult refuse(SaccadeResult result, const llvm::Twine &message);
/// Clears the message and returns SACCADE_OK.
SaccadeResult succeed();

/// Parses the named options of a compilation. Calls `refuse` for invalid ones, and for a GPU that cannot be used.
SaccadeResult parseOptions(llvm::ArrayRef<SaccadeOption> options, CompileOptions &into);

/// The disk cache of a context; null if it has none.
std::shared_ptr<DiskCache> diskCache(SaccadeContext *context);

/// Creates a module with one reference.
SaccadeModule *createModule(KernelCache::Program program);

/// Runs `body` on a thread whose stack suffices for the nesting depth of any program of `sourceBytes`, and waits for
/// it. Returns false, without running `body`, if memory for the stack cannot be allocated. The thread blocks signals.
bool runOnLargeStack(size_t sourceBytes, llvm::function_ref<void()> body);

/// Drops the programs that PyTorch operators have called; their next calls compile them again.
void clearTorchPlans();

} // namespace saccade

#endif // SACCADE_LIB_CAPI_STATE_H
