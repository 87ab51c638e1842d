//===- CompileOptions.h - Options of a compilation ----------------*- C++ -*-===//
//
// Set by a driver or the API; `buildCompilePipeline` converts them to pass options.
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

/// Passes, or a script, that a user inserts into the pipeline.
struct Insertion {
  std::string point;       ///< one of `insertionPoints()`
  std::string passes;      ///< a textual pass pipeline; empty for a script
  bool isBefore = false;   ///< run before the first pass of the point, not after the last
  std::string script = {}; ///< the file of a script of the transform dialect (`attn-apply-script`)
};

struct CompileOptions {
  /// The CPU target to generate code for; never null.
  const CPUTarget *target = lookupCPUTarget("host");
  /// The GPU that runs the tasks; null to run them on the CPU.
  const GPUTarget *device = nullptr;
  /// The first stage to run, a name of `stageNames()`; empty for all. `runPipeline` sets it for a program that has
  /// passed some stages.
  std::string start;
  /// The last stage to run; empty for all.
  std::string stopAfter;
  /// Passes to insert, in the order in which those of one point run.
  std::vector<Insertion> insertions;
  /// The plugins that were loaded for this compilation; a cache keeps its result apart from others.
  std::vector<std::string> plugins;
  /// A file with tile sizes for classes of attention (`attn-apply-schedules`); empty for none.
  std::string scheduleTable;
  /// The directory to which the module is written after every stage that runs (1-import.mlir, ...); empty for none.
  std::string dumpStages;
  /// Whether a page with all stages, stages.html, is written to that directory, too.
  bool dumpPage = false;
  /// Whether to warn about likely mistakes in the program.
  bool lint = false;
  /// Whether to emit a remark for each softmax that was not raised to attention.
  bool remarks = false;
  /// Whether computation on constant arguments only (prepacking of weights) becomes a separate entry; CPU only.
  bool prepack = false;
  /// Whether to verify the IR after every pass, not only after every stage. It takes 14 % of the instructions.
  bool verifyEach = false;
};

} // namespace saccade

#endif // SACCADE_PIPELINE_COMPILEOPTIONS_H
