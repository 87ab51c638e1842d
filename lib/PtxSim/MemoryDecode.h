//===- MemoryDecode.h - Helpers for memory instructions -------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_MEMORYDECODE_H
#define SACCADE_LIB_PTXSIM_MEMORYDECODE_H

#include "Decoder.h"
#include "Warp.h"
#include <cstring>

namespace saccade::ptxsim {

/// Address of every lane: the row of `slot`, numbers[5] bytes wide, plus the offset.
void laneAddresses(Warp &warp, const Op &op, Slot slot, uint32_t mask, uint64_t addresses[32]);

/// Whether any of `size` bytes is undefined; tests eight at a time.
inline bool anyUndefined(const ByteState *states, unsigned size) {
  static_assert(uint8_t(ByteState::Undefined) == 0);
  constexpr uint64_t ones = 0x0101010101010101;
  for (; size >= 8; size -= 8, states += 8) {
    uint64_t eight;
    std::memcpy(&eight, states, 8);
    if ((eight - ones) & ~eight & (ones << 7))
      return true;
  }
  for (; size; --size, ++states)
    if (*states == ByteState::Undefined)
      return true;
  return false;
}

/// Consumes a state space modifier: .global, .shared, ...
std::optional<Space> takeSpace(Decoder &decoder);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_MEMORYDECODE_H
