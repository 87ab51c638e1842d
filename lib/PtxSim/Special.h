//===- Special.h - Special registers --------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_SPECIAL_H
#define SACCADE_LIB_PTXSIM_SPECIAL_H

#include "Code.h"

namespace saccade::ptxsim {

/// "%tid.x" → TidX. Counters (%clock64 and so on) are no constants of a warp and not here.
std::optional<SpecialRegister> parseSpecial(llvm::StringRef name);
uint32_t specialValue(SpecialRegister special, const Warp &warp, unsigned lane);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_SPECIAL_H
