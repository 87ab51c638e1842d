//===- MemoryDecode.h - What all memory instructions share ----------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_MEMORYDECODE_H
#define SACCADE_LIB_PTXSIM_MEMORYDECODE_H

#include "Decoder.h"
#include "Warp.h"

namespace saccade::ptxsim {

/// Every lane's address: the row of `slot`, of numbers[5] bytes, plus the offset.
void laneAddresses(Warp &warp, const Op &op, Slot slot, uint32_t mask, uint64_t addresses[32]);

/// .global, .shared, ...
std::optional<Space> takeSpace(Decoder &decoder);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_MEMORYDECODE_H
