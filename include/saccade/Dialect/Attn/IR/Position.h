//===- Position.h - Positions of queries and keys -----------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_IR_POSITION_H
#define SACCADE_DIALECT_ATTN_IR_POSITION_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// What belongs to a batch, a head, a query and a key.
template <typename T> struct PositionOf {
  T batch, head, query, key;

  /// From the four elements of `parts`, in the order of operands and region arguments.
  template <typename Range> static PositionOf of(const Range &parts) {
    return {parts[0], parts[1], parts[2], parts[3]};
  }
  llvm::SmallVector<T, 4> inOrder() const { return {batch, head, query, key}; }
};
/// The position of a pair of query and key.
using Position = PositionOf<mlir::Value>;

/// The absolute position of element 0 of `op`.
Position emitPosition(mlir::OpBuilder &b, mlir::Location loc, ScoringOpInterface op);

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_IR_POSITION_H
