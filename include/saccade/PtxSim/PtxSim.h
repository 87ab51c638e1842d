//===- PtxSim.h - Executes and checks PTX on the CPU ----------------*- C++ -*-===//
//
// A functional simulator of PTX: it parses the text that ptxas would assemble and executes a launch block by block.
// It does not model time. Behaviour that PTX leaves undefined is reported as an error with its source line.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PTXSIM_PTXSIM_H
#define SACCADE_PTXSIM_PTXSIM_H

#include "saccade/PtxSim/Device.h"
#include "saccade/PtxSim/Finding.h"
#include "llvm/ADT/StringRef.h"
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace saccade::ptxsim {

struct Code;

/// When asynchronous copies take effect. The results of a correct kernel are bitwise equal in both modes.
enum class AsyncMode {
  Early, ///< at issue: a late read of the old contents returns the new bytes
  Late,  ///< at the wait: an early read of the destination returns undefined bytes
};

/// How `mma` accumulates; see docs/guides/ptxsim.md for the bounds.
enum class MmaMode {
  Float,    ///< f32, k ascending, each sum rounded to nearest
  Exact,    ///< f64, rounded to the accumulator's type once per instruction
  Hardware, ///< aligned to the largest exponent and truncated, as measured on tensor cores of the target
};

/// Results of approximate instructions such as `ex2.approx`; see docs/guides/ptxsim.md.
enum class Approximations {
  Rounded, ///< the correctly rounded result
  Noisy,   ///< f32 results are off by up to the error bound in the PTX manual, deterministically
};

struct Launch {
  std::array<uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  uint32_t dynamicShared = 0;      ///< bytes for `.extern .shared`
  std::vector<uint8_t> parameters; ///< in the layout of the entry's `.param` list; see `Parameters`
  AsyncMode async = AsyncMode::Early;
  MmaMode mma = MmaMode::Float;
  Approximations approximations = Approximations::Rounded;
  bool checkRaces = true;                       ///< in shared memory; about a third of the run time
  bool checkGlobalRaces = false;                ///< between blocks in global memory; takes one host thread
  unsigned threads = 1;                         ///< host threads; blocks are distributed over them
  uint64_t maxInstructions = uint64_t(1) << 28; ///< per warp, before FindingKind::InstructionLimit
};

/// Parameter bytes in C layout: every value has its natural alignment.
class Parameters {
public:
  template <typename T> Parameters &add(T value) {
    bytes.resize((bytes.size() + alignof(T) - 1) / alignof(T) * alignof(T));
    const auto *raw = reinterpret_cast<const uint8_t *>(&value);
    bytes.insert(bytes.end(), raw, raw + sizeof(T));
    return *this;
  }
  std::vector<uint8_t> bytes;
};

/// Result of a launch. Counts are warp instructions.
struct Report {
  std::optional<Finding> finding; ///< the first error of the first failing block
  uint64_t instructions = 0;
  uint64_t matrixProducts = 0;                ///< mma.sync, and wgmma.mma_async, which four warps execute together
  std::map<std::string, uint64_t> byMnemonic; ///< counts by mnemonic up to the first dot: "mma", "cp"

  explicit operator bool() const { return !finding; }
};

/// A decoded PTX module whose variables are allocated on `device`.
class Program {
public:
  /// Decodes every instruction; an unsupported one is a finding even if no launch reaches it. `device` must outlive the
  /// program.
  static std::variant<Program, Finding> load(llvm::StringRef text, Device &device);

  Program(Program &&) noexcept;
  Program &operator=(Program &&) noexcept;
  ~Program();

  std::vector<std::string> entries() const;
  /// Size of an entry's parameter block, or nullopt if the entry does not exist.
  std::optional<uint32_t> parameterBytes(llvm::StringRef entry) const;
  /// Address of a module-scope `.global` or `.const` variable, or nullopt.
  std::optional<uint64_t> variable(llvm::StringRef name) const;

  /// Executes one launch until it completes or fails.
  Report run(llvm::StringRef entry, const Launch &launch) const;

private:
  explicit Program(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code;
};

} // namespace saccade::ptxsim

#endif // SACCADE_PTXSIM_PTXSIM_H
