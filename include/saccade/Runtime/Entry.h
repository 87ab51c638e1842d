/*===- Entry.h - What compiled code says of an entry ------------------*- C -*-===
 *
 * Compiled code holds one constant SaccadeEntry for each public function @f of its program, under the symbol
 * __saccade_entry_f. From it the runtime checks every call before compiled code touches memory. All faces of an
 * entry (plain C, TVM-FFI, the JIT, the C API) come through here.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_RUNTIME_ENTRY_H
#define SACCADE_RUNTIME_ENTRY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An input or a result of an entry. */
typedef struct SaccadeValueType {
  const char *name;       /* as in the program, without '%': "q"; never NULL */
  const char *text;       /* as MLIR writes the type: "tensor<?x8xf32>", "index" */
  const int64_t *extents; /* `rank` of them, -1 where any will do; NULL where rank < 1 */
  int32_t rank;           /* -1: a scalar */
  uint8_t code;           /* DLPack's type code; integers take kDLInt and kDLUInt, i1 takes kDLBool */
  uint8_t bits;           /* of an element in memory: 8 for i1, 64 for index */
  uint16_t reserved;
} SaccadeValueType;

/* Of the table's layout and meaning; `version` and `name` stay where they are in all of them. */
#define SACCADE_ENTRY_VERSION 3

/* The x86-64 CPU targets of --target, each with all before it. */
typedef enum SaccadeCPUTarget {
  SaccadeCPUTargetPortable = 0,
  SaccadeCPUTargetV3 = 1,     /* AVX2, FMA, F16C, BMI */
  SaccadeCPUTargetV4 = 2,     /* AVX-512 F, BW, CD, DQ, VL */
  SaccadeCPUTargetV4BF16 = 3, /* AVX512_BF16 */
} SaccadeCPUTarget;

/* How a call ended. */
typedef enum SaccadeStatus {
  SaccadeSuccess = 0,
  SaccadeTypeError = 1,    /* kind or number of arguments, element type, number of dimensions, device */
  SaccadeValueError = 2,   /* extents, missing data */
  SaccadeOutOfMemory = 3,  /* the results hold anything; what the call allocated is released */
  SaccadeUnsupported = 5,  /* processor, GPU, driver or this runtime is not what the code was compiled for */
  SaccadeDeviceError = 6, /* the GPU's driver reports an error, maybe of earlier work; the results hold anything */
} SaccadeStatus;

typedef struct SaccadeEntry SaccadeEntry;

/* The kernels of a program for one GPU architecture. All entries of that program point to it. */
typedef struct SaccadeKernels {
  /* Runs an entry on a device, once its arguments are right: saccade_cuda_call. */
  SaccadeStatus (*call)(const SaccadeEntry *entry, int32_t device, void **args, const char **message);
  const char *ptx;      /* ends with a 0 */
  const void *cubin;    /* the same, assembled; NULL: none */
  int32_t architecture; /* 80: sm_80 */
  int32_t is_arch_specific;     /* 1: for this architecture alone, as sm_90a is; else PTX goes for all later ones too */
  int32_t cta_threads;  /* of every launch */
  int32_t reserved;
  void *loaded; /* the runtime's; NULL at first */
} SaccadeKernels;

struct SaccadeEntry {
  int32_t version; /* SACCADE_ENTRY_VERSION; calls of any other are refused */
  int32_t num_inputs, num_results;
  int32_t target;                  /* SaccadeCPUTarget that the processor must have */
  const char *name;               /* of the function in the program, without '@' */
  const SaccadeValueType *values; /* inputs, then results; results are tensors */
  /* Both take pointers to MLIR's memref descriptors {allocated, aligned, offset, sizes[rank], strides[rank]} or to
   * scalars: inputs, then (call only) results. They return NULL or a message, a constant of the object.
   * `shapes` writes the extents of all results, one after the other, into `sizes`, which has room for two in any
   * case: beside a message sizes[0] is what was found and sizes[1] what was wanted. Such a message is followed, behind
   * its 0, by the words that stand before what was wanted: "", "at least ". */
  const char *(*call)(void **args);
  const char *(*shapes)(void **args, int64_t *sizes);
  SaccadeKernels *kernels;  /* NULL: a program for the CPU. Else tensors are on a GPU, and so is what `call` runs */
  const SaccadeEntry *next; /* the same entry for another architecture of GPUs; NULL: none */
};

/* One argument of a call, laid out as TVM-FFI's TVMFFIAny. */
typedef struct SaccadeArgument {
  int32_t kind; /* SaccadeArgumentKind, or another index of TVM-FFI's types: refused */
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
  SaccadeArgumentTensorObject = 70, /* pointer: TVM-FFI's tensor object, whose DLTensor stands at byte 24 */
} SaccadeArgumentKind;

/* Checks the arguments and runs the entry: inputs, then results, which are the caller's memory, must have the extents
 * that saccade_entry_shapes gives, and overlap neither one another nor an input. Several threads may call at once. On a
 * GPU the work is under way when it returns, on the stream that docs/gpu.md tells of. */
SaccadeStatus saccade_entry_call(const SaccadeEntry *entry, const SaccadeArgument *args, int32_t count);

/* Checks the inputs and writes the extents of all results, one result after the other. `args` may go on with results,
 * which are ignored. */
SaccadeStatus saccade_entry_shapes(const SaccadeEntry *entry, const SaccadeArgument *args, int32_t count,
                                   int64_t *sizes);

/* The message of this thread's last refusal: names entry and argument, what was found and what was expected. Valid
 * until the thread's next call of these functions. */
const char *saccade_entry_last_error(void);

/* saccade_entry_call as TVM-FFI wants it: 0, or -1 with the error raised there (TypeError, ValueError, MemoryError,
 * NotImplementedError, RuntimeError).
 * `args` are TVMFFIAny, `result` is set to None. */
int32_t saccade_entry_call_tvm_ffi(const SaccadeEntry *entry, const void *args, int32_t count, void *result);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_RUNTIME_ENTRY_H */
