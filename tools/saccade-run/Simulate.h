//===- Simulate.h - Calls on a simulated GPU ----------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_SIMULATE_H
#define SACCADE_TOOLS_RUN_SIMULATE_H

#include "Report.h"
#include <map>
#include <string>

namespace saccade::run {

/// What a call launched of a kernel.
struct Launched {
  int64_t ctas = 0;
  uint64_t instructions = 0, matrixProducts = 0; ///< executed by warps; the latter are mma.sync and wgmma.mma_async
};

/// What a call launched, by kernel name.
using Launches = std::map<std::string, Launched>;

/// The arithmetic of the simulator; see docs/guides/ptxsim.md.
enum class Arithmetic {
  Rounded,  ///< every instruction correctly rounded
  Hardware, ///< `mma` accumulates as tensor cores do, and approximate instructions are off by what the manual allows
};

/// How the simulator runs kernels.
struct Simulation {
  Arithmetic arithmetic = Arithmetic::Rounded;
  bool checksGlobalRaces = false; ///< between CTAs in global memory
  int64_t multiprocessors = 2;    ///< of the GPU, which limit the CTAs of a launch that take items from a counter
};

/// Makes the call on the PTX simulator with the kernels of `ptx`. A finding of the simulator is an error that names the
/// PTX line. Results that depend on the schedule of warps and asynchronous copies are an error as well.
llvm::Error simulate(const Call &call, llvm::StringRef ptx, const Simulation &how, llvm::ArrayRef<HostTensor> inputs,
                     llvm::MutableArrayRef<HostTensor> results, Launches &launches);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_SIMULATE_H
