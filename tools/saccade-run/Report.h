//===- Report.h - Timing, checks and output of results ------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_REPORT_H
#define SACCADE_TOOLS_RUN_REPORT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Dialect/Attn/Analysis/CountWork.h"
#include "saccade/JIT/Executable.h"
#include "saccade/Support/CommandLine.h"
#include "saccade/Support/HostTensor.h"
#include <chrono>

namespace saccade::run {

/// A call with all its arguments, which may be repeated.
struct Call {
  const Executable &executable;
  const Entry &entry;
  std::vector<Buffer> inputs, outputs;
  /// For each result of the program, its place among inputs and outputs: an input may be updated in place.
  llvm::SmallVector<size_t> results;

  /// The input or output number `place`.
  Buffer &buffer(size_t place) { return place < inputs.size() ? inputs[place] : outputs[place - inputs.size()]; }
};

/// The operations of a call of `function`; nullopt if they are not known.
std::optional<attn::Work> countWork(mlir::func::FuncOp function, llvm::ArrayRef<HostTensor> arguments);

using Clock = std::chrono::steady_clock;

/// When a repeated call began and ended.
struct CallTime {
  Clock::time_point begin, end;
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

/// Repeats the call for a second: at least 5 and at most 10,000 times.
llvm::Expected<std::vector<CallTime>> timeCalls(const Call &call);

/// The size of a call's tensors in bytes, those that are updated in place once.
int64_t tensorBytes(const Call &call);

/// Print lines that --time and --profile share: FLOP/s for a call of `median` seconds, tokens/s, memory, and the times
/// of the compilation. Nothing for numbers that are 0. `peak`, `memoryOfRun`: in bytes, as for reportTime.
void printThroughput(llvm::raw_ostream &os, int64_t flops, double median);
void printTokens(llvm::raw_ostream &os, int64_t tokens, double median);
void printMemory(llvm::raw_ostream &os, int64_t peak, int64_t memoryOfRun);
void printCompileTimes(llvm::raw_ostream &os, const Executable &executable);

/// Times the call and prints latency, throughput, memory and compile time. `memoryOfRun` is the peak resident memory of
/// the first call in bytes, beyond program, arguments and results; negative if unknown.
llvm::Error reportTime(const Call &call, std::optional<attn::Work> work, int64_t memoryOfRun);

/// The resident memory in bytes, now and the peak since the last resetPeak; 0 if unknown.
int64_t residentMemory();
int64_t peakMemory();
/// Returns false if the system does not allow it.
bool resetPeak();

/// Compares results with the float64 reference: all rows if `full`, else 256 sampled rows. Prints a line per result.
/// Returns ExitMismatch if an error exceeds the tolerance. `onGPU`: scores of 16-bit queries and keys may be
/// those of tensor cores, which truncate, and functions in f32 those of approximate instructions.
ExitCode checkResults(mlir::func::FuncOp function, const Entry &entry, llvm::ArrayRef<HostTensor> arguments,
                      llvm::ArrayRef<HostTensor> results, bool full, bool onGPU);

/// ` "name" at file:line:column`, as far as `location` has them.
std::string describePlace(mlir::Location location);

/// Prints the shape, type and first values of a result.
void printResult(size_t index, const HostTensor &result);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_REPORT_H
