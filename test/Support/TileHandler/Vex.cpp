//===- Vex.cpp - Decoding of instructions with a VEX prefix --------------------===//
#include "Vex.h"
#include <cstring>

using namespace tilehandler;

static int32_t readDisplacement(const uint8_t *code, unsigned bytes) {
  int32_t wide = 0;
  memcpy(&wide, code, bytes);
  return bytes == 1 ? int8_t(wide) : wide;
}

MemoryOperand tilehandler::memoryOperand(const uint8_t *code, const Encoding &e, const uint64_t (&registers)[16]) {
  MemoryOperand result = {bytesOfRegisterForm, 0, 0};
  unsigned displacement = e.mod == 1 ? 1 : e.mod == 2 ? 4 : 0;
  bool isRelative = false;
  if (e.rm == 4) {
    uint8_t sib = code[result.bytes++];
    unsigned base = sib & 7, index = (sib >> 3 & 7) | e.index;
    if (base == 5 && e.mod == 0)
      displacement = 4;
    else
      result.address = registers[base | e.base];
    if (index != 4)
      result.index = intptr_t(registers[index] << (sib >> 6));
  } else if (e.rm == 5 && e.mod == 0) {
    isRelative = true;
    displacement = 4;
  } else {
    result.address = registers[e.rm | e.base];
  }
  result.address += uintptr_t(intptr_t(readDisplacement(code + result.bytes, displacement)));
  result.bytes += displacement;
  if (isRelative)
    result.address += reinterpret_cast<uintptr_t>(code) + result.bytes;
  return result;
}
