//===- TorchPool.h - PyTorch's threads ----------------------------*- C++ -*-===//
//
// If PyTorch is loaded in the process, its threads run the tasks: its idle threads spin after an operation, so a second
// pool would compete with them for the cores.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CPU_TORCHPOOL_H
#define SACCADE_LIB_RUNTIME_CPU_TORCHPOOL_H

#include "saccade/Runtime/Runtime.h"
#include <sys/types.h>

namespace saccade::runtime {

class [[gnu::visibility("hidden")]] TorchPool {
public:
  /// PyTorch's pool, or null if PyTorch is not loaded or its functions are missing. Takes about 60 ns if no library was
  /// loaded since the last call.
  static const TorchPool *find();

  /// False in the child of a fork, which has the pool's state but not its threads; `run` might not return there.
  bool isAlive() const;
  /// The number of threads PyTorch uses, the caller included.
  int32_t threads() const;
  /// Calls `work(context)` at most `workers` times on PyTorch's threads, including the calling thread; once inside a
  /// parallel region of PyTorch.
  void run(int32_t workers, saccade_work work, void *context) const;

private:
  bool bind(void *library);

  // The stable C interface of PyTorch 2.13.
  int32_t (*parallelFor)(int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t, int64_t, void *),
                         void *context);
  int32_t (*getNumThreads)(uint32_t *threads);
  // Earlier versions: the OpenMP library that PyTorch was linked with, and at::get_num_threads().
  void (*gompParallel)(void (*body)(void *), void *context, unsigned threads, unsigned flags);
  int (*atGetNumThreads)();
  pid_t process; ///< the process in which the threads exist; 0: none
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_TORCHPOOL_H
