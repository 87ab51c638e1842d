//===- TaskTimes.h - Times of the tasks of a call ------------------*- C++ -*-===//
//
// Measures how long the parallel loops of programs take that are linked into this process. The code of a program is the
// same: its runtime functions measure.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_TASKTIMES_H
#define SACCADE_JIT_TASKTIMES_H

#include "saccade/Runtime/Runtime.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringRef.h"
#include <chrono>
#include <string>
#include <vector>

namespace saccade {

/// What the name of a function adds to that of the task that it runs (lib/Codegen/CPU/Launch.h).
inline constexpr llvm::StringLiteral taskRunnerSuffix = "_run";

/// All launches of a task.
struct TaskTime {
  std::string name;                ///< "f.matmul_bias_gelu"
  int64_t launches = 0, items = 0; ///< items: calls of the body of the parallel loop
  double seconds = 0;              ///< from the start of a loop until all its items are done
};

/// During the lifetime of the object, parallel loops of programs that this thread calls are timed. Objects of one
/// thread may be nested: each of them measures.
class ScopedTaskTimes {
public:
  using Clock = std::chrono::steady_clock;
  /// A launch, for traces.
  struct Launch {
    size_t task; ///< index in times()
    Clock::time_point begin, end;
  };

  /// Keeps the first `keptLaunches` launches.
  explicit ScopedTaskTimes(size_t keptLaunches = 0);
  ~ScopedTaskTimes();
  ScopedTaskTimes(const ScopedTaskTimes &) = delete;
  ScopedTaskTimes &operator=(const ScopedTaskTimes &) = delete;

  /// That of this thread, or null.
  static ScopedTaskTimes *current();
  void add(saccade_task task, int64_t items, Clock::time_point begin, Clock::time_point end);

  /// In the order of their first launch.
  llvm::ArrayRef<TaskTime> times() const { return tasks; }
  llvm::ArrayRef<Launch> launches() const { return kept; }

private:
  ScopedTaskTimes *before;
  size_t keptLaunches;
  std::vector<TaskTime> tasks;
  llvm::DenseMap<void *, size_t> indices;
  std::vector<Launch> kept;
};

/// Registers the name of a task of a linked program, until forgetTasks.
void nameTask(saccade_task task, llvm::StringRef name);
void forgetTasks(llvm::ArrayRef<saccade_task> tasks);

} // namespace saccade

#endif // SACCADE_JIT_TASKTIMES_H
