//===- ForkSafeMutex.h - A mutex that children of a fork find free -*- C++ -*-===//
//
// A child has no other thread of its parent, so a mutex that one of them held would stay locked there for good.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_FORKSAFEMUTEX_H
#define SACCADE_SUPPORT_FORKSAFEMUTEX_H

#include <mutex>

namespace saccade {

/// A fork waits until it is free. So it is held for moments only, and by a thread that holds no other one.
class ForkSafeMutex {
public:
  ForkSafeMutex();
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex &) = delete;
  ForkSafeMutex &operator=(const ForkSafeMutex &) = delete;

  void lock() { mutex.lock(); }
  void unlock() { mutex.unlock(); }

private:
  std::mutex mutex;
};

} // namespace saccade

#endif // SACCADE_SUPPORT_FORKSAFEMUTEX_H
