//===- Harness.h - Tests of single instructions ---------------------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_PTXSIM_HARNESS_H
#define SACCADE_TEST_UNIT_PTXSIM_HARNESS_H

#include "saccade/PtxSim/PtxSim.h"
#include "llvm/ADT/bit.h"
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace saccade::ptxsim {
inline void PrintTo(FindingKind kind, std::ostream *stream) { *stream << name(kind); }
} // namespace saccade::ptxsim

namespace saccade::ptxsim::test {

/// One value per lane, 2, 4 or 8 bytes wide; a single value is broadcast to all lanes.
struct Row {
  unsigned bytes;
  std::vector<uint64_t> values;
};
inline Row b16(uint64_t value) { return {2, {value}}; }
inline Row b32(uint64_t value) { return {4, {value}}; }
inline Row b64(uint64_t value) { return {8, {value}}; }
inline Row f32(float value) { return {4, {llvm::bit_cast<uint32_t>(value)}}; }
inline Row f64(double value) { return {8, {llvm::bit_cast<uint64_t>(value)}}; }
/// f(lane) in every lane.
template <typename F> Row lanes(unsigned bytes, F f) {
  Row row{bytes, {}};
  for (unsigned lane = 0; lane < 32; ++lane)
    row.values.push_back(uint64_t(f(lane)));
  return row;
}

/// The .version, .target and .address_size directives.
std::string header(const std::string &target = "sm_80");

/// Writes `text` to the folder SACCADE_KEEP_PTX, if set; test/PtxSim/ptxas-accepts.test assembles these files with
/// ptxas.
void keepForPtxas(const std::string &text);

/// A kernel for one warp that loads the `inputs` %a, %b, %c and %e, executes `body`, and stores %d and, with two
/// results, %f. `body` may also use %p, %q (predicates), %x, %y (b32), %lx, %ly (b64), %hx, %hy (b16) and 4 KB of
/// shared memory `s`.
std::string kernelAround(const std::string &body, unsigned results, unsigned resultBytes,
                         const std::vector<Row> &inputs, const std::string &target);

struct Outcome {
  Report report;
  std::vector<std::vector<uint64_t>> results; ///< [result][lane]
};

struct Options {
  unsigned results = 1;
  std::string target = "sm_80";
  unsigned threads = 32;
  MmaMode mma = MmaMode::Float;
  AsyncMode async = AsyncMode::Early;
  Approximations approximations = Approximations::Rounded;
  bool forPtxas = true;
};

/// Runs `kernelAround`.
Outcome runWarp(const std::string &body, unsigned resultBytes, const std::vector<Row> &inputs,
                const Options &options = {});

/// The result of lane 0; a finding fails the test.
uint64_t evaluate(const std::string &body, unsigned resultBytes, const std::vector<Row> &inputs,
                  const Options &options = {});
/// `evaluate` for 32-bit operands and results.
inline uint32_t evaluate32(const std::string &body, const std::vector<uint32_t> &inputs) {
  std::vector<Row> rows;
  for (uint32_t value : inputs)
    rows.push_back(b32(value));
  return uint32_t(evaluate(body, 4, rows));
}
inline float evaluateFloat(const std::string &body, const std::vector<float> &inputs) {
  std::vector<Row> rows;
  for (float value : inputs)
    rows.push_back(f32(value));
  return llvm::bit_cast<float>(uint32_t(evaluate(body, 4, rows)));
}
/// The finding of a body that must fail.
Finding findingOf(const std::string &body, const std::vector<Row> &inputs = {}, const Options &options = {});
/// The finding of a text that must fail to load.
Finding loadFinding(const std::string &text);

} // namespace saccade::ptxsim::test

#endif // SACCADE_TEST_UNIT_PTXSIM_HARNESS_H
