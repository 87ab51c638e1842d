/*===- Runtime.h - What compiled code calls --------------------------*- C -*-===
 *
 * The whole contract between compiled code and its host: run tasks, get memory.
 * Plain C, so that any host can provide it.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_RUNTIME_RUNTIME_H
#define SACCADE_RUNTIME_RUNTIME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the work items [begin, end). `scratch` is at least as large as the caller of
 * saccade_parallel_for asked for, aligned to 64 bytes, and belongs to this call alone. */
typedef void (*saccade_task)(void *context, int64_t begin, int64_t end, void *scratch);

/* Calls `task` until each of the work items [0, count) has run exactly once, on as many threads as the host gives,
 * and returns when all are done. Items are handed out in ascending order, dynamically. Inside a running task it runs serially.
 * Returns 0, or 1 where scratch memory could not be had (then nothing ran). */
int32_t saccade_parallel_for(saccade_task task, void *context, int64_t count, int64_t scratch_bytes);

/* `bytes` of memory aligned to 64 bytes, or NULL. */
void *saccade_allocate(int64_t bytes);
void saccade_release(void *memory);

/* How many threads saccade_parallel_for may use, the caller included; 0 asks for the machine's count. */
void saccade_set_threads(int32_t threads);
int32_t saccade_threads(void);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_RUNTIME_RUNTIME_H */
