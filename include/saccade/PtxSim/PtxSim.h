//===- PtxSim.h - Executes PTX on the CPU, and checks it ------------*- C++ -*-===//
//
// A functional simulator of the PTX instruction set: it takes the text that ptxas assembles and executes a launch,
// block by block. It is no model of time. What PTX leaves undefined is an error that names the line.
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

/// When asynchronous copies happen. A correct kernel gives the same bits in both.
enum class AsyncMode {
  Early, ///< at their issue: whoever still reads the destination reads the new bytes
  Late,  ///< when somebody waits for them: whoever reads too early reads undefined bytes
};

/// How `mma` accumulates; see docs/ptxsim.md for the bounds.
enum class MmaMode {
  Float,    ///< f32, k ascending, each sum rounded to nearest
  Exact,    ///< f64, rounded to the accumulator's type once an instruction
  Hardware, ///< aligned to the largest exponent and truncated, as tensor cores of the program's target were measured
};

/// What `ex2.approx` and its like give; see docs/ptxsim.md.
enum class Approximations {
  Rounded, ///< the correctly rounded result
  Noisy,   ///< off by up to what the PTX manual allows, in f32; the same in every run
};

struct Launch {
  std::array<uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  uint32_t dynamicShared = 0;      ///< bytes for `.extern .shared`
  std::vector<uint8_t> parameters; ///< laid out as the entry's `.param` list is; see `Parameters`
  AsyncMode async = AsyncMode::Early;
  MmaMode mma = MmaMode::Float;
  Approximations approximations = Approximations::Rounded;
  bool checkRaces = true;                       ///< shared memory; about a third of the time
  unsigned threads = 1;                         ///< of the host; blocks are dealt out to them
  uint64_t maxInstructions = uint64_t(1) << 28; ///< of one warp, before the launch counts as endless
};

/// Parameter bytes with C's layout: every value aligned to its size.
class Parameters {
public:
  template <typename T> Parameters &add(T value) {
    bytes.resize((bytes.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T));
    const auto *raw = reinterpret_cast<const uint8_t *>(&value);
    bytes.insert(bytes.end(), raw, raw + sizeof(T));
    return *this;
  }
  std::vector<uint8_t> bytes;
};

/// What a launch did. Counts are of warp instructions.
struct Report {
  std::optional<Finding> finding; ///< the first error of the first block that has one
  uint64_t instructions = 0;
  std::map<std::string, uint64_t> byMnemonic; ///< "mma" → how often, "cp.async" under "cp"

  explicit operator bool() const { return !finding; }
};

/// A PTX module, decoded and with its variables in `device`'s memory.
class Program {
public:
  /// Every instruction is decoded here: what is unknown is a finding, even where no launch would reach it.
  /// `device` must outlive the program.
  static std::variant<Program, Finding> load(llvm::StringRef text, Device &device);

  Program(Program &&);
  Program &operator=(Program &&);
  ~Program();

  std::vector<std::string> entries() const;
  /// Size of the parameter block of an entry; nothing where there is no such entry.
  std::optional<uint32_t> parameterBytes(llvm::StringRef entry) const;
  /// Address of a module-scope `.global` or `.const` variable; nothing where there is none.
  std::optional<uint64_t> variable(llvm::StringRef name) const;

  /// Executes one launch to its end, or to the first error.
  Report run(llvm::StringRef entry, const Launch &launch) const;

private:
  explicit Program(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code;
};

} // namespace saccade::ptxsim

#endif // SACCADE_PTXSIM_PTXSIM_H
