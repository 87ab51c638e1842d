//===- Topology.cpp - Processors that share a cache ---------------------------===//
#include "Topology.h"
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

using namespace saccade::runtime;

/// Reads the processors that share the L3 cache of `processor`; returns whether Linux reports them.
static bool readNeighbours(const char *root, int processor, cpu_set_t &neighbours) {
  char path[256], text[4096];
  snprintf(path, sizeof(path), "%s/cpu%d/cache/index3/shared_cpu_list", root, processor);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  ssize_t length = ::read(file, text, sizeof(text) - 1);
  close(file);
  CPU_ZERO(&neighbours);
  // Ranges such as "0-7,96-103".
  text[length < 0 ? 0 : length] = 0;
  for (const char *at = text; *at >= '0' && *at <= '9'; at += *at == ',') {
    auto number = [&] {
      int value = 0;
      for (; *at >= '0' && *at <= '9'; ++at)
        value = std::min(value * 10 + (*at - '0'), CPU_SETSIZE);
      return value;
    };
    int first = number(), last = first;
    if (*at == '-')
      ++at, last = number();
    for (int i = first; i <= last && i < CPU_SETSIZE; ++i)
      CPU_SET(i, &neighbours);
  }
  return CPU_ISSET(processor, &neighbours);
}

void Topology::read(const char *root, const cpu_set_t &allowed) {
  *this = Topology();
  Topology found;
  found.domains = 0;
  cpu_set_t left = allowed, neighbours;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &left))
      continue;
    if (found.domains == maxDomains || !readNeighbours(root, i, neighbours))
      return;
    int count = 0;
    for (int j = i; j < CPU_SETSIZE; ++j)
      if (CPU_ISSET(j, &neighbours) && CPU_ISSET(j, &left)) {
        CPU_CLR(j, &left);
        found.domainOf[j] = static_cast<uint8_t>(found.domains);
        ++count;
      }
    found.processors[found.domains++] = count;
  }
  if (found.domains > 0)
    *this = found;
}

int Topology::current() const {
  int processor = domains > 1 ? sched_getcpu() : 0;
  return processor >= 0 && processor < CPU_SETSIZE ? domainOf[processor] : 0;
}

const Topology &Topology::get() {
  enum State { Unknown, Reading, Known };
  static Topology topology;
  static const Topology single;
  static std::atomic<State> state{Unknown};
  if (state.load(std::memory_order_acquire) == Known)
    return topology;
  State expected = Unknown;
  if (!state.compare_exchange_strong(expected, Reading, std::memory_order_acquire))
    return expected == Known ? topology : single; // another thread reads it
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    topology.read("/sys/devices/system/cpu", allowed);
  state.store(Known, std::memory_order_release);
  return topology;
}
