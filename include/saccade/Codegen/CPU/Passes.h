//===- Passes.h - CPU code generation -----------------------------*- C++ -*-===//
#ifndef SACCADE_CODEGEN_CPU_PASSES_H
#define SACCADE_CODEGEN_CPU_PASSES_H

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/PipelineStep.h"

namespace saccade::attn {
class AccumulateOp;
} // namespace saccade::attn

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Codegen/CPU/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Codegen/CPU/Passes.h.inc"

/// Replaces one op on memory by vector code for `target`, as `attn-lower-accumulate` and, for an op with `unpacked`,
/// `attn-lower-unpacked-accumulate` do. Fails with an error if the target cannot hold its tiles.
mlir::LogicalResult lowerAccumulate(attn::AccumulateOp op, const CPUTarget &target,
                                    mlir::OpBuilder::Listener *listener = nullptr);
mlir::LogicalResult lowerUnpackedAccumulate(attn::AccumulateOp op, const CPUTarget &target,
                                            mlir::OpBuilder::Listener *listener = nullptr);

/// Adds the passes from bufferized tasks (see buildBufferizePipeline) to the LLVM dialect.
/// Its steps are vectors and llvm.
void buildCPUCodegenPipeline(mlir::OpPassManager &pm, const CPUTarget &target, StepListener onStep = ignoreStep);

} // namespace saccade

#endif // SACCADE_CODEGEN_CPU_PASSES_H
