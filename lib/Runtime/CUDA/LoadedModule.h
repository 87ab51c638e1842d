//===- LoadedModule.h - Kernels in a context of the driver's ------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CUDA_LOADEDMODULE_H
#define SACCADE_LIB_RUNTIME_CUDA_LOADEDMODULE_H

#include "Driver.h"
#include <atomic>

namespace saccade::runtime::cuda {

/// A kernel that has been started before.
struct Kernel {
  const char *name; ///< the text in compiled code; the same kernel always has the same
  Function function;
  Kernel *next;
};

/// The kernels of a program in one context. Lives until the program is unloaded.
struct LoadedModule {
  uint64_t context; ///< its number, which no other context of the process ever has
  Device device;
  Module module;
  std::atomic<Kernel *> kernels{nullptr};
  std::atomic<Address> placeholder{0}; ///< memory that empty tensors get, once there was one
  LoadedModule *next;
};

/// Finds the alternative of `entry` that is loaded in the current context of this number, or else loads the one that
/// suits the device best; `entry` becomes it. Null where `status` ends the call.
LoadedModule *require(const Driver &driver, const SaccadeEntry *&entry, uint64_t context, Device device,
                      SaccadeStatus &status);

/// Some memory of the context that may be read; 0 where `status` ends the call.
Address requirePlaceholder(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded,
                           SaccadeStatus &status);

/// Finds a kernel by its name, or else gets it, with the right to so much dynamic shared memory. Null where `status`
/// ends the call.
Function requireKernel(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded, const char *name,
                       int64_t sharedBytes, SaccadeStatus &status);

} // namespace saccade::runtime::cuda

#endif // SACCADE_LIB_RUNTIME_CUDA_LOADEDMODULE_H
