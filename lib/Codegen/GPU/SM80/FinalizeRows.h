//===- FinalizeRows.h - Results of the tensor cores' attention ------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H

#include "AttentionShape.h"

namespace saccade::device {

/// Lowers `op`: every thread stores its part of the rows that it shares with three others.
void finalizeRows(Emitter e, attn::FinalizeOp op, const PrivateState &state, const AttentionShape &shape);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_FINALIZEROWS_H
