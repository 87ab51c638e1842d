//===- KernelCache.cpp - Programs compiled before -----------------------------===//
//
// A slot is put into the map before its program is compiled, so that the next one who asks finds somebody to wait for.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/KernelCache.h"
#include <atomic>
#include <unistd.h>

using namespace saccade;

struct KernelCache::Slot {
  enum State : int { Compiling, Done, Failed };
  /// Waited on without a condition variable, whose waiters of before a fork could never be joined after it.
  std::atomic<int> state{Compiling};
  const pid_t process = getpid();
  Program program;      ///< set before `state` is Done
  uint64_t lastUse = 0; ///< by the cache's clock; read and written with its lock held

  /// In the child of a fork nobody is left to finish what a thread of the parent was compiling.
  bool isAbandoned() const { return state.load() == Compiling && process != getpid(); }
};

std::string KernelCache::makeKey(llvm::StringRef source, llvm::StringRef name, const CompileOptions &options) {
  std::string key;
  llvm::raw_string_ostream os(key);
  // Every part goes with its length, so that no two lists of parts make one key.
  auto add = [&](llvm::StringRef part) { os << part.size() << ':' << part; };
  // Names all options: a new one does not compile until somebody thinks of it here.
  const auto &[target, device, stopAfter, insertAfter, dumpStages, lint, remarks, prepack, verifyEach] = options;
  add(target->name);
  add(device ? device->name : "");
  add(stopAfter);
  for (const auto &[stage, pipeline] : insertAfter) {
    add(stage);
    add(pipeline);
  }
  os << ';';
  add(dumpStages);
  os << lint << remarks << prepack << verifyEach;
  add(name);
  add(source);
  return key;
}

llvm::Expected<KernelCache::Program> KernelCache::get(llvm::StringRef key,
                                                      llvm::function_ref<llvm::Expected<Program>()> compile) {
  std::shared_ptr<Slot> mine;
  while (!mine) {
    std::unique_lock guard(lock);
    std::shared_ptr<Slot> &known = slots[key];
    if (!known || known->isAbandoned()) {
      known = mine = std::make_shared<Slot>();
      ++compilations;
      break;
    }
    std::shared_ptr<Slot> other = known; // clear() may take it out of the map
    guard.unlock();
    other->state.wait(Slot::Compiling);
    if (other->state.load() == Slot::Done) {
      guard.lock();
      ++hits;
      other->lastUse = ++clock;
      return other->program;
    }
  }

  llvm::Expected<Program> compiled = compile();
  std::vector<std::shared_ptr<Slot>> evicted; // code is unmapped after the lock is free
  {
    std::lock_guard guard(lock);
    auto place = slots.find(key);
    if (!compiled && place != slots.end() && place->second == mine)
      slots.erase(place);
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
    // A look at every program is nothing beside the compilation that went before.
    auto first = slots.end();
    size_t done = 0;
    for (auto place = slots.begin(); place != slots.end(); ++place)
      if (place->second->state.load() == Slot::Done) {
        ++done;
        if (first == slots.end() || place->second->lastUse < first->second->lastUse)
          first = place;
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
  llvm::StringMap<std::shared_ptr<Slot>> evicted; // code is unmapped after the lock is free
  std::lock_guard guard(lock);
  std::swap(evicted, slots);
  hits = compilations = 0;
}
