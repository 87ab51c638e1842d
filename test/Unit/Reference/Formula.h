//===- Formula.h - Attention by its definition ----------------------*- C++ -*-===//
//
// Independent of the interpreter, on plain [batch, head, position, depth] arrays and in any floating-point type.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TEST_UNIT_REFERENCE_FORMULA_H
#define SACCADE_TEST_UNIT_REFERENCE_FORMULA_H

#include "saccade/Reference/Tensor.h"
#include <cmath>
#include <functional>

namespace saccade::reference {

template <typename Number> struct Formula {
  // Extents: batch, query heads, KV heads, queries, keys, head size of keys, head size of values.
  int64_t B = 1, H = 1, G = 1, S = 1, N = 1, D = 1, E = 1;
  const Tensor *q, *k, *v;
  Number scale = 0;
  /// Lengths of keys and queries per batch.
  std::function<int64_t(int64_t)> keyLength;
  std::function<int64_t(int64_t)> queryLength;
  std::function<bool(int64_t b, int64_t h, int64_t i, int64_t j)> mask;
  std::function<Number(Number s, int64_t b, int64_t h, int64_t i, int64_t j)> score;

  std::vector<Number> output, lse;

  static Formula of(const Tensor &q, const Tensor &k, const Tensor &v) {
    Formula f;
    f.B = q.shape[0], f.H = q.shape[1], f.G = k.shape[1], f.S = q.shape[2], f.N = k.shape[2], f.D = q.shape[3],
    f.E = v.shape[3];
    f.q = &q, f.k = &k, f.v = &v;
    f.keyLength = [n = f.N](int64_t) { return n; };
    f.queryLength = [n = f.S](int64_t) { return n; };
    f.scale = 1 / std::sqrt(Number(f.D));
    return f;
  }

  void compute() {
    output.assign(B * H * S * E, 0);
    lse.assign(B * H * S, -INFINITY);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t i = 0; i < S; ++i)
          row(b, h, i);
  }

private:
  void row(int64_t b, int64_t h, int64_t i) {
    int64_t g = h * G / H;
    std::vector<std::pair<int64_t, Number>> scores;
    for (int64_t j = 0; j < keyLength(b) && i < queryLength(b); ++j) {
      if (mask && !mask(b, h, i, j))
        continue;
      Number s = 0;
      for (int64_t d = 0; d < D; ++d)
        s += Number(q->values[((b * H + h) * S + i) * D + d].real) * k->values[((b * G + g) * N + j) * D + d].real;
      s *= scale;
      scores.push_back({j, score ? score(s, b, h, i, j) : s});
    }
    if (scores.empty())
      return;
    Number max = scores[0].second, sum = 0;
    for (auto [j, s] : scores)
      max = s > max ? s : max;
    for (auto [j, s] : scores)
      sum += std::exp(s - max);
    lse[(b * H + h) * S + i] = max + std::log(sum);
    for (auto [j, s] : scores)
      for (int64_t e = 0; e < E; ++e)
        output[((b * H + h) * S + i) * E + e] +=
            std::exp(s - max) / sum * v->values[((b * G + g) * N + j) * E + e].real;
  }
};

} // namespace saccade::reference

#endif // SACCADE_TEST_UNIT_REFERENCE_FORMULA_H
