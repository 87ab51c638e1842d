//===- Profile.cpp - Where the time of a program goes -------------------------===//
//
// Implements --profile. Numbers of the trace are microseconds, as the Trace Event Format has them.
//
//===----------------------------------------------------------------------===//
#include "Profile.h"
#include "saccade/Runtime/Runtime.h"
#include "saccade/Support/OutputFile.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <cmath>

using namespace saccade;
using namespace saccade::run;

/// The most launches and calls in a trace.
static constexpr size_t keptLaunches = 100'000, keptCalls = 10'000;
static constexpr double percentiles[] = {50, 90, 99};
/// The version of the numbers in docs/guides/profile.md.
static constexpr int64_t profileVersion = 1;

llvm::Expected<Profile> Profile::measure(const Call &call, std::optional<attn::Work> work, int64_t memoryOfRun) {
  Profile profile(call);
  ScopedTaskTimes times(keptLaunches);
  llvm::Expected<std::vector<CallTime>> calls = timeCalls(call);
  if (!calls)
    return calls.takeError();
  profile.calls = std::move(*calls);
  profile.tasks = times.times().vec();
  profile.launches = times.launches().vec();
  for (const CallTime &each : profile.calls) {
    profile.sorted.push_back(each.seconds());
    profile.spent += each.seconds();
  }
  llvm::sort(profile.sorted);
  if (work)
    profile.flops = work->flops, profile.tokens = work->tokens;
  profile.bytes = tensorBytes(call);
  profile.memoryOfRun = memoryOfRun;
  profile.peak = peakMemory();
  profile.threads = saccade_threads();
  return profile;
}

