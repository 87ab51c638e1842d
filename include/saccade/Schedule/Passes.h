//===- Passes.h - The schedule stage ------------------------------*- C++ -*-===//
#ifndef SACCADE_SCHEDULE_PASSES_H
#define SACCADE_SCHEDULE_PASSES_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/GPUTarget.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Schedule/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Schedule/Passes.h.inc"

/// The tiles of attention over operands of type `element` with `depth` key and `valueDepth` value columns.
attn::ScheduleAttr scheduleAttention(mlir::Type element, int64_t depth, int64_t valueDepth, const CPUTarget &target);

/// How attention with few queries is cut, and how many are few.
attn::SplitKVAttr scheduleSplitKV(mlir::MLIRContext *context);

/// The tiles of a contraction that accumulates in elements of `bits` bits.
attn::ScheduleAttr scheduleContraction(mlir::MLIRContext *context, unsigned bits, const CPUTarget &target);

/// The tiles of attention with `valueDepth` value columns in a kernel for `target`.
attn::ScheduleAttr scheduleAttention(mlir::Type element, int64_t valueDepth, const GPUTarget &target);

/// How attention with few queries is cut for kernels, and how many are few.
attn::SplitKVAttr scheduleSplitKVForGPU(mlir::MLIRContext *context);

/// The tiles of a matrix product in a kernel.
attn::ScheduleAttr scheduleMatmul(mlir::MLIRContext *context);

/// Afterwards every attention and every matrix product carries a schedule.
void buildSchedulePipeline(mlir::OpPassManager &pm, const CPUTarget &target);
void buildSchedulePipeline(mlir::OpPassManager &pm, const GPUTarget &target);

} // namespace saccade

#endif // SACCADE_SCHEDULE_PASSES_H
