//===- Mma.cpp - mma ------------------------------------------------------===//

#include "Block.h"
#include "Decoder.h"
#include "Fragments.h"
#include "MatrixProduct.h"
#include <algorithm>
#include <cstring>

using namespace saccade::ptxsim;

namespace {

constexpr unsigned rows = Matrices::rows, columns = Matrices::columns, maxK = Matrices::maxK;

/// Gathers fragments, in registers from input `first` on, into a matrix; `place` maps (bits, lane, i) to its element
/// index.
template <Type type, typename Place>
void gather(Warp &warp, const Op &op, unsigned first, unsigned registers, float *matrix, Place place) {
  constexpr unsigned bits = type == Type::TF32 ? 32 : 8 * bytesOf(type), each = 32 / bits;
  for (unsigned index = 0; index < registers; ++index) {
    const uint32_t *row = warp.row<uint32_t>(op.input(first + index));
    for (unsigned part = 0; part < each; ++part) {
      float values[32];
      for (unsigned lane = 0; lane < 32; ++lane)
        values[lane] = elementValue<type>(row[lane] >> (bits * part & 31));
      for (unsigned lane = 0; lane < 32; ++lane)
        matrix[place(bits, lane, index * each + part)] = values[lane];
    }
  }
}

template <typename Place>
void gatherOf(Type type, Warp &warp, const Op &op, unsigned first, unsigned registers, float *matrix, Place place) {
  forOperandType(type, [&]<Type operand>() { gather<operand>(warp, op, first, registers, matrix, place); });
}

unsigned bitsOfElement(Type type) { return type == Type::TF32 ? 32 : 8 * bytesOf(type); }

/// Numbers: type of A, type of B, k, f16 results | f16 addends << 1.
void multiplyFragments(Warp &warp, const Op &op, uint32_t mask) {
  if (mask != ~uint32_t(0))
    return warp.fail(FindingKind::Divergence,
                     "only " + llvm::Twine(__builtin_popcount(mask)) + " of 32 lanes reach the instruction");
  Type typeA = Type(op.numbers[0]), typeB = Type(op.numbers[1]);
  Matrices m;
  m.k = op.numbers[2];
  bool halfResult = op.numbers[3] & 1, halfAddend = op.numbers[3] & 2;
  unsigned bits = bitsOfElement(typeA), registersA = rows * m.k * bits / 1024, registersB = columns * m.k * bits / 1024,
           input = registersA + registersB;
  gatherOf(typeA, warp, op, 0, registersA, &m.a[0][0], [](unsigned bits, unsigned lane, unsigned i) {
    Element at = elementOfA(bits, lane, i);
    return at.row * maxK + at.column;
  });
  gatherOf(typeB, warp, op, registersA, registersB, &m.b[0][0], [](unsigned bits, unsigned lane, unsigned i) {
    Element at = elementOfB(bits, lane, i);
    return at.row * columns + at.column;
  });
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned lane = 0; lane < 32; ++lane) {
      Element at = elementOfC(lane, i);
      m.c[at.row][at.column] =
          halfAddend ? fromHalf(uint16_t(warp.row<uint32_t>(op.input(input + i / 2))[lane] >> (16 * (i & 1))))
                     : floatOf(warp.row<uint32_t>(op.input(input + i))[lane]);
    }

  // sm_80 splits the largest shapes into two segments.
  bool hopper = warp.block.code.architecture >= 90;
  unsigned half = bits == 16 ? 8 : bits == 32 ? 4 : 16;
  multiply(m, warp.block.launch.mma, {hopper ? m.k : half, hopper ? 25 : 24, minExponentOf(typeA), halfResult});

  for (unsigned i = 0; i < 4; ++i)
    for (unsigned lane = 0; lane < 32; ++lane) {
      Element at = elementOfC(lane, i);
      float value = m.c[at.row][at.column];
      if (!halfResult) {
        warp.row<uint32_t>(op.result(i))[lane] = bitsOf(canonical(value));
        continue;
      }
      uint32_t &target = warp.row<uint32_t>(op.result(i / 2))[lane], half = toHalf(value);
      target = i & 1 ? (target & 0xffff) | half << 16 : (target & 0xffff0000) | half;
    }
}

