//===- DerivativeRegion.h - Regions of derivatives of an attention -*- C++ -*-===//
//
// The part that the gradient region and the tangent region share: the code of the score, weight and tally regions of
// the attention, with the arguments of the region of derivatives in place of their own.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_DERIVATIVEREGION_H
#define SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_DERIVATIVEREGION_H

#include "mlir/IR/IRMapping.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// Emits a region of derivatives of `op`. Its captures start with those of `op`.
class DerivativeRegion {
protected:
  using Value = mlir::Value;
  /// Starts the body of `region`, whose first `numbers` arguments are numbers.
  DerivativeRegion(AttentionOp op, mlir::ValueRange captures, mlir::Region &region, unsigned numbers);

  Value constant(double number);
  Value multiply(Value x, Value y);
  /// x + y; null is 0.
  Value add(Value x, Value y);
  /// `value`, widened or rounded to `type`.
  Value converted(Value value, mlir::Type type);
  /// Emits the code of a region for the score or probability `number`. Maps nothing for an empty region.
  mlir::IRMapping enter(mlir::Region &region, Value number);
  /// The emitted value that a region yields last.
  static Value yielded(mlir::Region &region, const mlir::IRMapping &values);

  AttentionOp op;
  mlir::OpBuilder b;
  mlir::Location loc;
  mlir::Block &block;
  RegionArguments args;
};

/// Fails with a diagnostic if the weight region is not proportional to the weight.
mlir::LogicalResult checkWeight(AttentionOp op);

/// Copies score, mask and weight regions to `to`, whose captures `captures` start with those of `from`.
void cloneRegions(AttentionOp from, DerivativeOpInterface to, mlir::ValueRange captures);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_DERIVATIVES_DERIVATIVEREGION_H
