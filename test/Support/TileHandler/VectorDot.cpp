//===- VectorDot.cpp - Products of int8 in software ----------------------------===//
#include "VectorDot.h"
#include "Vex.h"
#include <cstring>

using namespace tilehandler;

std::optional<VectorDot> tilehandler::decodeVectorDot(const uint8_t *code, const uint64_t (&registers)[16]) {
  if (code[0] != 0xc4)
    return std::nullopt;
  Encoding e(code);
  if (!e.isMap2 || !e.isWide || e.prefix != 3 || e.opcode != 0x50)
    return std::nullopt;
  if (!e.isMemory())
    return VectorDot{bytesOfRegisterForm, e.reg, e.vvvv, e.rm | e.base, nullptr};
  MemoryOperand operand = memoryOperand(code, e, registers);
  return VectorDot{operand.bytes, e.reg, e.vvvv, 0,
                   reinterpret_cast<const uint8_t *>(operand.address + uintptr_t(operand.index))};
}

// Places in the frame: the lower halves of registers, the bits of the components that are not in their initial state,
// and the upper halves.
static constexpr unsigned lowerHalves = 160, header = 512, upperHalves = 576, halfBytes = 16;
static constexpr uint64_t lowerComponent = 1 << 1, upperComponent = 1 << 2;

VectorRegisters::Register VectorRegisters::load(unsigned number) const {
  Register value = {};
  uint64_t used;
  memcpy(&used, frame + header, sizeof(used));
  if (used & lowerComponent)
    memcpy(value.data(), frame + lowerHalves + number * halfBytes, halfBytes);
  if (used & upperComponent)
    memcpy(value.data() + 4, frame + upperHalves + number * halfBytes, halfBytes);
  return value;
}

void VectorRegisters::store(unsigned number, const Register &value) {
  uint64_t used;
  memcpy(&used, frame + header, sizeof(used));
  if (!(used & lowerComponent))
    memset(frame + lowerHalves, 0, 16 * halfBytes);
  if (!(used & upperComponent))
    memset(frame + upperHalves, 0, 16 * halfBytes);
  used |= lowerComponent | upperComponent;
  memcpy(frame + header, &used, sizeof(used));
  memcpy(frame + lowerHalves + number * halfBytes, value.data(), halfBytes);
  memcpy(frame + upperHalves + number * halfBytes, value.data() + 4, halfBytes);
}

void tilehandler::execute(const VectorDot &instruction, VectorRegisters registers) {
  VectorRegisters::Register sums = registers.load(instruction.dest), lhs = registers.load(instruction.lhs),
                            rhs = registers.load(instruction.rhs);
  if (instruction.memory)
    memcpy(rhs.data(), instruction.memory, sizeof(rhs));
  for (unsigned lane = 0; lane < sums.size(); ++lane)
    for (unsigned byte = 0; byte < 4; ++byte)
      sums[lane] += uint32_t(int8_t(lhs[lane] >> 8 * byte) * int8_t(rhs[lane] >> 8 * byte));
  registers.store(instruction.dest, sums);
}
