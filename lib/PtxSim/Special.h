//===- Special.h - Special registers --------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_SPECIAL_H
#define SACCADE_LIB_PTXSIM_SPECIAL_H

#include "Code.h"

namespace saccade::ptxsim {

/// "%tid.x" → TidX. Counters such as %clock64 are not constant in a warp and are not included.
std::optional<SpecialRegister> parseSpecial(llvm::StringRef name);
uint32_t specialValue(SpecialRegister special, const Warp &warp, unsigned lane);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_SPECIAL_H
