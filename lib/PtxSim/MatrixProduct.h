//===- MatrixProduct.h - Products of small matrices as in tensor cores -*- C++ -*-===//
//
// Three accumulation modes, see docs/guides/ptxsim.md. MmaMode::Hardware follows the model of MMA-Sim (arXiv
// 2511.10909).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_PTXSIM_MATRIXPRODUCT_H
#define SACCADE_LIB_PTXSIM_MATRIXPRODUCT_H

#include "Numbers.h"
#include "saccade/PtxSim/PtxSim.h"

namespace saccade::ptxsim {

/// Operands and sums of one product, 16 x k times k x 8.
struct Matrices {
  static constexpr unsigned rows = 16, columns = 8, maxK = 32;

  unsigned k;
  float a[rows][maxK], b[maxK][columns];
  float c[rows][columns];
};

/// What MmaMode::Hardware depends on.
struct TensorCore {
  unsigned segment;        ///< products that are aligned to each other
  int fraction;            ///< bits that aligned terms keep
  int minExponent;         ///< of the operands' type
  bool halfResult = false; ///< f16 sums
  int resultFraction = 23; ///< bits that an f32 sum keeps
};

/// c += a * b.
void multiply(Matrices &matrices, MmaMode mode, const TensorCore &core);

/// Minimum exponent of a normal value of an operand type.
constexpr int minExponentOf(Type type) {
  return type == Type::F16 || type == Type::E5M2 ? -14 : type == Type::E4M3 ? -6 : -126;
}

/// Value of an element in the low bits.
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

/// Calls f.operator()<type>() for a floating-point operand type.
template <typename F> void forOperandType(Type type, F f) {
  switch (type) {
  case Type::F16:
    return f.template operator()<Type::F16>();
  case Type::BF16:
    return f.template operator()<Type::BF16>();
  case Type::TF32:
    return f.template operator()<Type::TF32>();
  case Type::E4M3:
    return f.template operator()<Type::E4M3>();
  default:
    return f.template operator()<Type::E5M2>();
  }
}

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_MATRIXPRODUCT_H