/// s8 and u8 operands, exact s32 accumulation.
void multiplyIntegers(Warp &warp, const Op &op, uint32_t mask) {
  if (mask != ~uint32_t(0))
    return warp.fail(FindingKind::Divergence,
                     "only " + llvm::Twine(__builtin_popcount(mask)) + " of 32 lanes reach the instruction");
  unsigned k = op.numbers[2], registersA = k / 8, registersB = k / 16;
  int32_t a[rows][maxK], b[maxK][columns];
  auto value = [&](uint32_t number, unsigned input, unsigned lane, unsigned part) -> int32_t {
    uint32_t bits = warp.row<uint32_t>(op.input(input))[lane] >> (8 * part);
    return Type(number) == Type::S8 ? int8_t(bits) : uint8_t(bits);
  };
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4 * registersA; ++i) {
      Element at = elementOfA(8, lane, i);
      a[at.row][at.column] = value(op.numbers[0], i / 4, lane, i % 4);
    }
    for (unsigned i = 0; i < 4 * registersB; ++i) {
      Element at = elementOfB(8, lane, i);
      b[at.row][at.column] = value(op.numbers[1], registersA + i / 4, lane, i % 4);
    }
  }
  for (unsigned i = 0; i < 4; ++i) {
    uint32_t sums[32];
    for (unsigned lane = 0; lane < 32; ++lane) {
      Element at = elementOfC(lane, i);
      sums[lane] = warp.row<uint32_t>(op.input(registersA + registersB + i))[lane];
      for (unsigned index = 0; index < k; ++index)
        sums[lane] += uint32_t(a[at.row][index] * b[index][at.column]);
    }
    std::memcpy(warp.row<uint32_t>(op.result(i)), sums, sizeof(sums));
  }
}

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {d...}, {a...}, {b...}, {c...}
bool decodeMma(Decoder &d) {
  if (!d.take("sync") || !d.take("aligned"))
    return d.fail("expected .sync.aligned");
  int shape = d.takeOneOf({"m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"});
  if (shape < 0 || !d.take("row") || !d.take("col"))
    return d.fail("this shape or layout is not simulated");
  unsigned k = 4 << shape;
  Type typeD = d.type(), typeA = d.type(), typeB = d.type(), typeC = d.type();
  unsigned bits = bitsOfElement(typeA);
  bool integers = typeA == Type::S8 || typeA == Type::U8;
  bool floats =
      typeA == Type::F16 || typeA == Type::BF16 || typeA == Type::TF32 || typeA == Type::E4M3 || typeA == Type::E5M2;
  bool sameKind = integers    ? typeB == Type::S8 || typeB == Type::U8
                  : bits == 8 ? typeB == Type::E4M3 || typeB == Type::E5M2
                              : typeA == typeB;
  bool shapeFits = bits == 16 ? k == 8 || k == 16 : bits == 32 ? k == 4 || k == 8 : integers ? k >= 16 : k == 32;
  bool resultFits = integers ? typeD == Type::S32 && typeC == Type::S32
                             : (typeD == Type::F32 && typeC == Type::F32) ||
                                   (typeA == Type::F16 && typeD == Type::F16 && typeC == Type::F16);
  if (!(integers || floats) || !sameKind || !shapeFits || !resultFits || !d.expectOperands(4))
    return d.fail("this combination of types and shape is not simulated");
  unsigned sums = typeD == Type::F16 ? 2 : 4;
  unsigned expected[4] = {sums, rows * k * bits / 1024, columns * k * bits / 1024, sums};
  for (unsigned index = 0; index < 4; ++index) {
    const Operand &operand = d.at(index);
    std::vector<Operand> parts = operand.kind == Operand::Vector ? operand.parts : std::vector<Operand>{operand};
    if (parts.size() != expected[index])
      return d.fail("found " + llvm::Twine(parts.size()) + " registers in operand " + llvm::Twine(index) +
                    ", expected " + llvm::Twine(expected[index]));
    for (Operand &part : parts) {
      // A zero C may be written as float or integer immediates.
      if (index == 0)
        d.result(part, Type::B32);
      else
        d.input(part, Type::B32);
    }
  }
  d.op.numbers[0] = uint32_t(typeA), d.op.numbers[1] = uint32_t(typeB), d.op.numbers[2] = k;
  d.op.numbers[3] = (typeD == Type::F16) | (typeC == Type::F16) << 1;
  d.op.needsDefined = true;
  d.op.isMatrixProduct = true;
  return d.emit(integers ? multiplyIntegers : multiplyFragments);
}

} // namespace

void saccade::ptxsim::addMmaInstructions(InstructionTable &table) { table.add("mma", TypeClass::Any, decodeMma); }