/// The latency that `percent` percent of the calls do not exceed (nearest rank).
double Profile::percentile(double percent) const {
  auto rank = static_cast<size_t>(std::ceil(double(sorted.size()) * percent / 100));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void Profile::print(llvm::raw_ostream &os) const {
  double median = percentile(50);
  os << llvm::format("profile     %zu calls of @%s, %d threads\n", calls.size(), call.entry.name.c_str(), threads);
  os << llvm::format("latency     %.4f ms median, p90 %.4f, p99 %.4f (min %.4f, max %.4f)\n", median * 1e3,
                     percentile(90) * 1e3, percentile(99) * 1e3, sorted.front() * 1e3, sorted.back() * 1e3);
  printThroughput(os, flops, median);
  os << llvm::format("bytes       %.4g MB of arguments and results", double(bytes) / 1e6);
  if (flops > 0 && bytes > 0)
    os << llvm::format(", %.4g FLOP/byte", double(flops) / double(bytes));
  os << '\n';
  printTokens(os, tokens, median);
  printMemory(os, peak, memoryOfRun);
  printCompilation(os);
  printTasks(os);
}

void Profile::printCompilation(llvm::raw_ostream &os) const {
  const CompileTimes &times = call.executable.compileTimes();
  printCompileTimes(os, call.executable);
  if (times.stages.empty())
    return;
  os << "stages     ";
  for (const StageTime &stage : times.stages)
    os << (&stage == &times.stages.front() ? " " : ", ") << stage.name << llvm::format(" %.1f", stage.seconds() * 1e3);
  os << " ms\n";
}

/// Tasks with their shares of the time of calls, the longest first.
void Profile::printTasks(llvm::raw_ostream &os) const {
  std::vector<TaskTime> ordered = tasks;
  llvm::stable_sort(ordered, [](const TaskTime &a, const TaskTime &b) { return a.seconds > b.seconds; });
  double outside = spent;
  os << "  share   ms a call   us a launch   launches a call      items  task\n";
  auto count = double(calls.size());
  for (const TaskTime &task : ordered) {
    outside -= task.seconds;
    os << llvm::format("%6.1f%% %11.4f %13.2f %17.4g %10.4g  %s\n", 100 * task.seconds / spent,
                       task.seconds / count * 1e3, task.seconds / double(task.launches) * 1e6,
                       double(task.launches) / count, double(task.items) / double(task.launches), task.name.c_str());
  }
  os << llvm::format("%6.1f%% %11.4f %13s %17s %10s  outside of tasks\n", 100 * outside / spent, outside / count * 1e3,
                     "-", "-", "-");
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

void Profile::writeNumbers(llvm::raw_ostream &os) const {
  using llvm::json::Array;
  using llvm::json::Object;
  auto known = [](bool isKnown, llvm::json::Value value) { return isKnown ? std::move(value) : nullptr; };
  double median = percentile(50);
  Object latency{{"min", sorted.front()}, {"max", sorted.back()}, {"mean", spent / double(calls.size())}};
  for (double percent : percentiles)
    latency["p" + std::to_string(int(percent))] = percentile(percent);
  const CompileTimes &times = call.executable.compileTimes();
  Array stages, ofTasks;
  for (const StageTime &stage : times.stages)
    stages.push_back(Object{{"name", stage.name}, {"seconds", stage.seconds()}});
  for (const TaskTime &task : tasks)
    ofTasks.push_back(Object{{"name", task.name},
                             {"launches", task.launches},
                             {"items", task.items},
                             {"seconds", task.seconds},
                             {"share", task.seconds / spent}});
  bool hasWork = flops > 0;
  Object numbers{
      {"version", profileVersion},
      {"function", call.entry.name},
      {"threads", threads},
      {"calls", int64_t(calls.size())},
      {"seconds", spent},
      {"latency", std::move(latency)},
      {"flops", known(hasWork, flops)},
      {"flops_per_second", known(hasWork, double(flops) / median)},
      {"bytes", bytes},
      {"flops_per_byte", known(hasWork && bytes > 0, double(flops) / double(std::max<int64_t>(bytes, 1)))},
      {"tokens_per_second", known(tokens > 0, double(tokens) / median)},
      {"peak_memory", peak},
      {"call_memory", known(memoryOfRun >= 0, memoryOfRun)},
      {"compile", Object{{"pipeline", times.pipeline},
                         {"stages", std::move(stages)},
                         {"codegen", times.codegen},
                         {"link", times.link},
                         {"code_bytes", int64_t(call.executable.codeBytes())}}},
      {"tasks", std::move(ofTasks)},
  };
  os << llvm::formatv("{0:2}", llvm::json::Value(std::move(numbers))) << '\n';
}

void Profile::writeTrace(llvm::raw_ostream &os) const {
  const CompileTimes &times = call.executable.compileTimes();
  Clock::time_point origin = times.stages.empty() ? calls.front().begin : times.stages.front().begin;
  auto at = [&](Clock::time_point time) { return std::chrono::duration<double, std::micro>(time - origin).count(); };
  llvm::json::OStream json(os);
  auto event = [&](llvm::StringRef name, llvm::StringRef category, double begin, double microseconds) {
    json.object([&] {
      json.attribute("name", name);
      json.attribute("cat", category);
      json.attribute("ph", "X");
      json.attribute("ts", begin);
      json.attribute("dur", microseconds);
      json.attribute("pid", 0);
      json.attribute("tid", 0);
    });
  };
  json.object([&] {
    json.attribute("displayTimeUnit", "ms");
    json.attributeArray("traceEvents", [&] {
      double end = 0;
      for (const StageTime &stage : times.stages) {
        event(stage.name, "compilation", at(stage.begin), stage.seconds() * 1e6);
        end = at(stage.end);
      }
      // Machine code is generated after the last stage, and then linked.
      if (!times.stages.empty()) {
        event("machine code", "compilation", end, times.codegen * 1e6);
        event("link", "compilation", end + times.codegen * 1e6, times.link * 1e6);
      }
      for (const CallTime &each : llvm::ArrayRef(calls).take_front(keptCalls))
        event(call.entry.name, "call", at(each.begin), each.seconds() * 1e6);
      for (const ScopedTaskTimes::Launch &launch : launches)
        event(tasks[launch.task].name, "task", at(launch.begin), at(launch.end) - at(launch.begin));
    });
  });
  os << '\n';
}

llvm::Error Profile::write(llvm::StringRef path) const {
  return writeOutput(path, [&](llvm::raw_ostream &os) {
    path.ends_with(".trace.json") ? writeTrace(os) : writeNumbers(os);
    return llvm::Error::success();
  });
}
