//===- Magnitude.h - How large the terms of attention are -----------*- C++ -*-===//
#ifndef SACCADE_REFERENCE_MAGNITUDE_H
#define SACCADE_REFERENCE_MAGNITUDE_H

#include "Frame.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::reference {

/// The magnitudes of elements `boxes` of the output of `op`, one after another.
mlir::FailureOr<Magnitude> magnitudeOf(attn::AttentionOp op, Frame &frame, llvm::ArrayRef<Box> boxes);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_MAGNITUDE_H
