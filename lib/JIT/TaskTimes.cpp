//===- TaskTimes.cpp - Times of the tasks of a call ---------------------------===//
//
// A launch passes the address of a task, so the names of all linked tasks are kept by their addresses.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/TaskTimes.h"
#include <mutex>

using namespace saccade;

namespace {
struct Names {
  std::mutex lock;
  llvm::DenseMap<void *, std::string> names;
};
} // namespace

static Names &linkedTasks() {
  // Programs may be unlinked while the process ends.
  static Names &instance = *new Names;
  return instance;
}

static void *keyOf(saccade_task task) { return reinterpret_cast<void *>(task); }

void saccade::nameTask(saccade_task task, llvm::StringRef name) {
  Names &all = linkedTasks();
  std::lock_guard guard(all.lock);
  all.names[keyOf(task)] = name.str();
}

void saccade::forgetTasks(llvm::ArrayRef<saccade_task> tasks) {
  Names &all = linkedTasks();
  std::lock_guard guard(all.lock);
  for (saccade_task task : tasks)
    all.names.erase(keyOf(task));
}

static std::string nameOf(saccade_task task) {
  Names &all = linkedTasks();
  std::lock_guard guard(all.lock);
  auto found = all.names.find(keyOf(task));
  return found == all.names.end() ? "a task without a name" : found->second;
}

static thread_local ScopedTaskTimes *currentTimes = nullptr;

ScopedTaskTimes *ScopedTaskTimes::current() { return currentTimes; }

ScopedTaskTimes::ScopedTaskTimes(size_t keptLaunches) : before(currentTimes), keptLaunches(keptLaunches) {
  currentTimes = this;
}

ScopedTaskTimes::~ScopedTaskTimes() { currentTimes = before; }

void ScopedTaskTimes::add(saccade_task task, int64_t items, Clock::time_point begin, Clock::time_point end) {
  auto [found, isNew] = indices.try_emplace(keyOf(task), tasks.size());
  // The program may be unlinked before times are read.
  if (isNew)
    tasks.push_back({nameOf(task)});
  TaskTime &time = tasks[found->second];
  ++time.launches;
  time.items += items;
  time.seconds += std::chrono::duration<double>(end - begin).count();
  if (kept.size() < keptLaunches)
    kept.push_back({found->second, begin, end});
  if (before)
    before->add(task, items, begin, end);
}
