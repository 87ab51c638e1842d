//===- Cases.h - How many cases a random test draws ---------------*- C++ -*-===//
#ifndef SACCADE_TEST_SUPPORT_CASES_H
#define SACCADE_TEST_SUPPORT_CASES_H

#include <cstdint>
#include <cstdlib>

/// The number of random cases (SACCADE_REGIONS, or `otherwise`) and the first seed (SACCADE_SEED, or 1).
struct Cases {
  explicit Cases(int64_t otherwise) : count(read("SACCADE_REGIONS", otherwise)), seed(read("SACCADE_SEED", 1)) {}
  int64_t count, seed;

private:
  static int64_t read(const char *name, int64_t otherwise) {
    const char *text = std::getenv(name);
    return text ? std::strtoll(text, nullptr, 10) : otherwise;
  }
};

#endif // SACCADE_TEST_SUPPORT_CASES_H
