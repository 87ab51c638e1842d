//===- Kernels.h - Hot loops of the interpreter --------------------*- C++ -*-===//
//
// Dot products and contractions over strided f64 storage. `Sum` is the type of multiplications and additions: double,
// or float for f32 accumulation. The loops are optimised in every build type, so this file includes no LLVM headers.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_KERNELS_H
#define SACCADE_REFERENCE_KERNELS_H

#include <cstdint>
#include <vector>

namespace saccade::reference {

/// Terms that are added in a chain; more terms are added in parts of this length, and then the parts. So does the
/// code of kernels, whose rounding errors grow with the length of a chain.
inline constexpr int64_t sumLength = 128;

/// A loop of a contraction: its trip count and the stride of each operand, in elements.
struct ContractionLoop {
  int64_t extent;
  int64_t lhs, rhs, out;
  bool isReduction;
};

/// out += lhs · rhs over all `loops`. The terms of each output element are accumulated in loop order, in parts of
/// `sumLength` of the last reduction.
template <typename Sum>
void contract(const std::vector<ContractionLoop> &loops, const double *lhs, const double *rhs, double *out);

/// Σ a[i] b[i], in order.
template <typename Sum> double dot(int64_t count, const double *a, int64_t strideA, const double *b, int64_t strideB);

/// Σ a[i] b[i] with the arithmetic of `Precision::GPU`. Terms that are not finite are added in f32.
double dotOnTensorCore(int64_t count, const double *a, int64_t strideA, const double *b, int64_t strideB);

/// `value` with an error of at most 2^-22 · |size|, which depends on the bits of `value` only and is
/// uniformly distributed.
double approximateOnGPU(double value, double size);

/// out[i] += factor · a[i].
template <typename Sum> void addScaled(int64_t count, double factor, const double *a, int64_t stride, Sum *out);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_KERNELS_H
