//===- LinearEmitter.h - Ops of derivatives of linear attention ----*- C++ -*-===//
//
// What the gradient and the tangent of attn.linear share: features as structured ops, and the denominators of
// normalized outputs.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_LINEAREMITTER_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_LINEAREMITTER_H

#include "TensorEmitter.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// Emits ops for an `attn.linear`, in the type of its state.
struct LinearEmitter {
  using Value = mlir::Value;

  /// A tensor and the names of its dimensions.
  struct Named {
    Value value;
    DimsAttr dims;
    llvm::SmallVector<int64_t> shape() const {
      return llvm::to_vector(llvm::cast<mlir::RankedTensorType>(value.getType()).getShape());
    }
    unsigned at(Dim dim) const { return *dims.position(dim); }
  };

  LinearEmitter(LinearOp op, mlir::OpBuilder &b) : op(op), b(b), loc(op.getLoc()), e{b, loc}, type(op.getStateType()) {}

  LinearOp op;
  mlir::OpBuilder &b;
  mlir::Location loc;
  TensorEmitter e;
  mlir::FloatType type;

  /// What of `op` has no rule: an operand without heads beside one with heads, or a normalized output of a dynamic head
  /// size. None if all has.
  std::optional<llvm::StringRef> findUnsupported();

  bool hasFeatures() { return op.getL2norm() || !op.getFeature().empty(); }
  Value wide(Value x);
  /// φ(x) in the type of the state, or x itself without features and normalization. `ops`: what computes it, in order.
  Value features(Value x, llvm::SmallVectorImpl<Value> &ops);

  /// The groups of dimensions of a tensor of `rank` dimensions if dimension `at` is divided into two.
  static llvm::SmallVector<mlir::ReassociationIndices> dividedAt(unsigned rank, unsigned at);
  /// `all` / `own`, numbers of heads; static if both are.
  mlir::OpFoldResult membersOf(mlir::OpFoldResult all, mlir::OpFoldResult own);

  llvm::SmallVector<mlir::OpFoldResult> sizes(Named x) { return mlir::tensor::getMixedSizes(b, loc, x.value); }
  /// Indices [first, first + count) of dimension `dim`.
  Value columns(Value x, unsigned dim, int64_t first, int64_t count);
  /// `x` with one more column: `column`, which has the other dimensions, or `filling` everywhere.
  Value withColumn(Named x, Value column, double filling = 1);
  /// The denominators of normalized outputs, without the head dimension. The operands are those of a linear attention
  /// without features; `value`: without a column of ones; `state`: with its column, or null.
  Value divisors(Value query, Value key, Named value, Value decay, Value state);
  /// x / divisor, 0 where the divisor is 0.
  Value quotient(mlir::OpBuilder &nested, Value x, Value divisor);

private:
  /// x, and 0 at positions outside of the sequences. A gradient of 0 times the derivative of a feature may be NaN
  /// there.
  Value withoutUnread(Value x, DimsAttr dims);
  /// Σ x² and x / √(Σ x² + `epsilon`) along the head size.
  llvm::SmallVector<Value> emitNorm(Value x, DimsAttr dims, double epsilon);
};

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_LINEAREMITTER_H
