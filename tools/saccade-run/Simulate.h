//===- Simulate.h - Calls of a program on a simulated GPU ---------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_SIMULATE_H
#define SACCADE_TOOLS_RUN_SIMULATE_H

#include "Report.h"
#include <map>
#include <string>

namespace saccade::run {

/// By the name of a kernel how many CTAs of it a call had run.
using Launches = std::map<std::string, int64_t>;

/// Makes the call on the PTX simulator with the kernels of `ptx`: copies inputs there and results back. What the simulator
/// finds is an error that names the line of PTX, and so are results that depend on the order of what has none.
llvm::Error simulate(const Call &call, llvm::StringRef ptx, llvm::ArrayRef<HostTensor> inputs,
                     llvm::MutableArrayRef<HostTensor> results, Launches &launches);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_SIMULATE_H
