//===- MatrixProduct.cpp - Products of small matrices as in tensor cores --===//

#include "MatrixProduct.h"
#include <algorithm>
#include <cmath>
#include <cstring>

using namespace saccade::ptxsim;

namespace {

constexpr unsigned rows = Matrices::rows, columns = Matrices::columns, maxK = Matrices::maxK;

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

float truncateToFloat(double value, int fraction) {
  if (std::fabs(value) >= 0x1p-126 && std::fabs(value) < 0x1p128)
    return float(doubleOf(bitsOf(value) & ~uint64_t(0) << (52 - fraction)));
  return floatOf(roundTo(value, f32Format, Rounding::Zero));
}

/// Accumulates one segment of k: terms are aligned to the largest exponent, truncated and added exactly.
void accumulateAligned(Matrices &m, unsigned from, unsigned to, const TensorCore &core) {
  int fraction = core.fraction, minExponent = core.minExponent;
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
      m.c[row][column] = core.halfResult ? float(value) : truncateToFloat(value, core.resultFraction);
    }
}

} // namespace

void saccade::ptxsim::multiply(Matrices &matrices, MmaMode mode, const TensorCore &core) {
  switch (mode) {
  case MmaMode::Float:
    return multiplyInFloat(matrices);
  case MmaMode::Exact:
    return multiplyInDouble(matrices);
  case MmaMode::Hardware:
    for (unsigned from = 0; from < matrices.k; from += core.segment)
      accumulateAligned(matrices, from, std::min(matrices.k, from + core.segment), core);
  }
}
