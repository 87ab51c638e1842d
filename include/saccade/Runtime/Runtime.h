/*===- Runtime.h - Runtime functions of compiled code --------------*- C -*-===
 *
 * The interface of compiled code to its host: parallel loops and memory. It is plain C, so that any host can
 * provide it.
 *
 * Each compiled shared library contains a copy of the runtime. The copies in a process share the threads and the
 * settings below: the copy that is called first serves all of them (docs/guides/threads.md).
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_RUNTIME_RUNTIME_H
#define SACCADE_RUNTIME_RUNTIME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks the runtime functions that a compiled shared library exports; all others are internal. */
#define SACCADE_EXPORTED __attribute__((visibility("default")))

/* Runs the work items [begin, end). `scratch` is memory for this call alone, aligned to 64 bytes, of at least the
 * `scratch_bytes` given to saccade_parallel_for. */
typedef void (*saccade_task)(void *context, int64_t begin, int64_t end, void *scratch);

/* Calls `task` until each of the work items [0, count) has run exactly once, on the threads of the host, and returns
 * when all are done. Items are assigned dynamically, neighbours to threads that share a cache. A nested call runs
 * serially. Returns 0, or 1 if scratch memory could not be allocated (no item has run). Thread-safe; a caller that
 * finds the threads in use runs its items on its own thread. */
int32_t saccade_parallel_for(saccade_task task, void *context, int64_t count, int64_t scratch_bytes);

/* Allocates `bytes` of memory aligned to 64 bytes, or returns NULL. */
void *saccade_allocate(int64_t bytes);
void saccade_release(void *memory);

/* Sets the maximum number of threads of saccade_parallel_for, the caller included; 0 resets it to the default: the
 * number of processors available to the process, or PyTorch's number of threads if PyTorch is loaded. PyTorch's number
 * is never exceeded. */
SACCADE_EXPORTED void saccade_set_threads(int32_t threads);
SACCADE_EXPORTED int32_t saccade_threads(void);

/* A parallel loop provided by the host: calls work(context) at most `workers` times, on different threads if possible,
 * and returns when all calls have returned. The calling thread may be one of them. */
typedef void (*saccade_work)(void *context);
typedef void (*saccade_host_parallel_for)(void *user, int32_t workers, saccade_work work, void *context);

/* Makes saccade_parallel_for run on `run` with at most saccade_threads() workers; NULL restores PyTorch's threads or
 * the runtime's own. Must not be called while a call is running. */
void saccade_set_parallel_for(saccade_host_parallel_for run, void *user);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_RUNTIME_RUNTIME_H */
