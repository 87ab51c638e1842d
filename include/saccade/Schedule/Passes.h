//===- Passes.h - The schedule stage ------------------------------*- C++ -*-===//
#ifndef SACCADE_SCHEDULE_PASSES_H
#define SACCADE_SCHEDULE_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/GPUTarget.h"

namespace saccade {

#define GEN_PASS_DECL
#include "saccade/Schedule/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "saccade/Schedule/Passes.h.inc"

/// Returns the CPU tile sizes of attention over operands of type `element` with head sizes `depth` (keys) and
/// `valueDepth` (values).
attn::ScheduleAttr scheduleAttention(mlir::Type element, int64_t depth, int64_t valueDepth, const CPUTarget &target);

/// Returns the tile sizes of gradients and tangents of attention: queries and keys.
attn::ScheduleAttr scheduleDerivative(mlir::MLIRContext *context);

/// Returns the split-KV schedule for CPUs and the maximum number of queries it applies to. `bytesPerKey`: of a key and
/// its value. `tileRows`: the rows of a task that multiplies in tile registers, 0 for none.
attn::SplitKVAttr scheduleSplitKV(mlir::MLIRContext *context, bool hasAdjacentHeads, int64_t bytesPerKey,
                                  int64_t tileRows);

/// Returns the CPU tile sizes of a contraction that accumulates in elements of `bits` bits.
attn::ScheduleAttr scheduleContraction(mlir::MLIRContext *context, unsigned bits, const CPUTarget &target);

/// Sets the CPU tile sizes of attention that has none, with those of split-KV if that may apply.
void assignSchedule(attn::AttentionOp op, const CPUTarget &target);

/// How many warpgroups can compute a tile of attention, if the target has them.
enum class Warpgroups {
  None,
  Two,
  Three, ///< which have fewer registers each
};

/// Returns the GPU tile sizes of attention with the head sizes `depth` and `valueDepth`.
attn::ScheduleAttr scheduleAttention(mlir::Type element, int64_t depth, int64_t valueDepth, Warpgroups warpgroups,
                                     const GPUTarget &target);

/// Returns the split-KV schedule for GPUs and the maximum number of queries it applies to.
attn::SplitKVAttr scheduleSplitKVForGPU(mlir::MLIRContext *context, bool isOnWarpgroups);

/// Returns the GPU tile sizes of gradients and tangents of attention, queries and keys, for the head sizes `depth` and
/// `valueDepth`. `temporaries`: how many numbers of each pair are kept.
attn::ScheduleAttr scheduleDerivativeForGPU(mlir::Type element, int64_t depth, int64_t valueDepth, int64_t temporaries,
                                            const GPUTarget &target);

/// Returns the GPU tile sizes of `op`, a matmul.
attn::ScheduleAttr scheduleMatmul(mlir::linalg::LinalgOp op, const GPUTarget &target);

/// The most queries of a work item on sm_90a: three warpgroups compute 64 each.
inline constexpr int64_t maxWarpgroupRows = 192;

/// Returns why kernels of a target, of which one is not null, cannot compute tasks of `rows` queries of type `element`:
/// "expected ..."; nullopt if they can.
std::optional<std::string> findMistakeInRows(int64_t rows, mlir::Type element, const CPUTarget *cpu,
                                             const GPUTarget *gpu);

/// Adds the passes after which every attention op and every matmul has a schedule.
void buildSchedulePipeline(mlir::OpPassManager &pm, const CPUTarget &target);
void buildSchedulePipeline(mlir::OpPassManager &pm, const GPUTarget &target);

} // namespace saccade

#endif // SACCADE_SCHEDULE_PASSES_H
