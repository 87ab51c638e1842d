//===- Machine.h - The machine of the fake CUDA driver -----------*- C++ -*-===//
//
// What the files of the fake driver share: its types, the simulated machine and the check at the start of a call.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_TEST_SUPPORT_FAKECUDA_MACHINE_H
#define SACCADE_TEST_SUPPORT_FAKECUDA_MACHINE_H

#include "saccade/PtxSim/PtxSim.h"
#include "llvm/ADT/StringExtras.h"
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace fakecuda {

using namespace saccade::ptxsim;

using Result = int32_t;
using Address = uint64_t;

inline constexpr Result success = 0, invalidValue = 1, outOfMemory = 2, notInitialized = 3, invalidDevice = 101,
                        noBinary = 209, invalidContext = 201, invalidPTX = 218, unsupportedPTX = 222, notFound = 500,
                        launchFailed = 719, captureUnsupported = 900;

struct Kernel;
struct Module {
  explicit Module(Program program) : program(std::move(program)) {}
  Program program;
  std::vector<std::unique_ptr<Kernel>> kernels;
};
struct Kernel {
  Module *module;
  std::string name;
  int64_t sharedLimit;
};
/// What was captured of a stream: launches and writes, in order.
struct Graph {
  std::vector<std::function<Result()>> nodes;
};
struct Context {
  int32_t device;
  uint64_t id;
};

/// The simulated machine, one per process.
struct Machine {
  std::mutex lock;
  std::map<std::string, int64_t> settings = {{"version", 13000}, {"devices", 1},      {"capability", 80},
                                             {"shared", 166912}, {"memory", 1 << 30}, {"multiprocessors", 2}};
  std::map<std::string, std::string> names; ///< `hang` and `fault`: parts of the names of kernels
  std::string log;                          ///< calls, one per line
  std::string sharedText;                   ///< the last text returned
  std::string finding;                      ///< the last finding of a launch
  Device memory;
  std::map<Address, uint64_t> sizes; ///< of live allocations
  std::vector<std::unique_ptr<Module>> modules;
  std::vector<std::unique_ptr<Context>> contexts; ///< primary ones, by device
  bool isInitialized = false;
  void *capturing = nullptr; ///< the captured stream
  bool isCapturing = false;
  Graph *graph = nullptr; ///< that captured operations are added to; without one they run
  bool isLost = false;    ///< after the fault of a kernel all calls fail

  Machine() {
    if (const char *text = getenv("SACCADE_DOUBLE")) {
      llvm::SmallVector<llvm::StringRef> words;
      llvm::StringRef(text).split(words, ' ', -1, /*KeepEmpty=*/false);
      for (llvm::StringRef word : words) {
        auto [name, value] = word.split('=');
        if (int64_t number = 0; value.getAsInteger(0, number))
          names[name.str()] = value.str();
        else
          settings[name.str()] = number;
      }
    }
  }
  int64_t used() const {
    int64_t sum = 0;
    for (auto [address, size] : sizes)
      sum += int64_t(size);
    return sum;
  }
};

inline Machine &machine() {
  static auto *one = new Machine; // leaked, because calls may follow static destructors
  return *one;
}

inline thread_local std::vector<Context *> current;
inline thread_local int32_t captureMode = 0;

/// Logs a call and determines its result.
class Call {
public:
  explicit Call(const char *function, const std::string &detail = "") : guard(machine().lock) {
    machine().log += function + (detail.empty() ? "" : " " + detail) + "\n";
    auto told = machine().settings.find(function);
    failure = told == machine().settings.end() ? success : Result(told->second);
  }
  /// The result that a test has set, or the error of a call before cuInit.
  Result check(bool needsInit = true) const {
    if (machine().isLost)
      return launchFailed;
    return failure ? failure : needsInit && !machine().isInitialized ? notInitialized : success;
  }
  /// The same for calls that a capture in global mode forbids.
  Result checkOutsideCapture() const {
    if (Result result = check())
      return result;
    return machine().isCapturing && captureMode != 2 ? captureUnsupported : success;
  }

private:
  std::lock_guard<std::mutex> guard;
  Result failure;
};

inline std::string streamText(void *stream) { return "stream=" + std::to_string(reinterpret_cast<uintptr_t>(stream)); }

/// Runs a kernel, or hangs or fails if the test has requested it for kernels of this name.
Result runKernel(const Kernel &kernel, const Launch &launch);

} // namespace fakecuda

#define RETURN_IF(expression)                                                                                          \
  if (Result result = (expression))                                                                                    \
  return result

#endif // SACCADE_TEST_SUPPORT_FAKECUDA_MACHINE_H
