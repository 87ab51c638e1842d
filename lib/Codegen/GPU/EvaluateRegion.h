//===- EvaluateRegion.h - Score and mask regions at one position --*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_EVALUATEREGION_H
#define SACCADE_LIB_CODEGEN_GPU_EVALUATEREGION_H

#include "Emitter.h"

namespace saccade::device {

/// Which query of which head a row is, absolute (index).
struct RowPosition {
  mlir::Value head, query;
};

/// Evaluates the score or mask region of an attn.accumulate: a thread asks for one pair of positions at a time.
class PositionRegion {
public:
  /// `op` and what it captures must outlive the object.
  PositionRegion(attn::AccumulateOp op, mlir::Region &region) : op(op), region(region) {}

  bool isEmpty() const { return region.empty(); }
  /// What the region yields for the absolute positions of `query` and `key` (index); `score` is null in a mask region. A
  /// read of a capture outside of its extents gives some other element of it.
  mlir::Value evaluate(Emitter &e, mlir::Value score, RowPosition query, mlir::Value key) {
    return evaluateAll(e, score, query, key)[0];
  }
  /// All that it yields.
  llvm::SmallVector<mlir::Value> evaluateAll(Emitter &e, mlir::Value score, RowPosition query, mlir::Value key);

private:
  attn::AccumulateOp op;
  mlir::Region &region;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_EVALUATEREGION_H
