// Generates tokens for a batch of sequences that join and leave, with a compiled program and a paged cache, without
// Python. The inputs are random numbers: a model would compute q, k and v from the tokens, and the next tokens from the
// output.
//
// usage: serve [TOKENS], 10000 by default. Prints the time of a step, which generates one token for each sequence, and
// the allocations after the warm-up. Compares the last step with attention in double.
#include "allocations.h"
#include "saccade-c/Library.hpp"
#include "step.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr int Heads = 8, KvHeads = 2, Depth = 64, PageSize = 16; // those of step.mlir
constexpr int Slots = 8, LongestPrompt = 512, MostTokens = 512, Chunk = 64;
constexpr int Entries = (LongestPrompt + MostTokens + PageSize - 1) / PageSize, Pages = Slots * Entries;

struct Sequence {
  int prompt = 0, end = 0; // tokens of the prompt, and in total
  int length = 0;          // tokens in the cache
  int pages = 0;           // entries of the page table in use
};

/// The sequences, their page tables and the pools. All memory is allocated here.
class Server {
public:
  Server()
      : q(Slots * Chunk * Heads * Depth), k(Slots * Chunk * KvHeads * Depth), v(k.size()), output(q.size()),
        kPool(std::size_t(Pages) * PageSize * KvHeads * Depth), vPool(kPool.size()), table(Slots * Entries, -1) {
    for (int page = 0; page < Pages; ++page)
      freePages.push_back(page);
    std::shuffle(freePages.begin(), freePages.end(), random);
  }

  /// Runs steps of the largest sizes, with all pages, so that the library allocates its temporary memory.
  void warmUp();
  /// Runs one step and returns its seconds. A sequence takes a chunk of its prompt, or one token.
  double step();
  /// The tokens that the last step generated.
  int generated() const { return tokens; }
  /// The largest error of the last step, compared with attention in double.
  double error() const;

private:
  void join(int slot);
  void leave(int slot);
  double call();
  float number() { return float(int(random() % 2001) - 1000) / 500; }

  std::minstd_rand random{1};
  Sequence sequences[Slots];
  int tokens = 0, rows = 1;
  std::vector<float> q, k, v, output, kPool, vPool;
  std::vector<std::int32_t> table, freePages;
  std::int32_t length[Slots], count[Slots], end[Slots];
};

void Server::join(int slot) {
  Sequence &sequence = sequences[slot] = {};
  sequence.prompt = 1 + int(random() % LongestPrompt);
  sequence.end = sequence.prompt + 1 + int(random() % MostTokens);
}

void Server::leave(int slot) {
  Sequence &sequence = sequences[slot];
  for (int entry = 0; entry < sequence.pages; ++entry) {
    freePages.push_back(table[slot * Entries + entry]);
    table[slot * Entries + entry] = -1; // not read
  }
  sequence = {};
}

void Server::warmUp() {
  std::iota(table.begin(), table.end(), 0);
  for (int size : {1, Chunk}) {
    rows = size;
    std::fill_n(count, Slots, size);
    std::fill_n(length, Slots, Entries * PageSize - size);
    std::fill_n(end, Slots, Entries * PageSize);
    call();
  }
  std::fill(table.begin(), table.end(), -1);
}

double Server::step() {
  tokens = 0, rows = 1;
  for (int slot = 0; slot < Slots; ++slot) {
    Sequence &sequence = sequences[slot];
    if (sequence.length == sequence.end) {
      leave(slot);
      if (random() % 4 == 0) // Other slots stay empty for this step: they have no new token.
        join(slot);
    }
    int left = sequence.prompt - sequence.length;
    length[slot] = sequence.length;
    count[slot] = sequence.end == 0 ? 0 : std::clamp(left, 1, Chunk);
    end[slot] = sequence.length = length[slot] + count[slot];
    for (; sequence.pages * PageSize < sequence.length; ++sequence.pages, freePages.pop_back())
      table[slot * Entries + sequence.pages] = freePages.back();
    tokens += sequence.end != 0 && sequence.length >= sequence.prompt;
    if (count[slot] > 1) // Two sizes of steps, so that their temporary memory soon has all its sizes.
      rows = Chunk;
  }
  for (std::vector<float> *inputs : {&q, &k, &v})
    for (float &x : *inputs)
      x = number();
  return call();
}

