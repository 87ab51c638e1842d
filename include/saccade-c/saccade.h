/*===- saccade.h - C API of the compiler --------------------------------*- C -*-===
 *
 * Compiles a program, looks up its functions and calls them on DLTensors; docs/reference/c-api.md has an example. All
 * functions are thread-safe and may be called after fork, except that a child may compile only if no other thread was
 * compiling at the fork (LLVM's locks would stay locked). Strings are UTF-8 and zero-terminated. Invalid input never
 * throws or aborts, but handles must be valid. No signal handlers are installed. Compilation runs on a thread with a
 * large stack, so the caller's stack size does not matter.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_C_SACCADE_H
#define SACCADE_C_SACCADE_H

#include "saccade-c/DLTensor.h"
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SACCADE_API __attribute__((visibility("default")))

/* Holds the diagnostic handler and the caches of compiled programs. */
typedef struct SaccadeContext SaccadeContext;
/* A compiled program, reference-counted. */
typedef struct SaccadeModule SaccadeModule;
/* A public function of a module; valid as long as the module. */
typedef struct SaccadeFunction SaccadeFunction;

typedef enum SaccadeResult {
  SACCADE_OK = 0,
  SACCADE_TYPE_ERROR = 1,  /* kind or number of arguments, element type, number of dimensions, device */
  SACCADE_VALUE_ERROR = 2, /* extents, lengths, null data, an unknown option or option value */
  SACCADE_OUT_OF_MEMORY = 3,
  SACCADE_COMPILE_ERROR = 4, /* the program is invalid or unsupported; see the diagnostics */
  SACCADE_UNSUPPORTED = 5,   /* a target or feature that this machine, driver or build does not support */
  SACCADE_DEVICE_ERROR = 6,  /* the CUDA driver reports an error; the results are undefined */
} SaccadeResult;

/* The message of this thread's last failed call; "" after SACCADE_OK. Valid until the thread's next call. */
SACCADE_API const char *saccade_last_error(void);
/* "0.1.0" */
SACCADE_API const char *saccade_version(void);

typedef enum SaccadeSeverity { SACCADE_WARNING = 1, SACCADE_ERROR = 2, SACCADE_REMARK = 3 } SaccadeSeverity;
/* `text` is one diagnostic with its location, source line, caret and notes, as the tools print it. */
typedef void (*SaccadeDiagnosticHandler)(SaccadeSeverity severity, const char *text, void *user);

/* Returns NULL if memory runs out. */
SACCADE_API SaccadeContext *saccade_context_create(void);
/* Modules outlive their context. */
SACCADE_API void saccade_context_destroy(SaccadeContext *context);
/* Sets the handler of diagnostics; NULL removes it. The handler runs on the thread that called the compilation, before
 * that call returns, and may call any function of this API. saccade_last_error() holds the errors as well. */
SACCADE_API void saccade_context_set_diagnostic_handler(SaccadeContext *context, SaccadeDiagnosticHandler handler,
                                                        void *user);

/* Also keeps compiled programs in files of `directory`, which is created when a program is stored, so that other
 * processes need not compile them; NULL, as in a new context, keeps none. The least recently used files are removed
 * beyond `max_bytes` (0: 1 GiB). Any number of processes may share a directory and may be killed at any time. A file
 * that is damaged, of another compiler, or not of this user is not used, and an unwritable directory is not an error.
 * SACCADE_VALUE_ERROR: `directory` exists, but is not a directory that belongs to this user and that only its owner can
 * write; then the context keeps none. */
SACCADE_API SaccadeResult saccade_context_set_disk_cache(SaccadeContext *context, const char *directory,
                                                         uint64_t max_bytes);

/* An option, such as {"target", "v4"} or {"lint", "true"}; saccade_option_help() lists them. The last value of an
 * option that is given repeatedly applies. */
typedef struct SaccadeOption {
  const char *name, *value;
} SaccadeOption;
/* The names and descriptions of the options, one per line. */
SACCADE_API const char *saccade_option_help(void);

/* Compiles MLIR text or bytecode of `size` bytes for this machine: for its processor, or with the option "target" for
 * an NVIDIA GPU ("sm_80", or "cuda:0" for the newest target that this GPU runs). Only "cuda" requires the NVIDIA
 * driver. `name` is the file name in diagnostics and messages (NULL: "program"). The context caches up to 1024 modules
 * by source, name and options, with LRU eviction; a cached module produces no diagnostics, except for one read from a
 * file, which produces those of its compilation. Concurrent requests for the
 * same program compile it once. The caller owns one reference to *module, which is NULL unless the result is
 * SACCADE_OK. */
