//===- RandomCase.h - Random numbers of the claims of raising -----*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_RAISE_RANDOMCASE_H
#define SACCADE_TEST_UNIT_RAISE_RANDOMCASE_H

#include "llvm/ADT/ArrayRef.h"
#include <cstdlib>
#include <random>

/// All of a case follows from its seed.
class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}
  /// From 0 to `count` − 1.
  size_t below(size_t count) { return engine() % count; }
  bool chance(double share) { return double(engine() >> 11) * 0x1p-53 < share; }
  template <typename T> T pick(llvm::ArrayRef<T> values) { return values[below(values.size())]; }
  template <typename T> T pick(std::initializer_list<T> values) { return pick(llvm::ArrayRef<T>(values)); }

private:
  std::mt19937_64 engine;
};

/// A number from the environment.
inline int64_t fromEnvironment(const char *name, int64_t otherwise) {
  const char *value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

#endif // SACCADE_TEST_UNIT_RAISE_RANDOMCASE_H
