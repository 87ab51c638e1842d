//===- Topology.h - Processors that share a cache -----------------*- C++ -*-===//
#ifndef SACCADE_LIB_RUNTIME_CPU_TOPOLOGY_H
#define SACCADE_LIB_RUNTIME_CPU_TOPOLOGY_H

#include <cstdint>
#include <sched.h>

namespace saccade::runtime {

/// The cache domains of a machine: sets of processors that share an L3 cache. Without caches of level 3, and where
/// Linux does not report them, all processors are one domain.
struct [[gnu::visibility("hidden")]] Topology {
  static constexpr int maxDomains = 64;

  int domains = 1;
  int processors[maxDomains] = {1}; ///< in each domain, those of `allowed`
  uint8_t domainOf[CPU_SETSIZE] = {};

  /// Reads cpuN/cache/index3/shared_cpu_list below `root`, one file for each domain. Processors that are not in
  /// `allowed` belong to domain 0. More than `maxDomains` domains count as one.
  void read(const char *root, const cpu_set_t &allowed);

  /// The domain of the processor on which the caller runs. It may run on another one afterwards.
  int current() const;

  /// Of the processors that this process could use at the first call.
  static const Topology &get();
};

} // namespace saccade::runtime

#endif // SACCADE_LIB_RUNTIME_CPU_TOPOLOGY_H