SACCADE_API SaccadeResult saccade_compile(SaccadeContext *context, const char *source, size_t size, const char *name,
                                          const SaccadeOption *options, size_t num_options, SaccadeModule **module);
/* Prints the program after a stage of the pipeline ("transforms", "schedule", ..., "llvm", "asm"; for a GPU "llvm" and
 * "ptx" are its kernels). Free *text with
 * saccade_text_free. */
SACCADE_API SaccadeResult saccade_print_stage(SaccadeContext *context, const char *source, size_t size,
                                              const char *name, const SaccadeOption *options, size_t num_options,
                                              const char *stage, char **text);
/* Prints the report of saccade-compile --explain: the kernels of each attention and the results of the mask and softmax
 * analyses. `sizes` is NULL or "[FUNCTION:]NAME=NUMBER,..." items separated by ';', which give values for the dynamic
 * extents b, h, q and k and for integer arguments by name. With sizes, the report counts tiles and work and draws the
 * masks. Free *text with saccade_text_free. */
SACCADE_API SaccadeResult saccade_explain(SaccadeContext *context, const char *source, size_t size, const char *name,
                                          const SaccadeOption *options, size_t num_options, const char *sizes,
                                          char **text);
/* The same report as JSON, with more numbers; docs/guides/explain.md has the schema. */
SACCADE_API SaccadeResult saccade_explain_json(SaccadeContext *context, const char *source, size_t size,
                                               const char *name, const SaccadeOption *options, size_t num_options,
                                               const char *sizes, char **text);
SACCADE_API void saccade_text_free(char *text);

/* Times the tasks (parallel loops) of programs for the CPU that this thread calls, until saccade_task_times_end. The
 * pairs may be nested. The code of programs does not depend on it, and other calls are not slower. */
SACCADE_API void saccade_task_times_begin(void);
/* Ends what the thread's last saccade_task_times_begin began, and sets *text to JSON, to be freed with
 * saccade_text_free: {"tasks": [{"name", "launches", "items", "seconds"}], "launches": [[task, begin, end]]}. Times of
 * launches are nanoseconds of CLOCK_MONOTONIC, of the first 1000 at most. SACCADE_VALUE_ERROR: nothing was begun. */
SACCADE_API SaccadeResult saccade_task_times_end(char **text);

/* Statistics of a context's cache. */
typedef struct SaccadeCacheInfo {
  uint64_t hits;         /* calls of saccade_compile served from the cache */
  uint64_t compilations; /* calls that compiled, failures included */
  uint64_t modules;      /* modules in the cache */
  uint64_t disk_hits;    /* calls served from the directory of saccade_context_set_disk_cache */
  uint64_t disk_misses;  /* calls that did not find the program there */
} SaccadeCacheInfo;
SACCADE_API SaccadeCacheInfo saccade_cache_info(SaccadeContext *context);
/* Empties the cache and resets the statistics; modules with references stay valid. Files are kept. */
SACCADE_API void saccade_cache_clear(SaccadeContext *context);
/* Removes all compiled programs from the directory of saccade_context_set_disk_cache. SACCADE_VALUE_ERROR: a file
 * cannot be removed. */
SACCADE_API SaccadeResult saccade_cache_clear_disk(SaccadeContext *context);

/* How long the phases of the compilation of a module took, in seconds; 0 if another process compiled it. */
typedef struct SaccadeCompileTimes {
  double pipeline; /* the stages on MLIR, up to the LLVM dialect */
  double codegen;  /* machine code by LLVM, or PTX */
  double link;     /* into this process */
} SaccadeCompileTimes;
SACCADE_API SaccadeCompileTimes saccade_module_compile_times(const SaccadeModule *module);
/* The stages of the pipeline, in order; none if another process compiled the module. */
typedef struct SaccadeStageTime {
  const char *name; /* "transforms"; as long as the module */
  double seconds;
} SaccadeStageTime;
SACCADE_API size_t saccade_module_num_stages(const SaccadeModule *module);
/* {NULL, 0} if `index` is out of range. */
SACCADE_API SaccadeStageTime saccade_module_stage_at(const SaccadeModule *module, size_t index);

