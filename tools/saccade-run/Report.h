//===- Report.h - What a run says of itself -----------------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_REPORT_H
#define SACCADE_TOOLS_RUN_REPORT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Dialect/Attn/Analysis/CountWork.h"
#include "saccade/JIT/Executable.h"
#include "saccade/Support/CommandLine.h"
#include "saccade/Support/HostTensor.h"

namespace saccade::run {

/// A call that is ready to be made, again and again.
struct Call {
  const Executable &executable;
  const Entry &entry;
  std::vector<Buffer> inputs, outputs;
};

/// Times the call and prints latency, throughput, memory and compile time. `residentBefore` is the resident memory in
/// bytes when arguments and results were there and nothing had run; the first call must have been made since.
llvm::Error reportTime(const Call &call, std::optional<attn::Work> work, int64_t memoryOfRun);

/// Bytes resident now, and at most since the last resetPeak; 0 where the system does not say.
int64_t residentMemory();
int64_t peakMemory();
/// False where the system does not allow it.
bool resetPeak();

/// Compares results with the float64 reference: all rows where `full` or where the work is below 1 GFLOP, else 256
/// sampled rows. Prints a line a result; ExitMismatch where one is too far off.
ExitCode checkResults(mlir::func::FuncOp function, const Entry &entry, llvm::ArrayRef<HostTensor> arguments,
                      llvm::ArrayRef<HostTensor> results, bool full);

/// Prints type, shape and first values of a result.
void printResult(size_t index, const HostTensor &result);

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_REPORT_H
