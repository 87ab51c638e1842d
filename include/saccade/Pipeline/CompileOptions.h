//===- CompileOptions.h - What a user may ask of a compilation ---*- C++ -*-===//
//
// Options travel one way: driver or front frontend -> CompileOptions -> pass options.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_PIPELINE_COMPILEOPTIONS_H
#define SACCADE_PIPELINE_COMPILEOPTIONS_H

#include "saccade/Support/CPUTarget.h"
#include "saccade/Support/GPUTarget.h"
#include <string>
#include <utility>
#include <vector>

namespace saccade {

struct CompileOptions {
  /// The CPU target to generate code for; never null.
  const CPUTarget *target = lookupCPUTarget("host");
  /// The GPU that runs the tasks; null where the CPU does.
  const GPUTarget *device = nullptr;
  /// The last stage to run, by its name in `stageNames()`; empty for all.
  std::string stopAfter;
  /// Textual pass pipelines to run after a stage: (stage, pipeline).
  std::vector<std::pair<std::string, std::string>> insertAfter;
  /// A folder that gets the module after every stage, as 1-import.mlir and so on; empty for none.
  std::string dumpStages;
  /// Whether to warn about likely mistakes in the program before the first stage.
  bool lint = false;
  /// Whether each softmax that did not become attention says why, in a remark.
  bool remarks = false;
  /// Whether what an entry computes of constant arguments alone becomes an entry of its own, on a CPU.
  bool prepack = false;
  /// Whether the IR is verified after every pass.
  bool verifyEach = true;
};

} // namespace saccade

#endif // SACCADE_PIPELINE_COMPILEOPTIONS_H
