//===- Kernels.cpp - Hot loops of the interpreter ------------------------------===//
#include "Kernels.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace saccade::reference {

template <typename Sum> double dot(int64_t count, const double *a, int64_t strideA, const double *b, int64_t strideB) {
  Sum sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += static_cast<Sum>(a[i * strideA]) * static_cast<Sum>(b[i * strideB]);
  return sum;
}

double dotOnTensorCore(int64_t count, const double *a, int64_t strideA, const double *b, int64_t strideB) {
  constexpr int64_t segment = 8;
  constexpr int fraction = 24, fractionOfFloat = 23;
  auto truncate = [](double value, int exponent, int bits) {
    return std::ldexp(std::trunc(std::ldexp(value, bits - exponent)), exponent - bits);
  };
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += segment) {
    // Elements have 16 bits, so products are exact in f64.
    double terms[segment + 1] = {sum}, plain = sum;
    int64_t end = std::min(begin + segment, count), size = 1;
    for (int64_t i = begin; i < end; ++i)
      plain += terms[size++] = a[i * strideA] * b[i * strideB];
    double largest = 0;
    for (double term : terms)
      largest = std::max(largest, std::fabs(term));
    if (!std::isfinite(plain)) {
      sum = static_cast<float>(plain);
      continue;
    }
    if (largest == 0)
      continue;
    sum = 0;
    for (double term : terms)
      sum += truncate(term, std::ilogb(largest), fraction);
    if (sum != 0)
      sum = truncate(sum, std::ilogb(sum), fractionOfFloat);
  }
  return sum;
}

double approximateOnGPU(double value, double size) {
  if (!std::isfinite(value) || value == 0)
    return value;
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits ^ bits >> 31) * 0x9e3779b97f4a7c15; // Fibonacci hashing (Knuth)
  return value + size * std::ldexp(double(int64_t(bits ^ bits << 32)), -63 - 22);
}

template <typename Sum> void addScaled(int64_t count, double factor, const double *a, int64_t stride, Sum *out) {
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i)
      out[i] += static_cast<Sum>(factor) * static_cast<Sum>(a[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    out[i] += static_cast<Sum>(factor) * static_cast<Sum>(a[i * stride]);
}

namespace {

/// Number of neighbouring outputs computed together: their accumulations are independent and can be vectorised.
constexpr int64_t lanes = 16;

template <typename Sum> struct Contraction {
  std::vector<ContractionLoop> parallel, reduction;
  ContractionLoop lane{1, 0, 0, 0, false};

  template <bool isFull, bool isDense>
  void sum(size_t depth, const double *lhs, const double *rhs, Sum *sums, int64_t count) {
    if (depth < reduction.size()) {
      const ContractionLoop &loop = reduction[depth];
      auto add = [&](int64_t begin, int64_t end, Sum *to) {
        for (int64_t i = begin; i < end; ++i)
          sum<isFull, isDense>(depth + 1, lhs + i * loop.lhs, rhs + i * loop.rhs, to, count);
      };
      if (depth + 1 < reduction.size() || loop.extent <= sumLength)
        return add(0, loop.extent, sums);
      for (int64_t begin = 0; begin < loop.extent; begin += sumLength) {
        Sum part[lanes] = {};
        add(begin, std::min(begin + sumLength, loop.extent), part);
        for (int64_t i = 0; i < count; ++i)
          sums[i] += part[i];
      }
      return;
    }
    int64_t n = isFull ? lanes : count, step = isDense ? 1 : lane.rhs;
    for (int64_t i = 0; i < n; ++i)
      sums[i] += static_cast<Sum>(lhs[i * lane.lhs]) * static_cast<Sum>(rhs[i * step]);
  }

  void over(size_t depth, const double *lhs, const double *rhs, double *out) {
    if (depth < parallel.size()) {
      const ContractionLoop &loop = parallel[depth];
      for (int64_t i = 0; i < loop.extent; ++i)
        over(depth + 1, lhs + i * loop.lhs, rhs + i * loop.rhs, out + i * loop.out);
      return;
    }
    for (int64_t first = 0; first < lane.extent; first += lanes) {
      int64_t count = std::min(lanes, lane.extent - first);
      Sum sums[lanes];
      for (int64_t i = 0; i < count; ++i)
        sums[i] = static_cast<Sum>(out[(first + i) * lane.out]);
      const double *l = lhs + first * lane.lhs, *r = rhs + first * lane.rhs;
      if (count < lanes)
        sum<false, false>(0, l, r, sums, count);
      else if (lane.rhs == 1)
        sum<true, true>(0, l, r, sums, count);
      else
        sum<true, false>(0, l, r, sums, count);
      for (int64_t i = 0; i < count; ++i)
        out[(first + i) * lane.out] = sums[i];
    }
  }
};

} // namespace

template <typename Sum>
void contract(const std::vector<ContractionLoop> &loops, const double *lhs, const double *rhs, double *out) {
  Contraction<Sum> contraction;
  for (const ContractionLoop &loop : loops) {
    if (loop.extent == 0)
      return;
    (loop.isReduction ? contraction.reduction : contraction.parallel).push_back(loop);
  }
  // The last parallel loop with at least `lanes` iterations is vectorised.
  std::vector<ContractionLoop> &parallel = contraction.parallel;
  auto isWide = [](const ContractionLoop &loop) { return loop.extent >= lanes; };
  auto lane = std::find_if(parallel.rbegin(), parallel.rend(), isWide);
  if (lane == parallel.rend())
    lane = parallel.rbegin();
  if (lane != parallel.rend()) {
    contraction.lane = *lane;
    parallel.erase(std::next(lane).base());
  }
  contraction.over(0, lhs, rhs, out);
}

template double dot<double>(int64_t, const double *, int64_t, const double *, int64_t);
template double dot<float>(int64_t, const double *, int64_t, const double *, int64_t);
template void addScaled<double>(int64_t, double, const double *, int64_t, double *);
template void addScaled<float>(int64_t, double, const double *, int64_t, float *);
template void contract<double>(const std::vector<ContractionLoop> &, const double *, const double *, double *);
template void contract<float>(const std::vector<ContractionLoop> &, const double *, const double *, double *);

} // namespace saccade::reference
