//===- FinalizeRows.h - attn.finalize on fragments ----------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H

#include "AttentionShape.h"

namespace saccade::device {

/// Shared memory for the rows of a warp: 16 rows of 128 bytes at `address` (i32), a multiple of 128, and 64 columns
/// further at each `boxBytes`. No other warp uses it.
struct RowStaging {
  mlir::Value address;
  int64_t boxBytes;
};

/// Lowers `op` and its epilogue. Four lanes share a row; each stores its columns of the results. With `staging`, which
/// an op with an epilogue has not, results of the type of
/// the operands go through shared memory if their rows are aligned; `shape` has one tile of rows for a warp then.
/// `thread` (i32) is the index of the thread, null for that of `Emitter`.
void finalizeRows(const Emitter &e, attn::FinalizeOp op, const PrivateState &state, const AttentionShape &shape,
                  const std::optional<RowStaging> &staging = std::nullopt, mlir::Value thread = {});

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H
