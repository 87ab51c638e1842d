//===- TaskTimes.cpp - C API: times of the tasks of calls ---------------------===//
#include "saccade/JIT/TaskTimes.h"
#include "State.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <cstring>
#include <memory>

using namespace saccade;

/// The most launches that are returned one by one.
static constexpr size_t keptLaunches = 1000;

static std::vector<std::unique_ptr<ScopedTaskTimes>> &measuring() {
  static thread_local std::vector<std::unique_ptr<ScopedTaskTimes>> stack;
  return stack;
}

void saccade_task_times_begin(void) { measuring().push_back(std::make_unique<ScopedTaskTimes>(keptLaunches)); }

static void print(const ScopedTaskTimes &times, llvm::raw_ostream &os) {
  auto nanoseconds = [](ScopedTaskTimes::Clock::time_point time) {
    return int64_t(std::chrono::nanoseconds(time.time_since_epoch()).count());
  };
  llvm::json::OStream json(os);
  json.object([&] {
    json.attributeArray("tasks", [&] {
      for (const TaskTime &task : times.times())
        json.object([&] {
          json.attribute("name", task.name);
          json.attribute("launches", task.launches);
          json.attribute("items", task.items);
          json.attribute("seconds", task.seconds);
        });
    });
    json.attributeArray("launches", [&] {
      for (const ScopedTaskTimes::Launch &launch : times.launches())
        json.array([&] {
          json.value(int64_t(launch.task));
          json.value(nanoseconds(launch.begin));
          json.value(nanoseconds(launch.end));
        });
    });
  });
}

SaccadeResult saccade_task_times_end(char **text) {
  if (!text)
    return refuse(SACCADE_VALUE_ERROR, "the pointer for the text is NULL");
  *text = nullptr;
  if (measuring().empty())
    return refuse(SACCADE_VALUE_ERROR, "this thread has not called saccade_task_times_begin");
  std::string printed;
  llvm::raw_string_ostream os(printed);
  print(*measuring().back(), os);
  measuring().pop_back();
  *text = static_cast<char *>(std::malloc(printed.size() + 1));
  if (!*text)
    return refuse(SACCADE_OUT_OF_MEMORY, "no memory for the text of " + llvm::Twine(printed.size()) + " bytes");
  std::memcpy(*text, printed.c_str(), printed.size() + 1);
  return succeed();
}
