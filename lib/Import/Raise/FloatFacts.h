//===- FloatFacts.h - What raising knows of functions of floats ---*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_RAISE_FLOATFACTS_H
#define SACCADE_LIB_IMPORT_RAISE_FLOATFACTS_H

#include "mlir/Support/LLVM.h"

namespace saccade::raise {

/// Facts about a scalar op with a float result. Where nothing is known they are false. "Realistic" numbers are finite
/// and so small that neither exponentials nor products overflow.
struct FloatFacts {
  llvm::StringRef name;
  bool keepsZero = false; ///< 0 if all operands are 0, of either sign
  bool isFinite = false;  ///< neither infinite nor NaN for realistic operands
  bool isBounded = false; ///< at most 1 in size, also for infinite operands, and NaN only for NaN
  bool hasPole = false;   ///< may be infinite for realistic operands
  bool dropsNaN = false;  ///< may be a number although an operand is NaN; of a selection, the one that is selected
};

/// The row of an op; all facts are false for an op without one.
const FloatFacts &floatFacts(llvm::StringRef name);
/// Whether the op has a row.
bool hasFloatFacts(llvm::StringRef name);

} // namespace saccade::raise

#endif // SACCADE_LIB_IMPORT_RAISE_FLOATFACTS_H
