//===- Progress.cpp - Progress messages of slow activities --------------------===//
//
// A separate thread prints the messages, so that the activity itself does not have to report progress.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/Progress.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <unistd.h>

using namespace saccade;

Progress::Progress(llvm::StringRef activity) : activity(activity), watcher([this] { watch(); }) {}

Progress::~Progress() {
  {
    std::lock_guard guard(lock);
    isDone = true;
  }
  ended.notify_one();
  watcher.join();
}

void Progress::watch() {
  const bool isTerminal = isatty(STDERR_FILENO);
  std::unique_lock guard(lock);
  int seconds = 1;
  for (; !ended.wait_for(guard, std::chrono::seconds(1), [this] { return isDone; }); ++seconds) {
    if (isTerminal)
      llvm::errs() << '\r' << activity << " ... " << seconds << " s";
    else if (seconds == 1)
      llvm::errs() << activity << " ...\n";
    if (isTerminal)
      llvm::errs().flush();
  }
  if (isTerminal && seconds > 1)
    llvm::errs() << "\r\x1b[K"; // clears the line
}
