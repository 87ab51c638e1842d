//===- ElementReader.h - One element of a tensor, as scalar code --*- C++ -*-===//
//
// A graph that changes scores works on whole tensors; a region of attn.attention has one score and its position. This
// reads a tensor of the common form at a position: through elementwise ops, reshapes, slices and fills, whose code it
// repeats for the one element. What it cannot read through is captured whole and read by tensor.extract.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_ELEMENTREADER_H
#define SACCADE_IMPORT_COMMON_ELEMENTREADER_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"

namespace saccade::frontend {

/// What several regions of one op capture: their last block arguments, in this order.
struct Captures {
  llvm::SmallVector<mlir::Value> values;

  /// The argument of `block`, behind `own` of its own, for an outer value, which becomes a capture.
  mlir::Value inside(mlir::Block &block, unsigned own, mlir::Value outer);
  /// Gives `block` the arguments for all captures.
  void complete(mlir::Block &block, unsigned own);
};

class ElementReader {
public:
  /// Builds at the end of `block`, whose first `own` arguments are no captures. `whole` is the tensor that stands for
  /// all elements, its element at `position` is `element`.
  ElementReader(mlir::Block &block, unsigned own, Captures &captures, mlir::Value whole, mlir::ValueRange position,
                mlir::Value element);

  /// The element of `tensor` at `position`; null where it needs other elements of `whole`.
  mlir::Value read(mlir::Value tensor, mlir::ValueRange position);

private:
  mlir::Value readOp(mlir::Operation *op, mlir::Value tensor, mlir::ValueRange position);
  mlir::Value readBody(mlir::linalg::GenericOp op, mlir::ValueRange position);
  mlir::Value readCaptured(mlir::Value tensor, mlir::ValueRange position);
  /// A scalar from outside of the block: a constant is repeated, another captured; null where it depends on `whole`.
  mlir::Value scalar(mlir::Value outer);
  bool dependsOnWhole(mlir::Value value);
  mlir::Value number(int64_t value);

  mlir::Block &block;
  unsigned own;
  Captures &captures;
  mlir::Value whole, element;
  llvm::SmallVector<mlir::Value> wholePosition;
  mlir::OpBuilder b;
  llvm::DenseMap<mlir::Value, bool> depends;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<std::pair<llvm::SmallVector<mlir::Value>, mlir::Value>>> known;
};

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_ELEMENTREADER_H
