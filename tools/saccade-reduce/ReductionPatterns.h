//===- ReductionPatterns.h - Smaller variants of programs ---------*- C++ -*-===//
#ifndef SACCADE_TOOLS_REDUCE_REDUCTIONPATTERNS_H
#define SACCADE_TOOLS_REDUCE_REDUCTIONPATTERNS_H

#include "mlir/IR/DialectRegistry.h"

namespace saccade {

/// Gives the reducer patterns that keep a program valid: an op is replaced by an operand of the type of its result, or
/// else its result by an argument of the function, and a region of attention is removed.
void addReductionPatterns(mlir::DialectRegistry &registry);

} // namespace saccade

#endif // SACCADE_TOOLS_REDUCE_REDUCTIONPATTERNS_H
