//===- State.h - What stands behind the handles of the C API ------*- C++ -*-===//
#ifndef SACCADE_LIB_CAPI_STATE_H
#define SACCADE_LIB_CAPI_STATE_H

#include "saccade-c/saccade.h"
#include "saccade/JIT/KernelCache.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Support/ForkSafeMutex.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <atomic>
#include <optional>

struct SaccadeContext {
  saccade::KernelCache cache;
  saccade::ForkSafeMutex lock; ///< of what follows
  SaccadeDiagnosticHandler handler = nullptr;
  void *user = nullptr;
};

struct SaccadeFunction {
  const SaccadeEntry *entry;
  saccade::TVMFFIFunction tvmFFI;
};

struct SaccadeModule {
  std::atomic<size_t> references{1};
  saccade::KernelCache::Program program; ///< holds the code that `functions` point into
  std::vector<SaccadeFunction> functions;
};

namespace saccade {

/// Keeps `message` for saccade_last_error() and returns `result`.
SaccadeResult refuse(SaccadeResult result, const llvm::Twine &message);
/// Forgets the last message and returns SACCADE_OK.
SaccadeResult succeed();

/// The options of a compilation by their names; nothing after `refuse(SACCADE_VALUE_ERROR, ...)`.
std::optional<CompileOptions> parseOptions(llvm::ArrayRef<SaccadeOption> options);

/// A handle on a compiled program, with one reference.
SaccadeModule *createModule(KernelCache::Program program);

/// Runs `body` on a thread with a stack for any nesting that `sourceBytes` of program can hold, and waits for it;
/// false, with nothing done, where there is no memory for one. Signals stay with the host's own threads.
bool runOnLargeStack(size_t sourceBytes, llvm::function_ref<void()> body);

} // namespace saccade

#endif // SACCADE_LIB_CAPI_STATE_H
