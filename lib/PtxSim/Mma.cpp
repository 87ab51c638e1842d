//===- Mma.cpp - mma ------------------------------------------------------===//
//
// Three accumulation modes, see docs/guides/ptxsim.md. MmaMode::Hardware follows the model of MMA-Sim (arXiv
// 2511.10909).
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "Decoder.h"
#include "Fragments.h"
#include "Numbers.h"
#include <algorithm>
#include <cstring>

using namespace saccade::ptxsim;

namespace {

constexpr unsigned rows = 16, columns = 8, maxK = 32;

struct Matrices {
  unsigned k;
  float a[rows][maxK], b[maxK][columns];
  float c[rows][columns];
};

template <Type type> float elementValue(uint32_t bits) {
  if constexpr (type == Type::F16)
    return fromHalf(uint16_t(bits));
  else if constexpr (type == Type::BF16)
    return fromBF16(uint16_t(bits));
  else if constexpr (type == Type::TF32)
    // Tensor cores ignore the lower 13 bits.
    return floatOf(bits & ~uint32_t(0x1fff));
  else
    return float(widen(bits & 0xff, formatOf(type)));
}

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
  switch (type) {
  case Type::F16:
    return gather<Type::F16>(warp, op, first, registers, matrix, place);
  case Type::BF16:
    return gather<Type::BF16>(warp, op, first, registers, matrix, place);
  case Type::TF32:
    return gather<Type::TF32>(warp, op, first, registers, matrix, place);
  case Type::E4M3:
    return gather<Type::E4M3>(warp, op, first, registers, matrix, place);
  default:
    return gather<Type::E5M2>(warp, op, first, registers, matrix, place);
  }
}

unsigned bitsOfElement(Type type) { return type == Type::TF32 ? 32 : 8 * bytesOf(type); }

/// Products are exact in f32 and only sums round, so results do not depend on contraction to FMA.
inline __attribute__((always_inline)) void addProducts(Matrices &m) {
  for (unsigned row = 0; row < rows; ++row) {
    float sums[columns];
    std::memcpy(sums, m.c[row], sizeof(sums));
    for (unsigned k = 0; k < m.k; ++k)
      for (unsigned column = 0; column < columns; ++column)
        sums[column] += m.a[row][k] * m.b[k][column];
    std::memcpy(m.c[row], sums, sizeof(sums));
  }
}
void addProductsGeneric(Matrices &m) { addProducts(m); }
__attribute__((target("avx2,fma"))) void addProductsAVX2(Matrices &m) { addProducts(m); }

void multiplyInFloat(Matrices &m) {
  static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  wide ? addProductsAVX2(m) : addProductsGeneric(m);
}

void multiplyInDouble(Matrices &m) {
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned column = 0; column < columns; ++column) {
      double sum = m.c[row][column];
      for (unsigned k = 0; k < m.k; ++k)
        sum += double(m.a[row][k]) * double(m.b[k][column]);
      m.c[row][column] = float(sum);
    }
}

/// Like `ilogb`, in a format with minimum exponent `minExponent`, which is also the result for 0.
int exponentOf(float value, int minExponent) {
  int exponent = int(bitsOf(value) >> 23 & 0xff) - 127;
  return std::max(exponent, minExponent);
}

double powerOfTwo(int exponent) { return doubleOf(uint64_t(exponent + 1023) << 52); }

float truncateToFloat(double value) {
  if (std::fabs(value) >= 0x1p-126 && std::fabs(value) < 0x1p128)
    return float(doubleOf(bitsOf(value) & ~uint64_t(0x1fffffff)));
  return floatOf(roundTo(value, f32Format, Rounding::Zero));
}

/// Accumulates one segment of k: terms are aligned to the largest exponent, truncated to `fraction` bits and added
/// exactly.
void accumulateAligned(Matrices &m, unsigned from, unsigned to, int fraction, int minExponent, bool halfResult) {
  int exponentsA[rows][maxK], exponentsB[maxK][columns];
  for (unsigned k = from; k < to; ++k) {
    for (unsigned row = 0; row < rows; ++row)
      exponentsA[row][k] = m.a[row][k] == 0 ? -10000 : exponentOf(m.a[row][k], minExponent);
    for (unsigned column = 0; column < columns; ++column)
      exponentsB[k][column] = m.b[k][column] == 0 ? -10000 : exponentOf(m.b[k][column], minExponent);
  }
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned column = 0; column < columns; ++column) {
      float c = m.c[row][column];
      int maxExponent = exponentOf(c, -126);
      bool isFinite = std::isfinite(c);
      for (unsigned k = from; k < to; ++k) {
        maxExponent = std::max(maxExponent, exponentsA[row][k] + exponentsB[k][column]);
        isFinite &= std::isfinite(m.a[row][k]) && std::isfinite(m.b[k][column]);
      }
      if (!isFinite) {
        for (unsigned k = from; k < to; ++k)
          c += m.a[row][k] * m.b[k][column];
        m.c[row][column] = c;
        continue;
      }
      // Exponents of sums are well within the range of f64.
      double scale = powerOfTwo(fraction - maxExponent);
      int64_t sum = int64_t(double(c) * scale);
      for (unsigned k = from; k < to; ++k)
        sum += int64_t(double(m.a[row][k]) * double(m.b[k][column]) * scale);
      double value = double(sum) * powerOfTwo(maxExponent - fraction);
      m.c[row][column] = halfResult ? float(value) : truncateToFloat(value);
    }
}

/// Numbers: type of A, type of B, k, f16 results | f16 addends << 1.
void multiply(Warp &warp, const Op &op, uint32_t mask) {
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

  switch (warp.block.launch.mma) {
  case MmaMode::Float:
    multiplyInFloat(m);
    break;
  case MmaMode::Exact:
    multiplyInDouble(m);
    break;
  case MmaMode::Hardware: {
    // sm_80 splits the largest shapes into two segments.
    bool hopper = warp.block.code.architecture >= 90;
    int minExponent = typeA == Type::F16 ? -14 : typeA == Type::E4M3 ? -6 : typeA == Type::E5M2 ? -14 : -126;
    unsigned segment = hopper ? m.k : bits == 16 ? 8 : bits == 32 ? 4 : 16;
    for (unsigned from = 0; from < m.k; from += segment)
      accumulateAligned(m, from, std::min(m.k, from + segment), hopper ? 25 : 24, minExponent, halfResult);
  }
  }

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
  return d.emit(integers ? multiplyIntegers : multiply);
}

} // namespace

void saccade::ptxsim::addMmaInstructions(InstructionTable &table) { table.add("mma", TypeClass::Any, decodeMma); }
