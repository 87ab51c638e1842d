//===- Vex.h - Decoding of instructions with a VEX prefix ---------*- C++ -*-===//
#ifndef SACCADE_TEST_SUPPORT_TILEHANDLER_VEX_H
#define SACCADE_TEST_SUPPORT_TILEHANDLER_VEX_H

#include <cstdint>

namespace tilehandler {

/// The fields of a three-byte VEX prefix, the opcode and the ModRM byte (SDM vol. 2, 2.3.5).
struct Encoding {
  explicit Encoding(const uint8_t *code)
      : isMap2(code[0] == 0xc4 && (code[1] & 0x1f) == 2), isWide(code[2] >> 2 & 1), index(code[1] & 0x40 ? 0 : 8),
        base(code[1] & 0x20 ? 0 : 8), vvvv(~code[2] >> 3 & 15), prefix(code[2] & 3), opcode(code[3]), mod(code[4] >> 6),
        reg((code[4] >> 3 & 7) | (code[1] & 0x80 ? 0 : 8)), rm(code[4] & 7) {}

  bool isMemory() const { return mod != 3; }

  bool isMap2, isWide;   ///< opcode map 0F38; 256 bits
  unsigned index, base;  ///< the high bit of the register
  unsigned vvvv, prefix; ///< prefix: 0 none, 1 66, 2 F3, 3 F2
  unsigned opcode, mod, reg, rm;
};

/// The bytes of an instruction without an operand in memory: prefix, opcode and ModRM.
inline constexpr unsigned bytesOfRegisterForm = 5;

/// An operand in memory, without the index register.
struct MemoryOperand {
  unsigned bytes;    ///< of the instruction
  uintptr_t address; ///< base register and displacement
  intptr_t index;    ///< scaled
};

/// The operand of the instruction at `code`, which executes with these general registers (in the order of their
/// encoding).
MemoryOperand memoryOperand(const uint8_t *code, const Encoding &e, const uint64_t (&registers)[16]);

} // namespace tilehandler

#endif // SACCADE_TEST_SUPPORT_TILEHANDLER_VEX_H
