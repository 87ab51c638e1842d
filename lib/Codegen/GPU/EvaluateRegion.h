//===- EvaluateRegion.h - Score and mask regions at one pair ------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_EVALUATEREGION_H
#define SACCADE_LIB_CODEGEN_GPU_EVALUATEREGION_H

#include "ScoreMath.h"
#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/IR/Position.h"

namespace saccade::device {

/// The absolute head and query of a row (index).
struct RowPosition {
  mlir::Value head, query;
};

/// Evaluates a region of a step of attention at one pair of query and key.
class PositionRegion {
public:
  /// `op` and its captures must outlive the object.
  PositionRegion(attn::ScoringOpInterface op, mlir::Region &region) : op(op), region(region) {}
  /// Replaces ops by those of `emitScoreOp`.
  PositionRegion(attn::ScoringOpInterface op, mlir::Region &region, TanhMethod tanh)
      : op(op), region(region), scoreTanh(tanh) {}

  bool isEmpty() const { return region.empty(); }
  /// Returns the first value that the region yields at the absolute positions `query` and `key` (index); `score` is
  /// null for a mask region. Out-of-bounds reads of captures are clamped.
  mlir::Value evaluate(Emitter &e, mlir::Value score, RowPosition query, mlir::Value key) {
    return evaluateAll(e, score, query, key)[0];
  }
  /// Returns all values that the region yields.
  llvm::SmallVector<mlir::Value> evaluateAll(Emitter &e, mlir::Value score, RowPosition query, mlir::Value key);
  /// Emits the ops of the region, like `evaluate`, except those with results in `known`. Returns the values that stand
  /// for those of the region.
  mlir::IRMapping emit(Emitter &e, mlir::Value score, RowPosition query, mlir::Value key,
                       const mlir::IRMapping &known = {});

private:
  attn::ScoringOpInterface op;
  mlir::Region &region;
  std::optional<TanhMethod> scoreTanh;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_EVALUATEREGION_H
