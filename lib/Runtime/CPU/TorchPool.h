//===- TorchPool.h - PyTorch's threads ----------------------------*- C++ -*-===//
//
// Where PyTorch is in the process its threads run our tasks: idle ones spin after an operation, and a second pool
// beside them would have to fight for every core.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CPU_TORCHPOOL_H
#define SACCADE_LIB_RUNTIME_CPU_TORCHPOOL_H

#include "saccade/Runtime/Runtime.h"
#include <sys/types.h>

namespace saccade::runtime {

class [[gnu::visibility("hidden")]] TorchPool {
public:
  /// PyTorch's pool, or null where PyTorch is not loaded (yet) or lends no threads. Costs some 60 ns where nothing was
  /// loaded since the last search.
  static const TorchPool *find();

  /// False in the child of a fork, which has the pool's state but not its threads: there a call may never return.
  bool isAlive() const;
  /// How many threads PyTorch uses, the caller included.
  int32_t threads() const;
  /// Calls `work(context)` up to `workers` times on PyTorch's threads, the calling one among them; inside a parallel
  /// region of PyTorch's, once.
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
  pid_t process; ///< the one in which the pool is alive; 0: none
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_TORCHPOOL_H