/// Calls the program and returns its seconds.
double Server::call() {
  using saccade::Tensor;
  Tensor<const float, 4> queries(q.data(), {Slots, rows, Heads, Depth}), keys(k.data(), {Slots, rows, KvHeads, Depth}),
      values(v.data(), {Slots, rows, KvHeads, Depth});
  Tensor<float, 4> keyPool(kPool.data(), {Pages, PageSize, KvHeads, Depth}),
      valuePool(vPool.data(), {Pages, PageSize, KvHeads, Depth}), result(output.data(), {Slots, rows, Heads, Depth});
  Tensor<const std::int32_t, 2> pages(table.data(), {Slots, Entries});
  Tensor<const std::int32_t, 1> at(length, {Slots}), n(count, {Slots}), ends(end, {Slots});
  auto start = std::chrono::steady_clock::now();
  saccade::call(saccade_step, queries, keys, values, keyPool, valuePool, pages, at, n, ends, result);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Server::error() const {
  double worst = 0;
  std::vector<double> weights;
  for (int slot = 0; slot < Slots; ++slot)
    for (int row = 0; row < count[slot]; ++row)
      for (int head = 0; head < Heads; ++head) {
        auto place = [&](int position) { // of a key or value in its pool
          int page = table[slot * Entries + position / PageSize], slotOfPage = position % PageSize;
          return ((std::size_t(page) * PageSize + slotOfPage) * KvHeads + head / (Heads / KvHeads)) * Depth;
        };
        std::size_t query = ((std::size_t(slot) * rows + row) * Heads + head) * Depth;
        int keys = length[slot] + row + 1;
        weights.assign(keys, 0);
        for (int key = 0; key < keys; ++key)
          for (int d = 0; d < Depth; ++d)
            weights[key] += double(q[query + d]) * kPool[place(key) + d] / std::sqrt(double(Depth));
        double top = *std::max_element(weights.begin(), weights.end()), sum = 0;
        for (double &weight : weights)
          sum += weight = std::exp(weight - top);
        for (int d = 0; d < Depth; ++d) {
          double expected = 0;
          for (int key = 0; key < keys; ++key)
            expected += weights[key] / sum * vPool[place(key) + d];
          worst = std::max(worst, std::abs(expected - output[query + d]));
        }
      }
  return worst;
}

} // namespace

int main(int argc, char **argv) {
  long tokens = argc > 1 ? std::atol(argv[1]) : 10000, generated = 0, steps = 0, before = 0;
  std::vector<double> seconds; // one for each generated token: the time of its step
  seconds.reserve(tokens + Slots);
  Server server;
  try {
    server.warmUp();
    while (generated < tokens) {
      if (generated < tokens / 4) // part of the warm-up
        before = countAllocations();
      double time = server.step();
      seconds.insert(seconds.end(), server.generated(), time);
      generated += server.generated();
      ++steps;
    }
  } catch (const saccade::Error &error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  long allocations = countAllocations() - before;
  std::sort(seconds.begin(), seconds.end());
  std::cout << generated << " tokens in " << steps << " steps: p50 " << seconds[seconds.size() / 2] * 1e6 << " us, p99 "
            << seconds[seconds.size() * 99 / 100] * 1e6 << " us for a token of each sequence\n"
            << allocations << " allocations after the warm-up\n";
  double error = server.error();
  std::cout << "largest error of the last step: " << error << (error < 1e-5 ? ", agrees\n" : ", wrong\n");
  return error < 1e-5 ? 0 : 1;
}
