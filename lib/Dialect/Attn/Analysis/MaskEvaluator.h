//===- MaskEvaluator.h - Abstract values of a mask region ----------*- C++ -*-===//
//
// The evaluator behind `analyzeMask`, implemented in MaskBox.cpp and MaskTransfer.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_DIALECT_ATTN_ANALYSIS_MASKEVALUATOR_H
#define SACCADE_LIB_DIALECT_ATTN_ANALYSIS_MASKEVALUATOR_H

#include "AffineValue.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/MaskBox.h"
#include "llvm/ADT/DenseMap.h"

namespace saccade::attn {

/// Evaluates the values of a region over a box. Results are cached.
class MaskEvaluator {
public:
  MaskEvaluator(mlir::Region &mask, const MaskBox &box, MaskInputs &inputs, StagedIntBuilder &b)
      : args(getRegionArguments(mask, /*numbers=*/0)), inputs(inputs), b(b), space(b) {
    for (auto [value, interval] : {std::pair(args.batch, box.batch), std::pair(args.head, box.head),
                                   std::pair(args.query, box.query), std::pair(args.key, box.key)})
      integers[value] = {space.atom(interval), 1};
  }

  Coverage condition(mlir::Value value);
  /// The range of the value, whether or not its form is valid.
  Interval range(mlir::Value value) { return rangeOf(integer(value), value.getType()); }
  AffineValue integer(mlir::Value value);
  /// (modulus, residue) of a valid form, as in `AffineSpace::congruence`.
  std::pair<int64_t, StagedInt> congruence(const AffineForm &form) { return space.congruence(form); }

private:
  //===--- Values ---===//
  AffineValue compute(mlir::Value value);
  AffineValue computeOp(mlir::Operation *op);
  Coverage computeCondition(mlir::Value value);
  Coverage compare(mlir::arith::CmpIOp op);

  Interval rangeOf(const AffineValue &value, mlir::Type type);
  static Interval rangeOf(mlir::Type type);
  static unsigned widthOf(mlir::Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }
  /// The form, valid only if it does not overflow the type.
  AffineValue fitted(AffineValue value, mlir::Type type);
  /// A value with the given bounds if `isKnown`, else with those of its type.
  AffineValue bounded(Interval bounds, mlir::Type type, StagedInt isKnown = 1);

  //===--- Transfer functions ---===//
  AffineValue multiply(mlir::arith::MulIOp op);
  AffineValue product(Interval x, Interval y, mlir::Type type);
  enum class Rounding { Down, Up, ToZero };
  AffineValue divide(mlir::Value dividend, mlir::Value divisor, mlir::Type type, Rounding rounding, bool isUnsigned);
  AffineValue remainder(mlir::Value dividend, mlir::Value divisor, mlir::Type type, bool isUnsigned);
  AffineValue remainder(const AffineValue &x, StagedInt divisor, mlir::Type type);
  std::optional<AffineValue> writtenRemainder(mlir::arith::SubIOp op);
  AffineValue extremum(mlir::Operation *op, bool isMax, bool isUnsigned);
  AffineValue bitwise(mlir::Operation *op);
  AffineValue shift(mlir::Operation *op);
  AffineValue choose(mlir::arith::SelectOp op);
  AffineValue element(mlir::tensor::ExtractOp op);

  StagedInt isAtLeast(StagedInt number, int64_t min) { return b.isAtMost(min, number); }
  StagedInt both(StagedInt x, StagedInt y) { return b.both(x, y); }
  Coverage decided(StagedInt holds) { return {holds, b.negate(holds)}; }
  Coverage unless(StagedInt isKnown, Coverage known) {
    StagedInt isUnknown = b.negate(isKnown);
    return {b.either(isUnknown, known.mayHold), b.either(isUnknown, known.mayFail)};
  }

  RegionArguments args;
  MaskInputs &inputs;
  StagedIntBuilder &b;
  AffineSpace space;
  llvm::DenseMap<mlir::Value, AffineValue> integers;
  llvm::DenseMap<mlir::Value, Coverage> conditions;
};

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_ANALYSIS_MASKEVALUATOR_H
