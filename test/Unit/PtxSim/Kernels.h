//===- Kernels.h - Runs the kernels of test/PtxSim/Inputs -----------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_PTXSIM_KERNELS_H
#define SACCADE_TEST_UNIT_PTXSIM_KERNELS_H

#include "Harness.h"
#include "saccade/PtxSim/TensorMap.h"
#include <cmath>
#include <fstream>
#include <sstream>

namespace saccade::ptxsim::test {

/// The text of a file in test/PtxSim/Inputs.
inline std::string readInput(const std::string &name) {
  std::ifstream file(std::string(SACCADE_PTXSIM_INPUTS) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

template <typename T> llvm::ArrayRef<uint8_t> bytesOf(const std::vector<T> &values) {
  return {reinterpret_cast<const uint8_t *>(values.data()), values.size() * sizeof(T)};
}
template <typename T> std::vector<T> read(const Device &device, uint64_t address, size_t count) {
  std::vector<T> values(count);
  EXPECT_TRUE(device.read(address, {reinterpret_cast<uint8_t *>(values.data()), count * sizeof(T)}));
  return values;
}

/// Deterministic test data, exact in bf16.
inline float element(size_t index, int spread) {
  return float(int(index * 2654435761u >> 7) % (2 * spread + 1) - spread);
}

inline Launch mode(AsyncMode async) {
  Launch launch;
  launch.async = async;
  return launch;
}

/// Begin and end of an entry in `text`.
inline std::pair<size_t, size_t> range(const std::string &text, const std::string &entry) {
  size_t begin = text.find(".entry " + entry + "(");
  EXPECT_NE(begin, std::string::npos);
  return {begin, text.find("\n}", begin)};
}

/// All copies of `text` with one of the entry's instructions that start with `prefix` removed.
inline std::vector<std::string> without(const std::string &text, const std::string &entry, const std::string &prefix) {
  std::vector<std::string> mutants;
  auto [begin, end] = range(text, entry);
  for (size_t at = text.find("\t" + prefix, begin); at < end; at = text.find("\t" + prefix, at + 1)) {
    std::string mutant = text;
    mutants.push_back(mutant.erase(at, mutant.find(';', at) + 1 - at));
  }
  return mutants;
}

/// Outcome of a kernel on one problem.
struct Verdict {
  Report report;
  bool rightResult = false;
  bool good() const { return report && rightResult; }
};

/// Each runs the kernel of that name in `text` on a fixed problem and compares with a plain loop.
Verdict runAdd(const std::string &text, const Launch &how = {});
Verdict runSum(const std::string &text, const Launch &how = {});
Verdict runMatmul(const std::string &text, const Launch &how = {});
Verdict runHistogram(const std::string &text, const Launch &how = {});
Verdict runHopperAttention(const std::string &text, const Launch &how = {}, uint32_t queries = 200,
                           uint32_t keys = 300);
Verdict runGemm(const std::string &text, const Launch &how = {}, uint32_t m = 90, uint32_t n = 128, uint32_t k = 160);

} // namespace saccade::ptxsim::test

#endif // SACCADE_TEST_UNIT_PTXSIM_KERNELS_H
