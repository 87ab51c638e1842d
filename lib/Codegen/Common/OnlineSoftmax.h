//===- OnlineSoftmax.h - Arithmetic of the online softmax ---------*- C++ -*-===//
//
// Kernels of all targets update, merge and finalize the state of a row with these functions (Milakov and Gimelshein,
// 2018). A value is a scalar of one row, or a vector with a row per lane. Maxima are base-2 exponents, or *natural*:
// the largest scores. A maximum as an exponent is rounded, so that a large one does not determine the log-sum-exp.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_COMMON_ONLINESOFTMAX_H
#define SACCADE_LIB_CODEGEN_COMMON_ONLINESOFTMAX_H

#include "KernelEmitter.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {

/// The maximum of a row after a tile.
struct RowMax {
  mlir::Value scaled; ///< maximum of the tile, as an exponent
  mlir::Value max;    ///< of all tiles
  mlir::Value base;   ///< max, or 0 if no key has been visible
  mlir::Value factor; ///< 2^(before − base), which rescales the state
  /// Whether `scaled` and `max` are natural; `base` is the exponent of `max`.
  bool isNatural = false;
};
/// The values that the maximum of a row may have after a tile of keys.
enum class MaxRange {
  Finite,      ///< never −∞
  Any,         ///< −∞ without visible keys
  Overflowing, ///< and a finite score may overflow as an exponent: it becomes the largest finite one of its sign
};
/// The range after the whole tile of `op`.
MaxRange getMaxRange(attn::AccumulateOp op);

/// `tileMax` is the largest score of the tile, `toBase2` the positive factor from scores to exponents.
RowMax emitRowMax(KernelEmitter &e, mlir::Value tileMax, mlir::Value before, mlir::Value toBase2, MaxRange range);

/// The weight of a score s is 2^((s − shift) · toBase2 + offset).
struct Exponent {
  mlir::Value shift, offset;
  mlir::Value isShifted; ///< i1 or a vector of them; shift is 0 where it is false
};
/// Usually shift = 0 and offset = −base: the rounding error of base cancels, because weights and sum use the same base.
/// A base whose rounding error could be a factor of two or more is subtracted before the multiplication instead.
/// `shiftsNewest`: so is that of the tile with the maximum, whose largest weight is then exactly 1. Weights that are
/// rounded to 16 bits need it, because they do not cancel with their sum.
Exponent emitExponent(KernelEmitter &e, const RowMax &row, mlir::Value tileMax, bool shiftsNewest = false);

/// The row maximum after a tile whose largest score is `tileMax`, for a natural maximum. The weight of a score s is
/// 2^((s − base) · log2 e).
struct NaturalMax {
  mlir::Value max;    ///< of all tiles
  mlir::Value base;   ///< max, or 0 if no key has been visible
  mlir::Value factor; ///< e^(before − base), which rescales the state
};
NaturalMax emitNaturalMax(KernelEmitter &e, mlir::Value tileMax, mlir::Value before);
/// The same for kernels that compute exponents from unscaled scores, like emitRowMax: weights are relative to the
/// rounded exponent of the maximum, unless `emitExponent` shifts them. `tileMax` is the largest natural score.
RowMax emitRoundedNaturalMax(KernelEmitter &e, mlir::Value tileMax, mlir::Value before);
/// The factor of that maximum, which rescales sums of weights relative to `before`.
mlir::Value emitRoundedFactor(KernelEmitter &e, mlir::Value before, mlir::Value max);
/// The exponent of sums relative to the natural maximum, of sums of weights relative to its rounded exponent.
mlir::Value emitRoundingError(KernelEmitter &e, mlir::Value max);
/// 2^(max − base) or, of natural maxima, e^(max − base).
mlir::Value emitFactor(KernelEmitter &e, mlir::Value max, mlir::Value base, bool isNatural);

/// The merged state (max, sum) of a row over two disjoint sets of keys.
struct MergedRow {
  mlir::Value max, sum;
  mlir::Value stateFactor, otherFactor; ///< of the accumulators
};
/// Either maximum may be −∞. `isNatural`: so are both.
MergedRow mergeRow(KernelEmitter &e, mlir::Value max, mlir::Value sum, mlir::Value otherMax, mlir::Value otherSum,
                   bool isNatural);

/// The same with stick_breaking. Maxima are base-2 logarithms of what the keys of a state leave of a stick; the other
/// state is that of later keys.
MergedRow mergeSticks(KernelEmitter &e, mlir::Value max, mlir::Value sum, mlir::Value otherMax, mlir::Value otherSum);

/// The divisor of a row, whose sum is 0 if it has no keys.
struct RowResult {
  mlir::Value isEmpty, inverse;
};
RowResult finalizeRow(KernelEmitter &e, mlir::Value sum);
/// x · inverse, or 0 for an empty row, whose accumulator may hold NaN; `x` may be a vector of one row.
mlir::Value normalize(KernelEmitter &e, const RowResult &row, mlir::Value x);
/// The natural logarithm of the sum of the exponentials of the scores; −∞ for an empty row.
mlir::Value emitLogSumExp(KernelEmitter &e, mlir::Value max, mlir::Value sum);
/// The same from a natural maximum and the logarithm of the sum relative to it, and what its rounding took, 0 for an
/// empty row: lse + low is max + log (Knuth 1969, TwoSum).
struct LogSumExp {
  mlir::Value lse, low;
};
LogSumExp emitNaturalLogSumExp(KernelEmitter &e, mlir::Value max, mlir::Value log);

} // namespace saccade

#endif // SACCADE_LIB_CODEGEN_COMMON_ONLINESOFTMAX_H
