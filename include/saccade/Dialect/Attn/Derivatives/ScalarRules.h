//===- ScalarRules.h - Partial derivatives of scalar ops -----------*- C++ -*-===//
//
// The one table of derivatives: forward mode and reverse mode read it. It has all float ops of arith and math that
// regions of attention permit, except for bitcasts.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_DIALECT_ATTN_DERIVATIVES_SCALARRULES_H
#define SACCADE_DIALECT_ATTN_DERIVATIVES_SCALARRULES_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include <optional>

namespace saccade::attn {

/// An i1 and the truth value that is required of it.
struct Condition {
  mlir::Value value;
  bool holds = true;
  bool operator==(const Condition &other) const { return value == other.value && holds == other.holds; }
};

/// The derivative of a result with respect to an operand: `factor` where the condition holds, else 0. The factor may be
/// NaN or infinite where the condition does not hold, so a product with it must be discarded there, not multiplied by
/// 0.
struct Partial {
  enum Kind { One, MinusOne, Factor } kind = One;
  mlir::Value factor; ///< of type `getScoreType(type of the operand)`; null unless the kind is `Factor`
  std::optional<Condition> condition;
};

/// Whether the table has the op.
bool hasScalarRule(mlir::Operation *op);

/// Whether `result` of `op`, which the table has, can have a derivative other than 0 with respect to operand number
/// `operand`. Rounding functions have none, nor do operands that are not floats.
bool hasPartial(mlir::OpResult result, unsigned operand);

/// Emits the derivative of `result` with respect to operand number `operand`; requires `hasPartial`. `values` maps
/// operands and results to the emitted values; values that it lacks are used as they are. Computed in f64 for f64, else
/// in f32. At points without a derivative it is that of PyTorch: half each for equal operands of maximumf and minimumf,
/// the first operand for equal operands of maxnumf and minnumf, 0 for absf of 0.
Partial emitPartial(mlir::OpBuilder &b, mlir::OpResult result, unsigned operand, const mlir::IRMapping &values);

/// The names of all ops in the table.
llvm::SmallVector<llvm::StringRef> getScalarRuleNames();

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_DERIVATIVES_SCALARRULES_H
