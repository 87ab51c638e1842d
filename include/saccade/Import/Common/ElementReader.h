//===- ElementReader.h - One tensor element as scalar code ------*- C++ -*-===//
//
// Ops that modify scores work on whole tensors, but a region of attn.attention computes one score at one position.
// ElementReader emits the scalar code for one element by cloning the elementwise ops, reshapes, slices and fills that
// produce the tensor. Tensors it cannot look through are captured and read with tensor.extract.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_ELEMENTREADER_H
#define SACCADE_IMPORT_COMMON_ELEMENTREADER_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"

namespace saccade::frontend {

/// Tensors and scalars captured by the regions of one op. They are the trailing block arguments of each region, in this
/// order.
struct Captures {
  llvm::SmallVector<mlir::Value> values;

  /// Returns the argument of `block` that stands for `outer`, and captures `outer` if necessary. The first `numOwnArgs`
  /// arguments are not captures.
  mlir::Value inside(mlir::Block &block, unsigned numOwnArgs, mlir::Value outer);
  /// Appends block arguments to `block` for all captures.
  void complete(mlir::Block &block, unsigned numOwnArgs);
};

class ElementReader {
public:
  /// Emits code at the end of `block`, whose first `numOwnArgs` arguments are not captures. `element` is the element at
  /// `position` of the tensor `whole`.
  ElementReader(mlir::Block &block, unsigned numOwnArgs, Captures &captures, mlir::Value whole,
                mlir::ValueRange position, mlir::Value element);

  /// The element of `tensor` at `position`; null if it depends on other elements of `whole`.
  mlir::Value read(mlir::Value tensor, mlir::ValueRange position);

private:
  mlir::Value readOp(mlir::Operation *op, mlir::Value tensor, mlir::ValueRange position);
  mlir::Value readBody(mlir::linalg::GenericOp op, mlir::ValueRange position);
  mlir::Value readCaptured(mlir::Value tensor, mlir::ValueRange position);
  /// A scalar defined outside the block: constants are cloned, other values captured. Null if it depends on `whole`.
  mlir::Value scalar(mlir::Value outer);
  bool dependsOnWhole(mlir::Value value);
  mlir::Value number(int64_t value);

  mlir::Block &block;
  unsigned numOwnArgs;
  Captures &captures;
  mlir::Value whole, element;
  llvm::SmallVector<mlir::Value> wholePosition;
  mlir::OpBuilder b;
  llvm::DenseMap<mlir::Value, bool> depends;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<std::pair<llvm::SmallVector<mlir::Value>, mlir::Value>>> known;
};

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_ELEMENTREADER_H
