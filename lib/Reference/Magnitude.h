//===- Magnitude.h - Magnitudes of the terms of attention -----------*- C++ -*-===//
#ifndef SACCADE_REFERENCE_MAGNITUDE_H
#define SACCADE_REFERENCE_MAGNITUDE_H

#include "Frame.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::reference {

/// Magnitudes of the elements `boxes` of the output of `op`, concatenated.
mlir::FailureOr<Magnitude> magnitudeOf(attn::AttentionOp op, Frame &frame, llvm::ArrayRef<Box> boxes);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_MAGNITUDE_H
