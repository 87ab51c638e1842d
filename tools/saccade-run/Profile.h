//===- Profile.h - Where the time of a program goes ----------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_PROFILE_H
#define SACCADE_TOOLS_RUN_PROFILE_H

#include "Report.h"
#include "saccade/JIT/TaskTimes.h"

namespace saccade::run {

/// What --profile measures: repeated calls, their tasks, and the stages of the compilation.
class Profile {
public:
  /// Repeats the call. `memoryOfRun`: as for reportTime.
  static llvm::Expected<Profile> measure(const Call &call, std::optional<attn::Work> work, int64_t memoryOfRun);

  /// Prints the table.
  void print(llvm::raw_ostream &os) const;
  /// Writes the numbers as JSON, or the calls and tasks as a trace if `path` ends in .trace.json.
  llvm::Error write(llvm::StringRef path) const;

private:
  explicit Profile(const Call &call) : call(call) {}
  double percentile(double percent) const;
  void printCompilation(llvm::raw_ostream &os) const;
  void printTasks(llvm::raw_ostream &os) const;
  void writeNumbers(llvm::raw_ostream &os) const;
  void writeTrace(llvm::raw_ostream &os) const;

  const Call &call;
  std::vector<CallTime> calls;
  std::vector<double> sorted; ///< latencies in seconds
  double spent = 0;           ///< seconds of all calls
  std::vector<TaskTime> tasks;
  std::vector<ScopedTaskTimes::Launch> launches; ///< the first ones
  int64_t flops = 0, tokens = 0, bytes = 0, memoryOfRun = -1, peak = 0;
  int32_t threads = 0;
};

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_PROFILE_H
