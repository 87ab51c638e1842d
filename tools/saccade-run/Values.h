//===- Values.h - The tensors that a program computes ----------------*- C++ -*-===//
#ifndef SACCADE_TOOLS_RUN_VALUES_H
#define SACCADE_TOOLS_RUN_VALUES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "saccade/Support/CommandLine.h"
#include "saccade/Support/HostTensor.h"
#include "llvm/ADT/DenseMap.h"

namespace saccade::run {

/// Inlines calls, raises attention and makes the tensors that public functions compute further results of them. With
/// `fused`, ops are fused before.
llvm::LogicalResult returnIntermediates(mlir::ModuleOp module, bool fused);

/// Numbers about the elements of a tensor of floats. Mean, deviation and extremes are those of finite elements.
struct Statistics {
  int64_t size = 0, nans = 0, infinities = 0;
  double mean = 0, deviation = 0, min = 0, max = 0;
  int64_t firstBad = -1; ///< the number of the first NaN or infinity in row-major order
  double bad = 0;        ///< this element

  /// Those of the elements of `tensor` whose row-major number `isChosen`, all if it is null.
  explicit Statistics(const HostTensor &tensor, llvm::function_ref<bool(int64_t)> isChosen = nullptr);
  bool hasFinite() const { return size > nans + infinities; }
};

/// The values of a function whose intermediate tensors are results (`attn-return-intermediates`), after a call.
class Values {
public:
  Values(mlir::func::FuncOp function, llvm::ArrayRef<HostTensor> arguments, llvm::ArrayRef<HostTensor> results);

  /// Prints a line for each argument and each tensor that an op computes.
  void printStatistics();
  /// Prints the op that makes the first NaN or infinity, and its operands there. ExitNonFinite if there is one.
  ExitCode findNonFinite();

private:
  using Test = bool (*)(double);
  const HostTensor *lookup(mlir::Value value) const { return tensors.lookup(value); }
  /// Whether the elements of a value, as far as they are known, pass a test.
  bool has(mlir::Value value, Test test) const;
  bool operandsHave(mlir::Operation &op, Test test) const;
  /// The first element that `op` makes: a NaN without NaN in its operands, or an infinity without either in them.
  struct Bad {
    mlir::Value value;
    llvm::SmallVector<int64_t> position;
    double number;
  };
  std::optional<Bad> madeBy(mlir::Operation &op) const;
  /// The indices of some elements of a tensor; a dimension that is null has all of them.
  using Place = llvm::SmallVector<std::optional<int64_t>>;
  void printOperands(mlir::Operation &op, const Bad &bad) const;
  std::string describe(mlir::Value operand, Place place) const;
  std::string nameOf(mlir::Value value) const;

  mlir::func::FuncOp function;
  llvm::DenseMap<mlir::Value, const HostTensor *> tensors;
};

} // namespace saccade::run

#endif // SACCADE_TOOLS_RUN_VALUES_H
