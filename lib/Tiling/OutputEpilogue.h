//===- OutputEpilogue.h - Elementwise ops in the tasks of attention -----*- C++ -*-===//
//
// An elementwise op on the output of attention, such as an output gate, is computed by the tasks of the attention: each
// task applies it in place to the rows that it finalizes.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_TILING_OUTPUTEPILOGUE_H
#define SACCADE_LIB_TILING_OUTPUTEPILOGUE_H

#include "AttentionSteps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <optional>

namespace saccade {

/// The elementwise op whose result takes the place of the output of an attention.
struct OutputEpilogue {
  mlir::linalg::GenericOp op;
  unsigned input; ///< the number of the operand that is the output of the attention

  /// The only op that uses the output of `attention`, if tasks can compute it in place: its result has the type of the
  /// output and all its loops are parallel. Moves `attention`, whose extents then replace those of its output, to the
  /// op.
  static std::optional<OutputEpilogue> take(mlir::RewriterBase &rewriter, attn::AttentionOp attention);
  /// The op that `emit` has created on `tile`, the output of an attention in a task.
  static std::optional<OutputEpilogue> find(mlir::Value tile);

  /// Emits the op on `tile`, which has the rows at `place` of the output. Returns its result, the tile in place.
  mlir::Value emit(mlir::OpBuilder &b, mlir::Value tile, const Slice &place);
  mlir::Value result() { return op.getResult(0); }
};

} // namespace saccade

#endif // SACCADE_LIB_TILING_OUTPUTEPILOGUE_H
