//===- NonFinite.h - Where NaN and infinities come from --------------*- C++ -*-===//
#ifndef SACCADE_REFERENCE_NONFINITE_H
#define SACCADE_REFERENCE_NONFINITE_H

#include "Frame.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::reference {

/// Whether the known elements of floats of `cells`, which may be null, have a NaN (or an infinity).
bool hasNonFinite(const Cells *cells, bool isNaN);

/// The first op of the frame and of those it ran whose computed results have a NaN (or an infinity) although its
/// computed operands have none.
std::optional<Origin> originOf(Frame &frame, bool isNaN);

/// See Evaluation::scoreOverflow.
mlir::FailureOr<std::optional<Tensor>> scoreOverflowOf(attn::AttentionOp op, mlir::Value result, Frame &frame,
                                                       llvm::ArrayRef<Box> boxes);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_NONFINITE_H
