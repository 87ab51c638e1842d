//===- LoadedModule.h - Kernels loaded in a context ---------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CUDA_LOADEDMODULE_H
#define SACCADE_LIB_RUNTIME_CUDA_LOADEDMODULE_H

#include "Driver.h"
#include <atomic>

namespace saccade::runtime::cuda {

/// A kernel or a constant of a module that was looked up.
template <typename T> struct Symbol {
  const char *name; ///< a constant of the compiled code, compared by address
  T value;
  Symbol *next;
};

/// The kernels of a program in one context; valid until the program is unloaded.
struct LoadedModule {
  uint64_t context; ///< CUDA's context id, unique in the process
  Device device;
  Module module;
  std::atomic<Symbol<Function> *> kernels{nullptr};
  std::atomic<Symbol<Address> *> constants{nullptr};
  std::atomic<Address> placeholder{0};     ///< address for empty tensors, allocated on demand
  std::atomic<int32_t> multiprocessors{0}; ///< of the device, 0: not known yet
  LoadedModule *next;
};

/// Returns the module that is loaded in the current context, whose id is `context`; else loads the most suitable
/// alternative of `entry` for the device. `entry` becomes the selected alternative. On failure sets `status` and
/// returns null.
LoadedModule *requireModule(const Driver &driver, const SaccadeEntry *&entry, uint64_t context, Device device,
                            SaccadeStatus &status);

/// Readable memory of the context for empty tensors. On failure sets `status` and returns 0.
Address requirePlaceholder(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded,
                           SaccadeStatus &status);

/// Looks up a kernel and sets its limit of dynamic shared memory. On failure sets `status` and returns null.
Function requireKernel(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded, const char *name,
                       int64_t sharedBytes, SaccadeStatus &status);

/// Looks up the address of a constant of the module. On failure sets `status` and returns 0.
Address requireConstant(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded, const char *name,
                        SaccadeStatus &status);

} // namespace saccade::runtime::cuda

#endif // SACCADE_LIB_RUNTIME_CUDA_LOADEDMODULE_H
