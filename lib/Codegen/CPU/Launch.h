//===- Launch.h - Lowering of attn.launch to the LLVM dialect -----*- C++ -*-===//
//
// Converts launches and allocations to calls of the runtime, as part of the conversion to LLVM.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_LAUNCH_H
#define SACCADE_LIB_CODEGEN_CPU_LAUNCH_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir {
class LLVMTypeConverter;
}

namespace saccade {

/// Creates for every launched task `@t` a function `@t_run(context, begin, end, scratch)` of the runtime's type
/// `saccade_task` that loads the captures from the context and calls the task. Must run before the functions are
/// converted with `converter`.
void createTaskRunners(mlir::ModuleOp module, const mlir::LLVMTypeConverter &converter);

/// Adds patterns that convert `attn.launch` to a call of `saccade_parallel_for` with the runner, and memref.alloc and
/// memref.dealloc to calls of `saccade_allocate` and `saccade_release`.
void populateRuntimeCallPatterns(const mlir::LLVMTypeConverter &converter, mlir::RewritePatternSet &patterns);

/// Makes every function that calls `saccade_allocate` or `saccade_parallel_for`, and its C wrapper, return a
/// `const char *`: null, or "out of memory" after the first failing call, with all buffers released.
void createFailurePaths(mlir::ModuleOp module);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_CPU_LAUNCH_H
