//===- TensorBox.h - Tensor maps and swizzles -----------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_TENSORBOX_H
#define SACCADE_LIB_PTXSIM_TENSORBOX_H

#include "saccade/PtxSim/TensorMap.h"
#include <optional>
#include <vector>

namespace saccade::ptxsim {

unsigned elementBytes(TensorType type);

/// Bytes that a swizzle permutes: 16 (none), 32, 64 or 128. The pattern repeats after eight times as many.
constexpr uint32_t swizzleSpan(TensorSwizzle swizzle) { return 16u << unsigned(swizzle); }

/// Swizzled address of a byte of shared memory (PTX ISA, "Swizzling modes"): XORs bits 4 to 6 with bits 7 to 9.
constexpr uint32_t swizzled(uint32_t address, TensorSwizzle swizzle) {
  return address ^ ((address >> 7) & ((1u << unsigned(swizzle)) - 1)) << 4;
}
static_assert(swizzled(0x380, TensorSwizzle::Bytes128) == 0x3f0 && swizzled(0x180, TensorSwizzle::Bytes64) == 0x1b0);

/// One row of a box along dimension 0: `first` to `last` are its elements within the tensor, the first one at
/// `address`.
struct BoxRow {
  uint32_t offset; ///< of element 0 in the unswizzled box, in bytes
  uint32_t first, last;
  uint64_t address;
};

/// The rows of the box at `coordinates`.
std::vector<BoxRow> boxRows(const TiledTensor &tensor, const std::array<int32_t, 5> &coordinates);

/// Reads a tensor map; nullopt if `encodeTiled` has not made these 128 bytes.
std::optional<TiledTensor> decodeTiled(const uint8_t *bytes);

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_TENSORBOX_H
