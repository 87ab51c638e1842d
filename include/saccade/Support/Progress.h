//===- Progress.h - Progress messages of slow activities ----------*- C++ -*-===//
#ifndef SACCADE_SUPPORT_PROGRESS_H
#define SACCADE_SUPPORT_PROGRESS_H

#include "llvm/ADT/StringRef.h"
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace saccade {

/// Prints the name of an activity to stderr if it takes longer than a second: with the elapsed seconds on a terminal,
/// as one line otherwise. The activity ends with the lifetime of the object.
class Progress {
public:
  explicit Progress(llvm::StringRef activity);
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

private:
  void watch();

  std::string activity;
  std::mutex lock;
  std::condition_variable ended;
  bool isDone = false;
  std::thread watcher;
};

} // namespace saccade

#endif // SACCADE_SUPPORT_PROGRESS_H
