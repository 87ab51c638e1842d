//===- KernelCache.cpp - In-memory cache of compiled programs -----------------===//
//
// A slot is added to the map before its program is compiled, so that concurrent requests for it can wait.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/KernelCache.h"
#include <atomic>
#include <unistd.h>

using namespace saccade;

struct KernelCache::Slot {
  enum State : int { Compiling, Done, Failed };
  /// An atomic and not a condition variable, whose state would include waiters of the parent after a fork.
  std::atomic<int> state{Compiling};
  const pid_t process = getpid();
  Program program;      ///< set before `state` is Done
  uint64_t lastUse = 0; ///< by the cache's clock; guarded by the cache's lock

  /// Whether this is the child of a fork and a thread of the parent was compiling the program.
  bool isAbandoned() const { return state.load() == Compiling && process != getpid(); }
};

std::string KernelCache::makeKey(llvm::StringRef source, llvm::StringRef name, const CompileOptions &options) {
  std::string key;
  llvm::raw_string_ostream os(key);
  // Each part is preceded by its length, so that keys are unique.
  auto add = [&](llvm::StringRef part) { os << part.size() << ':' << part; };
  // The binding names all options, so that a new option fails to compile until it is added here.
  const auto &[target, device, start, stopAfter, insertions, plugins, scheduleTable, dumpStages, dumpPage, lint,
               remarks, prepack, verifyEach] = options;
  add(target->name);
  add(device ? device->name : "");
  add(start);
  add(stopAfter);
  for (const auto &[point, passes, isBefore, script] : insertions) {
    add(point);
    add(passes);
    add(script);
    add(contentIdentity(script));
    os << isBefore;
  }
  os << ';';
  for (const std::string &plugin : plugins)
    add(plugin);
  os << ';';
  add(scheduleTable);
  add(contentIdentity(scheduleTable));
  add(dumpStages);
  os << dumpPage << lint << remarks << prepack << verifyEach;
  add(name);
  add(source);
  return key;
}

llvm::Expected<KernelCache::Program> KernelCache::get(llvm::StringRef key, Load load, Compile compile) {
  std::shared_ptr<Slot> mine;
  while (!mine) {
    std::unique_lock guard(lock);
    std::shared_ptr<Slot> &known = slots[key];
    if (!known || known->isAbandoned()) {
      known = mine = std::make_shared<Slot>();
      break;
    }
    std::shared_ptr<Slot> other = known; // clear() may remove it from the map
    guard.unlock();
    other->state.wait(Slot::Compiling);
    if (other->state.load() == Slot::Done) {
      guard.lock();
      ++hits;
      other->lastUse = ++clock;
      return other->program;
    }
  }

  Program loaded = load();
  if (!loaded) {
    std::lock_guard guard(lock);
    ++compilations;
  }
  llvm::Expected<Program> compiled = loaded ? std::move(loaded) : compile();
  std::vector<std::shared_ptr<Slot>> evicted; // code is unmapped after the lock is released
  {
    std::lock_guard guard(lock);
    auto slot = slots.find(key);
    if (!compiled && slot != slots.end() && slot->second == mine)
      slots.erase(slot);
    if (compiled) {
      mine->program = *compiled;
      mine->lastUse = ++clock;
    }
    mine->state.store(compiled ? Slot::Done : Slot::Failed);
    evicted = evictLRU();
  }
  mine->state.notify_all();
  return compiled;
}

std::vector<std::shared_ptr<KernelCache::Slot>> KernelCache::evictLRU() {
  std::vector<std::shared_ptr<Slot>> oldest;
  while (true) {
    // A linear search costs little compared to the preceding compilation.
    auto first = slots.end();
    size_t done = 0;
    for (auto slot = slots.begin(); slot != slots.end(); ++slot)
      if (slot->second->state.load() == Slot::Done) {
        ++done;
        if (first == slots.end() || slot->second->lastUse < first->second->lastUse)
          first = slot;
      }
    if (done <= std::max<size_t>(limit, 1))
      return oldest;
    oldest.push_back(std::move(first->second));
    slots.erase(first);
  }
}

KernelCache::Info KernelCache::info() const {
  std::lock_guard guard(lock);
  Info info{hits, compilations, 0};
  for (const auto &slot : slots)
    info.modules += slot.second->state.load() == Slot::Done;
  return info;
}

void KernelCache::clear() {
  llvm::StringMap<std::shared_ptr<Slot>> evicted; // code is unmapped after the lock is released
  std::lock_guard guard(lock);
  std::swap(evicted, slots);
  hits = compilations = 0;
}
