//===- Progress.h - Says what takes long --------------------------*- C++ -*-===//
#ifndef SACCADE_SUPPORT_PROGRESS_H
#define SACCADE_SUPPORT_PROGRESS_H

#include "llvm/ADT/StringRef.h"
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace saccade {

/// Names an activity on stderr if it takes longer than a second: with the seconds passed on a terminal, as one line
/// elsewhere. Ends with its scope.
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
