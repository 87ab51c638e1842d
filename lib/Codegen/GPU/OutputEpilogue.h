//===- OutputEpilogue.h - Elementwise ops on the output of attention -*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_OUTPUTEPILOGUE_H
#define SACCADE_LIB_CODEGEN_GPU_OUTPUTEPILOGUE_H

#include "Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::device {

/// Returns the structured op that updates `output`, the memory that an attn.finalize writes, in place; null if none
/// does.
mlir::linalg::GenericOp findEpilogue(mlir::Value output);

/// The op that updates the output of an attn.finalize, which threads apply to elements before they store them.
class OutputEpilogue {
public:
  /// Moves `end` to the op, after what computes its operands.
  static void join(attn::FinalizeOp end);

  explicit OutputEpilogue(attn::FinalizeOp end);

  bool exists() { return op != nullptr; }
  /// The number to store in place of `x`, which is not rounded to the type of the output yet. `row` and `column`
  /// (index) are those of an element that exists.
  mlir::Value apply(Emitter &e, mlir::Value row, mlir::Value column, mlir::Value x);
  /// Erases the op.
  void erase();

private:
  mlir::linalg::GenericOp op; ///< null if there is none
  bool isTransposed;          ///< whether the columns of the output come first
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_OUTPUTEPILOGUE_H
