//===- VectorDot.h - Products of int8 in software -----------------*- C++ -*-===//
//
// Decodes and executes vpdpbssd of AVX-VNNI-INT8 (Intel SDM vol. 2, chapter 5).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TEST_SUPPORT_TILEHANDLER_VECTORDOT_H
#define SACCADE_TEST_SUPPORT_TILEHANDLER_VECTORDOT_H

#include <array>
#include <cstdint>
#include <optional>

namespace tilehandler {

/// A decoded vpdpbssd of 256 bits.
struct VectorDot {
  unsigned bytes;          ///< its length
  unsigned dest, lhs, rhs; ///< vector registers
  const uint8_t *memory;   ///< the operand in the place of `rhs`, or null
};

/// Decodes the instruction at `code`, which executes with these general registers (in the order of their encoding).
/// Ignores VEX.W, which is 0; with 1 the instruction is undefined on every processor. Returns nothing for any other
/// instruction.
std::optional<VectorDot> decodeVectorDot(const uint8_t *code, const uint64_t (&registers)[16]);

/// The vector registers of a thread in the frame of a signal, in the standard format of XSAVE (SDM vol. 1, 13.4).
class VectorRegisters {
public:
  using Register = std::array<uint32_t, 8>;

  explicit VectorRegisters(void *frame) : frame(static_cast<uint8_t *>(frame)) {}
  Register load(unsigned number) const;
  void store(unsigned number, const Register &value);

private:
  uint8_t *frame;
};

/// Adds the products of four signed bytes to each sum, which wraps around.
void execute(const VectorDot &instruction, VectorRegisters registers);

} // namespace tilehandler

#endif // SACCADE_TEST_SUPPORT_TILEHANDLER_VECTORDOT_H
