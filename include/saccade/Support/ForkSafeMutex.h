//===- ForkSafeMutex.h - A mutex that is unlocked after fork ------*- C++ -*-===//
//
// A child of fork has only the forking thread, so an ordinary mutex that another thread held would stay locked in it.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_FORKSAFEMUTEX_H
#define SACCADE_SUPPORT_FORKSAFEMUTEX_H

#include <mutex>

namespace saccade {

/// fork() waits until the mutex is free. Hold it briefly, and never two at once.
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
