//===- LegalizeSVE.h - Code that LLVM selects for SVE registers ---*- C++ -*-===//
#ifndef SACCADE_LIB_TARGET_LEGALIZESVE_H
#define SACCADE_LIB_TARGET_LEGALIZESVE_H

#include "llvm/IR/Module.h"

namespace saccade {

/// Rewrites what LLVM 22 fails to select for vectors of bf16 of a fixed length: masked loads, stores, gathers and
/// scatters, and shuffles, become those of i16, and conversions between bf16 and f64 those of other types.
void legalizeForSVE(llvm::Module &module);

} // namespace saccade

#endif // SACCADE_LIB_TARGET_LEGALIZESVE_H
