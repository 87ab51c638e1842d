//===- RowParts.h - Steps of split-KV by parts of their rows ------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_ROWPARTS_H
#define SACCADE_LIB_CODEGEN_GPU_ROWPARTS_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::device {

/// Replaces a step of split-KV, whose state is in memory, by one in loops over parts of at most `rows` rows: those of
/// some queries of all heads or, if there are more heads, of one query of some heads. Returns the step in the loops, or
/// `step` if its schedule has no more rows.
attn::AccumulateOp computeInParts(attn::AccumulateOp step, int64_t rows);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_ROWPARTS_H
