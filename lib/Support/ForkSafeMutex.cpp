//===- ForkSafeMutex.cpp - A mutex that is unlocked after fork ----------------===//
//
// pthread_atfork handlers lock all mutexes before a fork, and unlock them in the parent and the child.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/ForkSafeMutex.h"
#include <algorithm>
#include <pthread.h>
#include <vector>

using namespace saccade;

namespace {
struct Registry {
  std::mutex mutex;
  std::vector<ForkSafeMutex *> members;
};
} // namespace

/// Never destroyed, because a process may fork during its exit.
static Registry &registry() {
  static auto *only = [] {
    auto release = [] {
      for (ForkSafeMutex *member : registry().members)
        member->unlock();
      registry().mutex.unlock();
    };
    pthread_atfork(
        [] {
          registry().mutex.lock();
          for (ForkSafeMutex *member : registry().members)
            member->lock();
        },
        release, release);
    return new Registry;
  }();
  return *only;
}

ForkSafeMutex::ForkSafeMutex() {
  std::lock_guard guard(registry().mutex);
  registry().members.push_back(this);
}

ForkSafeMutex::~ForkSafeMutex() {
  std::lock_guard guard(registry().mutex);
  std::vector<ForkSafeMutex *> &members = registry().members;
  members.erase(std::find(members.begin(), members.end(), this));
}
