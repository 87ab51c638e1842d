/*===- saccade.h - The compiler as a C library -------------------------*- C -*-===
 *
 * Compile a program, look a function up, call it on DLTensors; docs/c-api.md shows it. Every function may be called
 * from several threads at once, and after fork; but a child may compile only if no other thread was compiling when it was
 * forked, for LLVM's own locks stay as they were. Strings are UTF-8 and end in 0. Nothing here throws or aborts on bad
 * input; handles must be valid, and no signal handler is ever installed. Programs are compiled on a thread with a
 * large stack of their own, so a caller with a small one is well.
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

/* Where compilations happen: their diagnostics and the kernels already made. */
typedef struct SaccadeContext SaccadeContext;
/* A compiled program; counted references. */
typedef struct SaccadeModule SaccadeModule;
/* A public function of a module; lives as long as the module. */
typedef struct SaccadeFunction SaccadeFunction;

typedef enum SaccadeResult {
  SACCADE_OK = 0,
  SACCADE_TYPE_ERROR = 1,    /* kind or number of arguments, element type, number of dimensions, device */
  SACCADE_VALUE_ERROR = 2,   /* extents, missing data, an unknown option or its value */
  SACCADE_OUT_OF_MEMORY = 3,
  SACCADE_COMPILE_ERROR = 4,       /* the program was refused; the diagnostics said why */
  SACCADE_UNSUPPORTED = 5,   /* target or feature that this machine, its driver or build has not */
  SACCADE_DEVICE_ERROR = 6, /* the GPU's driver reports an error; the results hold anything */
} SaccadeResult;

/* What happened last on this thread, in words; "" after SACCADE_OK. Valid until the thread's next call. */
SACCADE_API const char *saccade_last_error(void);
/* "0.1.0" */
SACCADE_API const char *saccade_version(void);

typedef enum SaccadeSeverity { SACCADE_WARNING = 1, SACCADE_ERROR = 2, SACCADE_REMARK = 3 } SaccadeSeverity;
/* `text` is one diagnostic with its location, the line of source, a caret and its notes, as the tools print it. */
typedef void (*SaccadeDiagnosticHandler)(SaccadeSeverity severity, const char *text, void *user);

/* NULL where memory ran out. */
SACCADE_API SaccadeContext *saccade_context_create(void);
/* Modules outlive their context. */
SACCADE_API void saccade_context_destroy(SaccadeContext *context);
/* Called on the thread that asked for a compilation, before that call returns, and free to call anything here. NULL:
 * none. Errors are also in saccade_last_error() after a refusal. */
SACCADE_API void saccade_context_set_diagnostic_handler(SaccadeContext *context, SaccadeDiagnosticHandler handler,
                                                        void *user);

/* A name and its value: {"target", "v4"}, {"lint", "true"}. saccade_option_help() lists them; of one given twice the
 * last counts. */
typedef struct SaccadeOption {
  const char *name, *value;
} SaccadeOption;
/* The options with what they mean, one a line. */
SACCADE_API const char *saccade_option_help(void);

/* Compiles MLIR text or bytecode of `size` bytes for this machine. `name` stands for the file in diagnostics and in
 * messages of calls (NULL: "program"). The same program of the same name with the same options is compiled once in a
 * context and then found again, without diagnostics; a thread that asks for what another one is compiling waits for it. The cache keeps 1024 modules and
 * then forgets the one asked for longest ago. The caller owns one reference to
 * *module, which is NULL unless the result is SACCADE_OK. */
SACCADE_API SaccadeResult saccade_compile(SaccadeContext *context, const char *source, size_t size, const char *name,
                                          const SaccadeOption *options, size_t num_options, SaccadeModule **module);
/* The program after a stage of the pipeline ("transforms", "schedule", ..., "llvm", "asm"), as text to be freed with
 * saccade_text_free. */
SACCADE_API SaccadeResult saccade_print_stage(SaccadeContext *context, const char *source, size_t size, const char *name,
                                             const SaccadeOption *options, size_t num_options, const char *stage,
                                             char **text);
