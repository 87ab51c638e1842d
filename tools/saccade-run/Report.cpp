//===- Report.cpp - Timing and output of results ------------------------------===//
//
// Implements --time. Latencies are medians over one second of calls, because the first calls run with cold caches and
// sleeping threads.
//
//===----------------------------------------------------------------------===//
#include "Report.h"
#include "saccade/Runtime/Runtime.h"
#include "saccade/Support/Median.h"
#include "saccade/Support/Progress.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include <algorithm>

using namespace saccade;
using namespace saccade::run;

/// The value of a line of /proc/self/status, in bytes.
static int64_t processStatus(llvm::StringRef key) {
  auto file = llvm::MemoryBuffer::getFileAsStream("/proc/self/status");
  if (!file)
    return 0;
  llvm::StringRef text = (*file)->getBuffer();
  size_t at = text.find(key);
  int64_t kilobytes = 0;
  if (at == llvm::StringRef::npos || text.drop_front(at + key.size()).ltrim().consumeInteger(10, kilobytes))
    return 0;
  return kilobytes * 1024;
}

int64_t run::residentMemory() { return processStatus("VmRSS:"); }
int64_t run::peakMemory() { return processStatus("VmHWM:"); }

bool run::resetPeak() {
  std::error_code error;
  llvm::raw_fd_ostream os("/proc/self/clear_refs", error);
  if (error)
    return false;
  os << "5";
  os.close();
  bool isDone = !os.has_error();
  os.clear_error();
  return isDone;
}

std::optional<attn::Work> run::countWork(mlir::func::FuncOp function, llvm::ArrayRef<HostTensor> arguments) {
  std::vector<attn::WorkArgument> known;
  for (const HostTensor &argument : arguments) {
    double value = argument.shape().empty() ? readElement(argument.type(), argument.data()) : 0;
    known.push_back({llvm::to_vector<4>(argument.shape()), static_cast<int64_t>(value)});
  }
  return attn::countWork(function, known);
}

llvm::Expected<std::vector<CallTime>> run::timeCalls(const Call &call) {
  constexpr double targetSeconds = 1;
  constexpr size_t minCalls = 5, maxCalls = 10000;
  std::vector<CallTime> times;
  Progress progress("timing");
  double spent = 0;
  while (times.size() < minCalls || (spent < targetSeconds && times.size() < maxCalls)) {
    Clock::time_point begin = Clock::now();
    if (llvm::Error error = call.executable.call(call.entry, call.inputs, call.outputs))
      return error;
    times.push_back({begin, Clock::now()});
    spent += times.back().seconds();
  }
  return times;
}

int64_t run::tensorBytes(const Call &call) {
  int64_t total = 0;
  auto types = llvm::concat<const ValueType>(call.entry.arguments, call.entry.results);
  for (auto [type, buffer] : llvm::zip(types, llvm::concat<const Buffer>(call.inputs, call.outputs))) {
    if (!type.isTensor)
      continue;
    int64_t bytes = elementBytes(type.element);
    for (int64_t size : buffer.sizes)
      bytes *= size;
    total += bytes;
  }
  return total;
}

void run::printThroughput(llvm::raw_ostream &os, int64_t flops, double median) {
  if (flops > 0)
    os << llvm::format("throughput  %.2f GFLOP/s (%.4g GFLOP a call, masked pairs counted)\n",
                       double(flops) / median / 1e9, double(flops) / 1e9);
}

void run::printTokens(llvm::raw_ostream &os, int64_t tokens, double median) {
  if (tokens > 0)
    os << llvm::format("tokens      %.4g tokens/s (%lld a call)\n", double(tokens) / median,
                       static_cast<long long>(tokens));
}

void run::printMemory(llvm::raw_ostream &os, int64_t peak, int64_t memoryOfRun) {
  constexpr double mebibyte = 1 << 20;
  os << llvm::format("memory      %.1f MiB peak", double(peak) / mebibyte);
  if (memoryOfRun >= 0)
    os << llvm::format(", %.2f MiB of it beyond program, arguments and results", double(memoryOfRun) / mebibyte);
  os << '\n';
}

void run::printCompileTimes(llvm::raw_ostream &os, const Executable &executable) {
  const CompileTimes &times = executable.compileTimes();
  os << llvm::format("compile     %.1f ms (pipeline %.1f, code %.1f, link %.1f), %.1f KiB of code\n",
                     times.total() * 1e3, times.pipeline * 1e3, times.codegen * 1e3, times.link * 1e3,
                     double(executable.codeBytes()) / 1024);
}

llvm::Error run::reportTime(const Call &call, std::optional<attn::Work> work, int64_t memoryOfRun) {
  llvm::Expected<std::vector<CallTime>> times = timeCalls(call);
  if (!times)
    return times.takeError();
  std::vector<double> seconds;
  for (const CallTime &time : *times)
    seconds.push_back(time.seconds());
  size_t calls = seconds.size();
  double median = medianOf(seconds);
  auto [least, greatest] = std::minmax_element(seconds.begin(), seconds.end());

  llvm::raw_ostream &os = llvm::outs();
  os << llvm::format("latency     %.4f ms median of %zu calls (min %.4f, max %.4f), %d threads\n", median * 1e3, calls,
                     *least * 1e3, *greatest * 1e3, saccade_threads());
  if (work) {
    printThroughput(os, work->flops, median);
    printTokens(os, work->tokens, median);
  }
  printMemory(os, peakMemory(), memoryOfRun);
  printCompileTimes(os, call.executable);
  return llvm::Error::success();
}

std::string run::describePlace(mlir::Location location) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto name = location->findInstanceOf<mlir::NameLoc>())
    os << ' ' << name.getName();
  if (auto place = location->findInstanceOf<mlir::FileLineColLoc>())
    os << " at " << place.getFilename().getValue() << ':' << place.getLine() << ':' << place.getColumn();
  return text;
}

void run::printResult(size_t index, const HostTensor &result) {
  llvm::raw_ostream &os = llvm::outs();
  os << "result #" << index << ": ";
  for (int64_t extent : result.shape())
    os << extent << 'x';
  os << elementTypeName(result.type()) << " [";
  constexpr int64_t shown = 8;
  int64_t i = 0;
  result.forEach([&](char *element) {
    if (i < shown)
      os << (i ? ", " : "") << llvm::format("%.6g", readElement(result.type(), element));
    ++i;
  });
  os << (result.size() > shown ? ", ...]\n" : "]\n");
}