SACCADE_API void saccade_module_retain(SaccadeModule *module);
SACCADE_API void saccade_module_release(SaccadeModule *module);
SACCADE_API size_t saccade_module_num_functions(const SaccadeModule *module);
/* The public function `index` in program order; NULL, with a message in saccade_last_error(), if out of range. */
SACCADE_API const SaccadeFunction *saccade_module_function_at(const SaccadeModule *module, size_t index);
/* The function `name`; NULL if there is none, with a message in saccade_last_error() that lists the functions. */
SACCADE_API const SaccadeFunction *saccade_module_function(const SaccadeModule *module, const char *name);

SACCADE_API const char *saccade_function_name(const SaccadeFunction *function);
SACCADE_API size_t saccade_function_num_inputs(const SaccadeFunction *function);
SACCADE_API size_t saccade_function_num_results(const SaccadeFunction *function);

/* The type of the device of all its tensors: kDLCPU or kDLCUDA. */
SACCADE_API int32_t saccade_function_device_type(const SaccadeFunction *function);

/* An input or a result. */
typedef struct SaccadeValueInfo {
  const char *name;       /* as in the program, without '%' */
  const char *type;       /* as MLIR writes it: "tensor<?x8xf32>" */
  DLDataType dtype;       /* element type */
  int32_t rank;           /* -1: a scalar */
  const int64_t *extents; /* `rank` extents, -1 for a dynamic one */
  int32_t updated_by;     /* of an input that a call updates: the number of the result of the program that it receives,
                             which is none of the function's results; else -1 */
} SaccadeValueInfo;
/* Describes input `index`, or result `index - num_inputs`; requires index < num_inputs + num_results. */
SACCADE_API SaccadeValueInfo saccade_function_value(const SaccadeFunction *function, size_t index);

/* An argument: a tensor, or a scalar if `tensor` is NULL. */
typedef struct SaccadeValue {
  const DLTensor *tensor;
  int64_t integer; /* for integers, index and i1 */
  double real;     /* for floats */
} SaccadeValue;

/* Checks the inputs and writes the extents of all results into `sizes`, one result after the other. */
SACCADE_API SaccadeResult saccade_function_result_shapes(const SaccadeFunction *function, const SaccadeValue *inputs,
                                                         size_t num_inputs, int64_t *sizes);
/* Checks all values (inputs, then results) and runs the function. Results are memory of the caller with the extents
 * that saccade_function_result_shapes gives; they must not overlap one another or an input. Inputs with updated_by >= 0
 * are written to as results are. NULL strides mean
 * contiguous, byte_offset is honoured, and strides of dimensions of extent 0 or 1 are ignored. On a GPU the call is
 * asynchronous, on the stream that TVM-FFI has set for the device (PyTorch's current stream if PyTorch's tensors are
 * passed through TVM-FFI), or the default stream. */
SACCADE_API SaccadeResult saccade_function_call(const SaccadeFunction *function, const SaccadeValue *values,
                                                size_t num_values);
/* The same for a program for a GPU, on `stream`: a CUstream or cudaStream_t of the tensors' device, NULL for the
 * default stream. The call may be captured into a CUDA graph, which may be launched as long as the module exists. For a
 * CPU program only NULL is valid. */
SACCADE_API SaccadeResult saccade_function_call_on_stream(const SaccadeFunction *function, const SaccadeValue *values,
                                                          size_t num_values, void *stream);
/* The TVM-FFI wrapper of a function, int(void *, const TVMFFIAny *, int32_t, TVMFFIAny *), which takes inputs, then
 * results. Valid as long as the module. */
SACCADE_API void *saccade_function_tvm_ffi(const SaccadeFunction *function);

/* Registers the kernels of the operators saccade::attention, attention.lse, attention.max and attention.lse_max in
 * PyTorch, for the CPU and CUDA; the caller defines their schemas. They compile programs in `context`, which must not
 * be destroyed. PyTorch 2.10 or later must be loaded in the process, else the result is SACCADE_UNSUPPORTED. Later
 * calls with the same context do nothing. */
SACCADE_API SaccadeResult saccade_torch_register(SaccadeContext *context);

/* Sets the maximum number of threads of a call, the caller included; 0 resets it to the number of processors. If
 * PyTorch is loaded in the process, its thread pool is used and its number of threads is never exceeded. */
SACCADE_API void saccade_set_num_threads(int32_t threads);
SACCADE_API int32_t saccade_num_threads(void);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_C_SACCADE_H */
