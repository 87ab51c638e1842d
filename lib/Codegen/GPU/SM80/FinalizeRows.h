//===- FinalizeRows.h - attn.finalize on fragments ----------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H

#include "AttentionShape.h"

namespace saccade::device {

/// Lowers `op`. Four lanes share a row; each stores its columns of the results.
void finalizeRows(const Emitter &e, attn::FinalizeOp op, const PrivateState &state, const AttentionShape &shape);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H
