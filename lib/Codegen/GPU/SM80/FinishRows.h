//===- FinishRows.h - Results of the matrix units' attention ------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_FINISHROWS_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_FINISHROWS_H

#include "AttentionShape.h"

namespace saccade::device {

/// Lowers `op`: every thread stores its part of the rows that it shares with three others.
void finishRows(Emitter e, attn::FinalizeOp op, const PrivateState &state, const AttentionShape &shape);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_FINISHROWS_H
