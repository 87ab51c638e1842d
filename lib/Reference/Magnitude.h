//===- Magnitude.h - Magnitudes of the terms of attention -----------*- C++ -*-===//
#ifndef SACCADE_REFERENCE_MAGNITUDE_H
#define SACCADE_REFERENCE_MAGNITUDE_H

#include "Frame.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::reference {

/// Magnitudes of the elements `boxes` of the output of `op`, concatenated.
mlir::FailureOr<Magnitude> magnitudeOf(attn::AttentionOp op, Frame &frame, llvm::ArrayRef<Box> boxes);

/// What rounding of scores changes at most in the elements `boxes` of `result`, a result of floats of `op`,
/// concatenated; see ScoreRounding.cpp. Nullopt for others.
mlir::FailureOr<std::optional<Tensor>> scoreRoundingOf(attn::AttentionOp op, mlir::Value result, Frame &frame,
                                                       llvm::ArrayRef<Box> boxes);

/// Magnitudes of the terms of `result`, the gradient of query or key of `op`, that can cancel: Σ |∂s'/∂p| · p · (Σ |dO
/// v| + |delta|) · |k| (or |q|) over pairs, with the gradient s' of a score.
mlir::FailureOr<Tensor> gradientTermsOf(attn::GradientOp op, mlir::Value result, Frame &frame);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_MAGNITUDE_H
