//===- ErrorStatistics.h - Mean and signed errors ------------------*- C++ -*-===//
#ifndef SACCADE_LIB_REFERENCE_ERRORSTATISTICS_H
#define SACCADE_LIB_REFERENCE_ERRORSTATISTICS_H

#include "saccade/Reference/Interpreter.h"

namespace saccade::reference {

/// Errors of a result over all elements that are finite in both tensors.
struct ErrorStatistics {
  int64_t elements = 0;
  int64_t rows = 0;         ///< distinct rows; rows with equal exact values have equal errors
  double max = 0, mean = 0; ///< of |found − exact|
  double meanUnit = 0;      ///< mean distance of neighbouring values of the result type at the exact values
  /// Σ and √Σ² over rows of the error of a row, Σ sign(exact) · (found − exact). Negative: too small. Elements below
  /// the smallest normal value are left out, because they round to 0.
  double signedSum = 0, signedDeviation = 0;
  double unitSum = 0; ///< sum of the distances over the elements of `signedSum`

  /// An upper bound on the standard deviation of `signedSum` if only 16-bit probabilities and results are rounded; 0
  /// without a magnitude. The errors of probabilities are fully correlated within a row.
  double expectedDeviation = 0;

  /// Computes them for results of `type`. `rowNumbers` has the row of each element; if it is empty, each is a row.
  static ErrorStatistics of(mlir::Type type, const Tensor &exact, const Tensor &found,
                            llvm::ArrayRef<int64_t> rowNumbers, const Magnitude *magnitude = nullptr);
};

/// The distance of neighbouring values of a type, as a function of the value. The type is read once, not for each
/// value.
class UnitOf {
public:
  explicit UnitOf(mlir::Type type);
  double operator()(double value) const;

private:
  int minExponent, precision;
};

} // namespace saccade::reference

#endif // SACCADE_LIB_REFERENCE_ERRORSTATISTICS_H
