/*===- CUDA.h - What compiled code calls to run on a GPU ------------*- C -*-===
 *
 * The other half of the contract between compiled code and its host, for programs whose tasks are kernels. The driver
 * is looked up at the first call: nothing of CUDA is needed to build or to load such a program.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_RUNTIME_CUDA_H
#define SACCADE_RUNTIME_CUDA_H

#include "saccade/Runtime/Entry.h"
#include "saccade/Runtime/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the entry, or its alternative for the GPU `device` (CUDA's number), with arguments that saccade_entry_call has
 * checked; what its host code returned goes into *message. Takes the context that is current where it is one of this
 * device, else the device's primary one. Neither waits for the GPU nor makes it wait, and may be called while the stream
 * is captured. */
SaccadeStatus saccade_cuda_call(const SaccadeEntry *entry, int32_t device, void **args, const char **message);

/* Unloads what the runtime loaded of a program, before its memory goes. No call may be running. */
void saccade_cuda_unload(SaccadeKernels *kernels);

/* Within saccade_cuda_call, by compiled code: starts `ctas` CTAs of the kernel `name`, whose parameters are `count`
 * words, with `shared_bytes` of dynamic shared memory. What goes wrong is remembered: the call ends with it, and starts
 * nothing any more. */
void saccade_launch(const char *name, const int64_t *params, int64_t count, int64_t ctas, int64_t shared_bytes);

/* Within saccade_cuda_call, by compiled code: memory of the GPU for what follows on the stream; NULL where there is
 * none. It comes from a pool that the driver keeps, and is free again when the work before its release is done. */
void *saccade_device_allocate(int64_t bytes);
void saccade_device_release(void *memory);

/* The CUstream (cudaStream_t) that this thread's calls go to from now on. NULL, as at first: the stream that TVM-FFI has
 * for the device, which is PyTorch's current one where PyTorch's tensors are passed; without TVM-FFI the default
 * stream. */
SACCADE_EXPORTED void saccade_set_stream(void *stream);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_RUNTIME_CUDA_H */
