//===- ScoreMath.h - Cheaper arithmetic of score regions ----------*- C++ -*-===//
//
// Score regions compute in f32 what becomes a weight of 8 or 11 significant bits. Their ops are replaced by cheaper
// ones whose rounding differs, within the error that a kernel permits.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SCOREMATH_H
#define SACCADE_LIB_CODEGEN_GPU_SCOREMATH_H

#include "Emitter.h"

namespace saccade::device {

/// How tanh of f32 is computed.
enum class TanhMethod {
  Exact,      ///< as elsewhere, within a few ulp
  Quotient,   ///< 1 − 2 / (1 + 2^(2x / ln 2)), by two instructions of the special function unit; absolute error < 2^-21
  Instruction ///< tanh.approx.f32 (sm_75); relative error 2^-11
};

/// Whether the results of its region change little if `x` is rounded otherwise: no op that may make a step of it, such
/// as a comparison or a rounding, uses it or a value computed from it.
bool isUsedContinuously(mlir::Value x);

/// Replaces an op of a score region, whose operands are `operands`, by cheaper ones. Returns null if the op is to be
/// cloned. Divisions by constants become multiplications, successive ones of which are joined, and the conversion of
/// an integer x + c becomes that of x plus c, which is shared by the elements of a thread; all of this only if the
/// result is used continuously. tanh is approximated in soft-caps, which are at most 256.
mlir::Value emitScoreOp(Emitter &e, mlir::Operation &op, mlir::ValueRange operands, TanhMethod tanh);

/// Permits LLVM to fuse x, a sum or product, with a product or sum. Returns x.
mlir::Value permitFusion(mlir::Value x);

/// x · factor, joined with the multiplication by a constant that computes x.
mlir::Value scaleBy(Emitter &e, mlir::Value x, double factor);

/// The positive constant by which all of `values` are multiplied last, and the values before that. Returns 1 if there
/// is none.
double takeCommonFactor(llvm::MutableArrayRef<mlir::Value> values);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SCOREMATH_H
