/*===- CUDA.h - Runtime functions of programs for a GPU ------------*- C -*-===
 *
 * The functions that the compiled host code of a GPU program calls to launch kernels and allocate device memory. The
 * driver library is loaded at the first call, so building or loading such a program does not require CUDA.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_RUNTIME_CUDA_H
#define SACCADE_RUNTIME_CUDA_H

#include "saccade/Runtime/Entry.h"
#include "saccade/Runtime/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the entry, or its alternative for the architecture of the GPU `device` (a CUDA ordinal), with arguments that
 * saccade_entry_call has checked. *message receives the return value of the host code. Uses the current context if it
 * belongs to this device, else the device's primary context. The call is asynchronous, does not synchronise the device,
 * and may be made during stream capture. */
SaccadeStatus saccade_cuda_call(const SaccadeEntry *entry, int32_t device, void **args, const char **message);

/* Unloads the modules that the runtime loaded for a program. Must be called before the program's memory is released,
 * while no call is running. */
void saccade_cuda_unload(SaccadeKernels *kernels);

/* Called by compiled code within saccade_cuda_call: launches `ctas` CTAs of `threads` threads of the kernel `name` with
 * `count` words of parameters (a tensor map takes 16) and `shared_bytes` of dynamic shared memory. After the first
 * failure the rest of the call launches nothing, and the call returns that failure. */
void saccade_launch(const char *name, const int64_t *params, int64_t count, int64_t ctas, int64_t threads,
                    int64_t shared_bytes);

/* Called by compiled code within saccade_cuda_call: makes a tensor map for bulk copies of a buffer. `map` has 128 bytes
 * at a multiple of 64, `buffer` are the words of the buffer as a parameter, `plan` describes the copies (TensorMap.h).
 * Returns 1, or 0 if the buffer has extents, strides or an address that bulk copies do not support. */
int32_t saccade_encode_tensor_map(void *map, const int64_t *buffer, const int64_t *plan);

/* Called by compiled code within saccade_cuda_call: the device address of the constant `name` of the program's kernels,
 * NULL on failure. */
void *saccade_device_constant(const char *name);

/* Called by compiled code within saccade_cuda_call: allocates device memory from a driver pool, in stream order; NULL
 * on failure. */
void *saccade_device_allocate(int64_t bytes);
void saccade_device_release(void *memory);

/* Called by compiled code within saccade_cuda_call: allocates a 32-bit counter as saccade_device_allocate, and sets it
 * to 0 in stream order; NULL on failure. A captured call sets it at each launch of the graph. */
void *saccade_device_counter(void);

/* Called by compiled code within saccade_cuda_call: the number of multiprocessors of the GPU, 1 on failure. */
int64_t saccade_multiprocessors(void);

/* Sets the CUstream (cudaStream_t) for later calls of this thread. NULL, the initial value: the stream that TVM-FFI has
 * set for the device (PyTorch's current stream if PyTorch tensors are passed), or the default stream without TVM-FFI.
 */
SACCADE_EXPORTED void saccade_set_stream(void *stream);

/* As saccade_entry_call of a GPU program, on `stream` (a CUstream or cudaStream_t; NULL: the default stream) in place
 * of the stream that saccade_set_stream or TVM-FFI has set. */
SACCADE_EXPORTED SaccadeStatus saccade_entry_call_on_stream(const SaccadeEntry *entry, const SaccadeArgument *args,
                                                            int32_t count, void *stream);

/* Writes the compute capability of the GPU `ordinal`, 80 for 8.0. Errors begin with `subject`. */
SaccadeStatus saccade_cuda_capability(const char *subject, int32_t ordinal, int32_t *capability);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_RUNTIME_CUDA_H */
