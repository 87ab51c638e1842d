//===- Sequences.h - The sequences of attention -------------------*- C++ -*-===//
//
// Tiling of attention takes one sequence at a time: a batch of dense operands, or a part of ragged ones.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_SEQUENCES_H
#define SACCADE_LIB_TILING_SEQUENCES_H

#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Support/IndexEmitter.h"

namespace saccade {

/// The sequences of an attention op.
struct Sequences {
  /// Emits the start offsets of ragged sequences of `op`. Offsets are clamped to be ascending and within the operands,
  /// so that invalid ones cause no out-of-bounds access. `onDevice`: a task computes them.
  Sequences(mlir::OpBuilder &b, attn::ScoringOpInterface op, bool onDevice);

  /// The number of sequences, index. If queries are ragged, the last sequence consists of the padding rows that belong
  /// to none.
  mlir::Value count;
  mlir::Value sequenceCount; ///< the same without the padding rows
  /// The start of each sequence and, last, the end of the last one; null if the queries or keys are not ragged.
  mlir::Value queryStarts, keyStarts;

  /// Emits the number of queries or keys of all sequences together, at most.
  mlir::Value total(mlir::OpBuilder &b, attn::Role role);
  /// Emits the number of queries or keys of sequence `number`.
  mlir::Value length(mlir::OpBuilder &b, attn::Role role, mlir::Value number);
  /// Emits the start offset of sequence `number` in the tensor.
  mlir::Value start(mlir::OpBuilder &b, attn::Role role, mlir::Value number);
  /// Emits `op`, an attn.attention, on sequence `number` alone, as an op that is not ragged.
  attn::AttentionOp extract(mlir::OpBuilder &b, mlir::Value number);

private:
  mlir::Value extent(mlir::OpBuilder &b, attn::Role role);
  mlir::Value normalize(mlir::OpBuilder &b, attn::Role role, bool hasPaddingRows, bool onDevice);
  mlir::Value lengthOperand(mlir::OpBuilder &b, mlir::Value length, mlir::Value number, mlir::Value rest);

  attn::ScoringOpInterface op;
};

/// Emits the start of each of `count` ragged sequences and the end of the last one: `offsets`, clamped to be ascending
/// from 0 to at most `extent`. With `padding` there is one more sequence, up to `extent` or, if it is `Empty`, without
/// rows. `onDevice`: a task computes them.
enum class Padding { None, Rest, Empty };
mlir::Value emitStarts(mlir::OpBuilder &b, mlir::Location loc, mlir::Value offsets, mlir::Value count,
                       mlir::Value extent, bool onDevice, Padding padding = Padding::None);

/// Emits the absolute end of the positions of sequence `number`: `length`, which is q_len or kv_len; without one,
/// `extent` elements after `first`, the position of element 0. The end is not clamped.
mlir::Value emitEnd(IndexEmitter &e, mlir::Value length, mlir::Value number, mlir::Value first, mlir::Value extent);

} // namespace saccade

#endif // SACCADE_LIB_TILING_SEQUENCES_H
