//===- AsyncHarness.h - Tests of asynchronous instructions ----------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_PTXSIM_ASYNCHARNESS_H
#define SACCADE_TEST_UNIT_PTXSIM_ASYNCHARNESS_H

#include "Harness.h"
#include "saccade/PtxSim/TensorMap.h"

namespace saccade::ptxsim::test {

/// A launch of one block for sm_90a.
struct AsyncCase {
  AsyncCase(std::string body, unsigned threads = 32) : body(std::move(body)), threads(threads) {}

  std::string body;
  unsigned threads;
  std::vector<uint8_t> input = std::vector<uint8_t>(16); ///< global memory at %in
  uint32_t outputBytes = 16;                             ///< global memory at %out; 0 at first if `clearOutput`
  bool clearOutput = false;
  std::optional<TiledTensor> tensor; ///< of the map at %map; its address is relative to %in, or to %out if `mapsOutput`
  bool mapsOutput = false;
  uint32_t sharedBytes = 8192; ///< at %smem, aligned to 1024
  std::string directives;
  AsyncMode async = AsyncMode::Early;
  MmaMode mma = MmaMode::Float;
  bool forPtxas = true;
};

struct AsyncOutcome {
  Report report;
  std::vector<uint8_t> output;
};

/// Executes `body`, which may use %in, %out, %map (b64, the last one generic), %smem, %thread, %lane, %warp, %r0 to %r9
/// (b32), %l0 to %l9 (b64), %h0 and %h1 (b16) and %p0 to %p3 (predicates).
AsyncOutcome runAsync(const AsyncCase &test);

/// The finding of a case that must fail, in both modes of copies; its kind must be the same.
Finding asyncFinding(AsyncCase test);
/// Runs a case in both modes, which must succeed with the same output.
std::vector<uint8_t> asyncOutput(AsyncCase test);

/// Instructions that make one thread initialise the barrier at %smem + `offset` and all threads see it.
std::string initialised(unsigned count, unsigned offset = 0);
/// Instructions that wait for a phase of the barrier at %smem + `offset`.
std::string waited(unsigned parity, unsigned offset = 0);
/// Instructions by which the threads copy `bytes` (a multiple of 4) of shared memory at %smem + `offset` to %out.
std::string copiedOut(uint32_t bytes, uint32_t offset, unsigned threads);

template <typename T> std::vector<uint8_t> rawBytes(const std::vector<T> &values) {
  const auto *first = reinterpret_cast<const uint8_t *>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

} // namespace saccade::ptxsim::test

#endif // SACCADE_TEST_UNIT_PTXSIM_ASYNCHARNESS_H
