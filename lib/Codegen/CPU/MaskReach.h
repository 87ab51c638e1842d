//===- MaskReach.h - Which columns of a tile a few queries see ----*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_MASKREACH_H
#define SACCADE_LIB_CODEGEN_CPU_MASKREACH_H

#include "Emitter.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"

namespace saccade::cpu {

/// The part of `columns` of the tile of `op` without the panels at both ends in which the mask is proved to hold for
/// none of the queries at absolute positions [firstQuery, lastQuery] of an absolute head.
attn::KeyRange emitMaskReach(Emitter &e, attn::AccumulateOp op, mlir::Value head, mlir::Value firstQuery,
                             mlir::Value lastQuery, attn::KeyRange columns);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_MASKREACH_H
