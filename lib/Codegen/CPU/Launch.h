//===- Launch.h - attn.launch in the LLVM dialect -----------------*- C++ -*-===//
//
// How a launch becomes a call of the runtime. Private to the conversion to LLVM.
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

/// Adds to every launched task `@t` a function `@t_run(context, begin, end, scratch)` of the runtime's type
/// `saccade_task`, which loads the captures from the context and calls the task. Must run before the functions are
/// converted with `converter`.
void createTaskRunners(mlir::ModuleOp module, const mlir::LLVMTypeConverter &converter);

/// Patterns that turn `attn.launch` into a call of `saccade_parallel_for` on the runner, and the allocation of buffers
/// into calls of `saccade_allocate` and `saccade_release`.
void populateRuntimeCallPatterns(const mlir::LLVMTypeConverter &converter, mlir::RewritePatternSet &patterns);

/// Lets every function that calls `saccade_allocate` or `saccade_parallel_for` return a `const char *` instead of nothing,
/// and its C wrapper with it: null, or "out of memory" as soon as one of those calls fails, with all buffers released.
void createFailurePaths(mlir::ModuleOp module);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_CPU_LAUNCH_H
