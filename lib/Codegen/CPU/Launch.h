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

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_CPU_LAUNCH_H
