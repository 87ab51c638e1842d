//===- MemoryChecks.h - Checked memory for calls -------------------*- C++ -*-===//
//
// Test runs give compiled code guarded memory (Support/GuardedMemory.h) that begins as NaN.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_JIT_MEMORYCHECKS_H
#define SACCADE_JIT_MEMORYCHECKS_H

#include "saccade/Support/GuardedMemory.h"
#include <atomic>

namespace saccade {

/// During the lifetime of the object, programs that this thread calls get guarded memory for scratch and temporaries.
/// Each piece of work begins with scratch that is NaN; work items run alone or in pairs, so that an item sees both new
/// scratch and that of its predecessor. A write after the end of scratch ends the process with a message. Calls are
/// slow.
class ScopedMemoryChecks {
public:
  explicit ScopedMemoryChecks(Guard guard);
  ~ScopedMemoryChecks();
  ScopedMemoryChecks(const ScopedMemoryChecks &) = delete;
  ScopedMemoryChecks &operator=(const ScopedMemoryChecks &) = delete;

  Guard mode() const { return guard; }
  /// The number of work items that have run, also on other threads.
  int64_t workItems() const { return items; }

private:
  friend struct CheckedLoop;
  ScopedMemoryChecks *before;
  Guard guard;
  std::atomic<int64_t> items = 0;
};

} // namespace saccade

#endif // SACCADE_JIT_MEMORYCHECKS_H
