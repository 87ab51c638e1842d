//===- Random.h - Random numbers of the searches of raising -------*- C++ -*-===//
#ifndef SACCADE_TEST_SUPPORT_RANDOM_H
#define SACCADE_TEST_SUPPORT_RANDOM_H

#include <cmath>
#include <initializer_list>
#include <iterator>
#include <random>

namespace saccade::search {

/// Random numbers that are the same with every standard library.
class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}
  /// From 0 to `count` − 1.
  size_t below(size_t count) { return engine() % count; }
  bool chance(double probability) { return real() < probability; }
  /// From 0 to 1.
  double real() { return double(engine() >> 11) * 0x1p-53; }
  double normal() {
    // Box and Muller; the distributions of the standard library differ between implementations.
    double radius = std::sqrt(-2 * std::log(1 - real()));
    return radius * std::cos(6.283185307179586 * real());
  }
  template <typename Range> auto &pick(Range &&range) { return *std::next(range.begin(), below(range.size())); }
  template <typename T> T pick(std::initializer_list<T> values) {
    return *std::next(values.begin(), below(values.size()));
  }
  uint64_t bits() { return engine(); }

private:
  std::mt19937_64 engine;
};

} // namespace saccade::search

#endif // SACCADE_TEST_SUPPORT_RANDOM_H
