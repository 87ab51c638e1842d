/*===- Runtime.h - What compiled code calls --------------------------*- C -*-===
 *
 * The whole contract between compiled code and its host: run tasks, get memory.
 * Plain C, so that any host can provide it.
 *
 * A process may hold several copies of the runtime, for each shared library that was made carries one. They share the
 * threads and the settings below: the first copy that is called serves all. docs/threads.md has the whole story.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_RUNTIME_RUNTIME_H
#define SACCADE_RUNTIME_RUNTIME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a shared library with the runtime in it offers to its host; all else stays inside. */
#define SACCADE_EXPORTED __attribute__((visibility("default")))

/* Runs the work items [begin, end). `scratch` is at least as large as the caller of
 * saccade_parallel_for asked for, aligned to 64 bytes, and belongs to this call alone. */
typedef void (*saccade_task)(void *context, int64_t begin, int64_t end, void *scratch);

/* Calls `task` until each of the work items [0, count) has run exactly once, on as many threads as the host gives,
 * and returns when all are done. Items are handed out in ascending order, dynamically. Inside a running task it runs
 * serially. Returns 0, or 1 where scratch memory could not be had (then nothing ran). Several threads may call at once;
 * one that finds the threads in use works alone. */
int32_t saccade_parallel_for(saccade_task task, void *context, int64_t count, int64_t scratch_bytes);

/* `bytes` of memory aligned to 64 bytes, or NULL. */
void *saccade_allocate(int64_t bytes);
void saccade_release(void *memory);

/* How many threads saccade_parallel_for may use, the caller included; 0 takes the wish back. Without one it is what
 * the process may run at once, or with PyTorch in the process PyTorch's own number, which is never exceeded. */
SACCADE_EXPORTED void saccade_set_threads(int32_t threads);
SACCADE_EXPORTED int32_t saccade_threads(void);

/* A parallel for of the host's own: calls work(context) up to `workers` times, each call on a thread of its own where
 * it can, the calling thread included or not, and returns when all calls have returned. */
typedef void (*saccade_work)(void *context);
typedef void (*saccade_host_parallel_for)(void *user, int32_t workers, saccade_work work, void *context);

/* From now on saccade_parallel_for runs on `run`, with saccade_threads() workers at most; NULL goes back to PyTorch's
 * threads or our own. No call may be running meanwhile. */
void saccade_set_parallel_for(saccade_host_parallel_for run, void *user);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_RUNTIME_RUNTIME_H */
