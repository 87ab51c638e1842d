/*===- Entry.h - Entry table of compiled functions ------------------*- C -*-===
 *
 * Compiled code defines a constant SaccadeEntry for each public function @f of its program, under the symbol
 * __saccade_entry_f. All wrappers of an entry (C, TVM-FFI, the JIT, the C API) call it through this table, from which
 * the runtime checks the arguments before compiled code accesses memory.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_RUNTIME_ENTRY_H
#define SACCADE_RUNTIME_ENTRY_H

#include "saccade/Runtime/Runtime.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An input or a result of an entry. */
typedef struct SaccadeValueType {
  const char *name;       /* as in the program, without '%': "q"; never NULL */
  const char *text;       /* as MLIR writes the type: "tensor<?x8xf32>", "index" */
  const int64_t *extents; /* `rank` extents, -1 for a dynamic one; NULL if rank < 1 */
  int32_t rank;           /* -1: a scalar */
  uint8_t code;           /* DLPack's type code; integers take kDLInt and kDLUInt, i1 takes kDLBool */
  uint8_t bits;           /* of an element in memory: 8 for i1, 64 for index */
  uint16_t updated_by;    /* of an input that the entry writes: 1 + the number of the result of the program that it
                             receives, which is none of the entry's results; else 0 */
} SaccadeValueType;

/* Version of the table's layout and meaning; `version` and `name` have the same offset in all versions. */
#define SACCADE_ENTRY_VERSION 5

/* The CPU targets of --target: SaccadeCPUTargetPortable, ... */
typedef enum SaccadeCPUTarget {
#define SACCADE_CPU_TARGET(id, name, architecture, features) SaccadeCPUTarget##id,
#include "saccade/Runtime/CPUTargets.def"
} SaccadeCPUTarget;

/* How a call ended. */
typedef enum SaccadeStatus {
  SaccadeSuccess = 0,
  SaccadeTypeError = 1,   /* kind or number of arguments, element type, number of dimensions, device */
  SaccadeValueError = 2,  /* extents, lengths, null data */
  SaccadeOutOfMemory = 3, /* the results are undefined; memory allocated by the call is released */
  SaccadeUnsupported = 5, /* processor, GPU, driver or runtime version does not match the compiled code */
  SaccadeDeviceError = 6, /* the CUDA driver reports an error, possibly of earlier work; the results are undefined */
} SaccadeStatus;

typedef struct SaccadeEntry SaccadeEntry;

/* The kernels of a program for one GPU architecture, shared by all entries of that program. */
typedef struct SaccadeKernels {
  /* Runs an entry on a device after its arguments were checked: saccade_cuda_call. */
  SaccadeStatus (*call)(const SaccadeEntry *entry, int32_t device, void **args, const char **message);
  const char *ptx;          /* zero-terminated */
  const void *cubin;        /* the assembled PTX, or NULL */
  int32_t architecture;     /* 80: sm_80 */
  int32_t is_arch_specific; /* 1: runs on this architecture only (sm_90a); 0: the PTX also runs on later ones */
  int32_t reserved[2];
  void *loaded; /* owned by the runtime, initially NULL */
} SaccadeKernels;

struct SaccadeEntry {
  int32_t version; /* SACCADE_ENTRY_VERSION; other versions are refused */
  int32_t num_inputs, num_results;
  int32_t target;                 /* the SaccadeCPUTarget that the code requires */
  const char *name;               /* function name in the program, without '@' */
  const SaccadeValueType *values; /* inputs, then results; results are tensors */
  /* Both take pointers to memref descriptors {allocated, aligned, offset, sizes[rank], strides[rank]} or to scalars:
   * inputs, then (call only) results. They return NULL or a message, a constant of the object.
   * `shapes` writes the extents of all results consecutively into `sizes`, which holds at least three elements. With a
   * message, sizes[0] is the value found, sizes[1] the value expected and sizes[2] a place. Two zero-terminated strings
   * follow the message: the prefix of the expected value ("", "at least "), and what the place is ("sequence", or "" if
   * there is none). */
  const char *(*call)(void **args);
  const char *(*shapes)(void **args, int64_t *sizes);
  SaccadeKernels *kernels; /* NULL: code for a CPU; else tensors are in GPU memory and `call` launches kernels */
  /* The same entry for another target of the same kind, or NULL: for the next CPU target in the order of preference, or
   * for another GPU architecture. A wrapper refers to the first table, which is that of the preferred CPU target if
   * there is one. */
  const SaccadeEntry *next;
  const SaccadeEntry *gpu; /* of a first table for a CPU: the first table for a GPU, or NULL */
};

/* One argument of a call, with the layout of TVM-FFI's TVMFFIAny. */
typedef struct SaccadeArgument {
  int32_t kind; /* SaccadeArgumentKind; other TVM-FFI type indices are refused */
  uint32_t padding;
  union {
    int64_t integer;
    double real;
    void *pointer;
  } value;
} SaccadeArgument;

typedef enum SaccadeArgumentKind {
  SaccadeArgumentNone = 0,
  SaccadeArgumentInteger = 1,
  SaccadeArgumentBool = 2,
  SaccadeArgumentFloat = 3,
  SaccadeArgumentDLTensor = 7,      /* pointer: a DLTensor */
  SaccadeArgumentTensorObject = 70, /* pointer: a TVM-FFI tensor object; its DLTensor is at byte 24 */
} SaccadeArgumentKind;

/* Checks the arguments (inputs, then results) and runs the entry: its code for GPUs if a tensor is in the memory of a
 * CUDA device and there is such code, else its code for the preferred CPU target among those that the processor
 * supports and saccade_set_cpu_limit allows. `entry` is the first table. Results are memory of the caller with the
 * extents that saccade_entry_shapes gives; they must not overlap one another or an input. The same holds for inputs
 * that are updated in place. Thread-safe. On a GPU the call is asynchronous on the stream described in
 * docs/guides/gpu.md. */
SACCADE_EXPORTED SaccadeStatus saccade_entry_call(const SaccadeEntry *entry, const SaccadeArgument *args,
                                                  int32_t count);

/* Checks the inputs and writes the extents of all results into `sizes`, one result after the other. Results in `args`
 * are ignored. */
SACCADE_EXPORTED SaccadeStatus saccade_entry_shapes(const SaccadeEntry *entry, const SaccadeArgument *args,
                                                    int32_t count, int64_t *sizes);

/* The message of this thread's last failed call: the entry, the argument, and the values found and expected. Valid
 * until the thread's next call of these functions. */
SACCADE_EXPORTED const char *saccade_entry_last_error(void);

/* The CPU target whose code calls on CPU tensors run now, such as "v4"; NULL if the entry has no code for this
 * processor within the limit, or none for a CPU. */
SACCADE_EXPORTED const char *saccade_entry_target(const SaccadeEntry *entry);

/* Limits calls to code that runs on processors of the CPU target `target`, such as "v3"; NULL removes the limit. Holds
 * for all compiled libraries of the process, but not for code that the compiler compiles in process. Returns NULL, or a
 * message if this architecture has no target of the name. A target that the processor does not run is no error. */
SACCADE_EXPORTED const char *saccade_set_cpu_limit(const char *target);

/* saccade_entry_call with the signature of TVM-FFI. Returns 0, or -1 after raising the error in TVM-FFI (TypeError,
 * ValueError, MemoryError, NotImplementedError, RuntimeError). `args` are TVMFFIAny; `result` is set to None. */
int32_t saccade_entry_call_tvm_ffi(const SaccadeEntry *entry, const void *args, int32_t count, void *result);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_RUNTIME_ENTRY_H */