/* The report of saccade-compile --explain: of each attention its kernels, and what is proved of its mask and softmax.
 * `sizes` (NULL: none): "[FUNCTION:]NAME=NUMBER,...", several of these with ';' between them: b, h, q and k where they
 * are dynamic, and integer arguments by their names; then tiles and work are counted and masks drawn. */
SACCADE_API SaccadeResult saccade_explain(SaccadeContext *context, const char *source, size_t size, const char *name,
                                          const SaccadeOption *options, size_t num_options, const char *sizes,
                                          char **text);
SACCADE_API void saccade_text_free(char *text);

/* What a context's compilations came to. */
typedef struct SaccadeCacheInfo {
  uint64_t hits;         /* calls of saccade_compile that found their program */
  uint64_t compilations; /* those that compiled it, refused programs included */
  uint64_t modules;      /* now in the cache */
} SaccadeCacheInfo;
SACCADE_API SaccadeCacheInfo saccade_cache_info(SaccadeContext *context);
/* Forgets all modules (those in use live on) and starts the counts at 0. */
SACCADE_API void saccade_cache_clear(SaccadeContext *context);

SACCADE_API void saccade_module_retain(SaccadeModule *module);
SACCADE_API void saccade_module_release(SaccadeModule *module);
SACCADE_API size_t saccade_module_num_functions(const SaccadeModule *module);
/* In the order of the program; NULL beyond the last. */
SACCADE_API const SaccadeFunction *saccade_module_function_at(const SaccadeModule *module, size_t index);
/* NULL where there is none of that name. */
SACCADE_API const SaccadeFunction *saccade_module_function(const SaccadeModule *module, const char *name);

SACCADE_API const char *saccade_function_name(const SaccadeFunction *function);
SACCADE_API size_t saccade_function_num_inputs(const SaccadeFunction *function);
SACCADE_API size_t saccade_function_num_results(const SaccadeFunction *function);

/* An input or a result. */
typedef struct SaccadeValueInfo {
  const char *name;       /* as in the program, without '%' */
  const char *type;       /* as MLIR writes it: "tensor<?x8xf32>" */
  DLDataType dtype;       /* of its elements */
  int32_t rank;           /* -1: a scalar */
  const int64_t *extents; /* `rank` of them, -1 where any will do */
} SaccadeValueInfo;
/* Input `index`, or result `index - num_inputs`; index is less than their sum. */
SACCADE_API SaccadeValueInfo saccade_function_value(const SaccadeFunction *function, size_t index);

/* An argument: a tensor, or where that is NULL a scalar. */
typedef struct SaccadeValue {
  const DLTensor *tensor;
  int64_t integer; /* for integers, index and i1 */
  double real;     /* for floats */
} SaccadeValue;

/* Checks the inputs and writes the extents of all results into `sizes`, one result after the other. */
SACCADE_API SaccadeResult saccade_function_result_shapes(const SaccadeFunction *function, const SaccadeValue *inputs,
                                                        size_t num_inputs, int64_t *sizes);
/* Checks everything, then runs: inputs, then results, which are the caller's memory, must have those extents, and
 * overlap neither one another nor an input. NULL strides are compact, byte_offset is honoured, strides of dimensions
 * of extent 0 or 1 are ignored. */
SACCADE_API SaccadeResult saccade_function_call(const SaccadeFunction *function, const SaccadeValue *values,
                                                size_t num_values);
/* Its TVM-FFI face, int(void *, const TVMFFIAny *, int32_t, TVMFFIAny *): inputs, then results. Valid while the
 * module lives. */
SACCADE_API void *saccade_function_tvm_ffi(const SaccadeFunction *function);

/* How many threads calls may use, the caller's included; 0 asks for the machine's count. Where PyTorch is in the
 * process, its own pool and its own number of threads serve instead. */
SACCADE_API void saccade_set_num_threads(int32_t threads);
SACCADE_API int32_t saccade_num_threads(void);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_C_SACCADE_H */
