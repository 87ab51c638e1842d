//===- WorkList.h - Distribution of items among threads -----------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CPU_WORKLIST_H
#define SACCADE_LIB_RUNTIME_CPU_WORKLIST_H

#include "Topology.h"
#include <algorithm>
#include <atomic>

namespace saccade::runtime {

/// The items 0 .. count - 1 of a parallel loop. Neighbouring items read the same data, such as the keys and values of a
/// head, so each cache domain has a contiguous range of them, in proportion to its processors. A thread takes from the
/// range of its domain, and when that is empty from the ranges of the next domains.
///
/// It takes 1 / (4 · workers) of the remaining items of a range (guided self-scheduling: Polychronopoulos and Kuck,
/// 1987). Within such a part, a task can prefetch the operands of the next item.
class [[gnu::visibility("hidden")]] WorkList {
public:
  /// `workers` threads will take items.
  WorkList(int64_t count, int64_t workers, const Topology &topology) : domains(topology.domains), workers(workers) {
    int64_t all = 0, before = 0;
    for (int d = 0; d < domains; ++d)
      all += topology.processors[d];
    for (int d = 0; d < domains; ++d) {
      int64_t here = topology.processors[d];
      ranges[d].next = share(count, before, all);
      ranges[d].end = share(count, before + here, all);
      ranges[d].workers = std::max<int64_t>(1, share(workers, here, all));
      before += here;
    }
  }

  /// Takes [begin, end) for a thread in `domain`; returns false if no items are left.
  bool take(int domain, int64_t &begin, int64_t &end) {
    for (int i = 0; i < domains; ++i) {
      Range &range = ranges[(domain + i) % domains];
      std::atomic_ref<int64_t> next(range.next);
      begin = next.load(std::memory_order_relaxed);
      while (begin < range.end) {
        // Any thread may help in the range of another domain.
        end = begin + std::max<int64_t>(1, (range.end - begin) / (4 * (i == 0 ? range.workers : workers)));
        if (next.compare_exchange_weak(begin, end, std::memory_order_relaxed))
          return true;
      }
    }
    return false;
  }

private:
  /// count · part / all, without overflow.
  static int64_t share(int64_t count, int64_t part, int64_t all) {
    return count / all * part + count % all * part / all;
  }

  struct alignas(64) Range {
    int64_t next, end, workers;
  };
  const int domains;
  const int64_t workers;
  Range ranges[Topology::maxDomains]; ///< those of domains that do not exist are not initialized
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_WORKLIST_H
