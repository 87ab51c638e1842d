//===- WorkListTest.cpp - Distribution of items among cache domains -----------===//
#include "lib/Runtime/CPU/WorkList.h"
#include "gtest/gtest.h"
#include <filesystem>
#include <fstream>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace saccade::runtime;

namespace {

/// A folder like /sys/devices/system/cpu, with the text of shared_cpu_list of some processors.
class FakeSystem {
public:
  FakeSystem() {
    folder = std::filesystem::temp_directory_path() / ("saccade-topology-" + std::to_string(getpid()));
    std::filesystem::remove_all(folder);
  }
  ~FakeSystem() { std::filesystem::remove_all(folder); }

  void add(int first, int last, const std::string &neighbours) {
    for (int i = first; i <= last; ++i) {
      std::filesystem::path cache = folder / ("cpu" + std::to_string(i)) / "cache" / "index3";
      std::filesystem::create_directories(cache);
      std::ofstream(cache / "shared_cpu_list") << neighbours << '\n';
    }
  }

  Topology read(int first, int last) const {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    for (int i = first; i <= last; ++i)
      CPU_SET(i, &allowed);
    Topology topology;
    topology.read(folder.c_str(), allowed);
    return topology;
  }

private:
  std::filesystem::path folder;
};

/// `domains` domains with `processors` each.
Topology uniform(int domains, int processors) {
  Topology topology;
  topology.domains = domains;
  for (int d = 0; d < domains; ++d)
    topology.processors[d] = processors;
  return topology;
}

TEST(TopologyTest, ProcessorsThatShareACacheAreADomain) {
  FakeSystem system;
  // Two domains of four cores with two threads each, as Linux numbers them.
  system.add(0, 3, "0-3,8-11");
  system.add(8, 11, "0-3,8-11");
  system.add(4, 7, "4-7,12-15");
  system.add(12, 15, "4-7,12-15");
  Topology topology = system.read(0, 15);
  EXPECT_EQ(2, topology.domains);
  EXPECT_EQ(8, topology.processors[0]);
  EXPECT_EQ(8, topology.processors[1]);
  EXPECT_EQ(0, topology.domainOf[3]);
  EXPECT_EQ(1, topology.domainOf[12]);
  EXPECT_EQ(0, topology.domainOf[9]);
}

TEST(TopologyTest, OnlyAllowedProcessorsCount) {
  FakeSystem system;
  system.add(0, 3, "0-3");
  system.add(4, 7, "4-7");
  Topology topology = system.read(3, 5);
  EXPECT_EQ(2, topology.domains);
  EXPECT_EQ(1, topology.processors[0]);
  EXPECT_EQ(2, topology.processors[1]);
  EXPECT_EQ(1, system.read(4, 7).domains);
}

TEST(TopologyTest, UnknownCachesAreOneDomain) {
  FakeSystem system;
  EXPECT_EQ(1, system.read(0, 3).domains);
  system.add(0, 1, "0-1");
  EXPECT_EQ(1, system.read(0, 3).domains) << "nothing is known about processors 2 and 3";
  EXPECT_EQ(1, system.read(0, 1).domains);
  system.add(0, 0, "none");
  EXPECT_EQ(1, system.read(0, 1).domains);
  for (int i = 0; i < 2 * Topology::maxDomains; ++i)
    system.add(i, i, std::to_string(i));
  EXPECT_EQ(1, system.read(0, 2 * Topology::maxDomains - 1).domains);
  EXPECT_EQ(Topology::maxDomains, system.read(0, Topology::maxDomains - 1).domains);
}

TEST(WorkListTest, EveryItemIsTakenOnce) {
  for (auto [domains, threads] : {std::pair{1, 4}, {2, 2}, {4, 64}, {8, 192}, {24, 192}})
    for (int64_t count : {1, 3, 100, 5000}) {
      Topology topology = uniform(domains, threads / domains);
      WorkList list(count, threads, topology);
      std::vector<std::atomic<int>> taken(count);
      std::vector<std::thread> running;
      for (int t = 0; t < threads; ++t)
        running.emplace_back([&, domain = t % domains] {
          for (int64_t begin, end; list.take(domain, begin, end);)
            for (int64_t i = begin; i < end; ++i)
              ++taken[i];
        });
      for (std::thread &thread : running)
        thread.join();
      EXPECT_EQ(std::vector<int>(count, 1), std::vector<int>(taken.begin(), taken.end())) << domains << ' ' << count;
    }
}

TEST(WorkListTest, OneThreadTakesTheItemsOfAllDomains) {
  Topology topology = uniform(3, 4);
  WorkList list(100, 2, topology);
  int64_t taken = 0, begin, end;
  EXPECT_TRUE(list.take(1, begin, end));
  EXPECT_EQ(33, begin); // its own range first
  taken += end - begin;
  while (list.take(1, begin, end))
    taken += end - begin;
  EXPECT_EQ(100, taken);
}

/// What a simulated run of all items costs.
struct Cost {
  double time;       ///< until the last thread is done
  int64_t headsRead; ///< heads whose keys and values a domain reads, for all domains
};

/// Simulates threads in `topology.domains` domains, which take items from a list for `listed`. An item is a chunk of
/// the queries of a head and costs as many units as the chunk has tiles of keys under a causal mask, or the same for
/// all.
Cost simulate(const Topology &topology, const Topology &listed, int heads, int chunks, bool isCausal) {
  int threads = topology.domains * topology.processors[0];
  WorkList list(int64_t(heads) * chunks, threads, listed);
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> ready;
  std::mt19937 random(7);
  for (int t = 0; t < threads; ++t)
    ready.push({0.01 * (random() % 100), t});
  std::set<std::pair<int, int>> read;
  double last = 0;
  while (!ready.empty()) {
    auto [now, thread] = ready.top();
    ready.pop();
    int domain = thread / topology.processors[0];
    int64_t begin, end;
    if (!list.take(listed.domains > 1 ? domain : 0, begin, end)) {
      last = std::max(last, now);
      continue;
    }
    for (int64_t i = begin; i < end; ++i) {
      read.insert({int(i / chunks), domain});
      double tiles = isCausal ? i % chunks + 1 : (chunks + 1) / 2.0;
      now += tiles * (0.95 + 0.001 * (random() % 100)); // cores are not equally fast
    }
    ready.push({now, thread});
  }
  return {last, int64_t(read.size())};
}

TEST(WorkListTest, DomainsReadFewerHeadsInTheSameTime) {
  Topology one;
  for (auto [domains, processors] : {std::pair{2, 32}, {8, 24}, {12, 8}})
    for (bool isCausal : {false, true}) {
      Topology topology = uniform(domains, processors);
      int heads = 32 * 8, chunks = 16;
      Cost before = simulate(topology, one, heads, chunks, isCausal);
      Cost after = simulate(topology, topology, heads, chunks, isCausal);
      EXPECT_LT(after.headsRead, 1.5 * heads);
      EXPECT_GT(before.headsRead, 1.5 * after.headsRead);
      EXPECT_LT(after.time, 1.03 * before.time);
    }
}

// A thread in the range of another domain leaves enough for all others, which come there too.
TEST(WorkListTest, ThreadsOfOneDomainFinishTogether) {
  Topology topology = uniform(12, 8);
  WorkList list(12 * 1024, 8, topology);
  int64_t begin, end;
  while (list.take(0, begin, end))
    EXPECT_LE(end - begin, begin < 1024 ? 1024 / 4 : 1024 / (4 * 8)) << begin;
}

} // namespace
