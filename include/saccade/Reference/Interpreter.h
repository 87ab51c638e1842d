//===- Interpreter.h - The float64 reference: what a program means --*- C++ -*-===//
//
// The oracle against which every code generator is tested. It evaluates functions over the attn
// dialect and the surrounding linalg, tensor, arith, math, affine and scf on tensors, op by op, as plain loops.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_INTERPRETER_H
#define SACCADE_REFERENCE_INTERPRETER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Reference/Tensor.h"
#include <memory>
#include <optional>

namespace saccade::reference {

/// How float results are held.
enum class Precision {
  /// Everything in f64, whatever the declared types.
  Exact,
  /// Every result rounded to its declared type; contractions accumulate in their declared type, f32 at least.
  /// Attention is plain unfused attention: f32 scores (f64 for f64), probabilities rounded to the input type, f32 sums.
  Rounded,
  /// The same, every sum from its last term to its first: as plain as `Rounded`, with other rounding errors.
  RoundedReversed,
};

/// Evaluates `function` on `arguments` and returns all its results. Where an op is not known, an argument does not fit
/// its type or the program has no meaning (index out of bounds, division by zero), it fails with a diagnostic there.
mlir::FailureOr<llvm::SmallVector<Tensor>> interpret(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments,
                                                     Precision precision = Precision::Exact);

/// How large the terms are that an attention result is a sum of, element by element like the result.
struct Magnitude {
  Tensor weighted;      ///< Σ p |v|: what rounding of probabilities and results is relative to
  Tensor conditioned;   ///< how far the result moves, to first order, if each score is off by 1 part in Σ |q k|
  mlir::Type inputType; ///< of queries, keys and values: what probabilities may be rounded to
  int64_t keys = 0;     ///< how many keys there are
  int64_t depth = 0;    ///< d_k
};

/// One call that is evaluated on demand: only what the asked-for elements need is computed, and once. `arguments`
/// are copied. Checking a few rows of a large program this way takes a small part of the work.
class Evaluation {
public:
  /// Checks that the arguments fit the function and that every op in it is known.
  static mlir::FailureOr<Evaluation> begin(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments,
                                           Precision precision = Precision::Exact);
  Evaluation(Evaluation &&);
  Evaluation &operator=(Evaluation &&);
  ~Evaluation();

  unsigned numResults() const;
  mlir::FailureOr<llvm::SmallVector<int64_t>> shape(unsigned result);
  mlir::FailureOr<Tensor> evaluate(unsigned result);
  /// Only the elements of `boxes`, one after another, rank 1 (as `gather` of the whole result).
  mlir::FailureOr<Tensor> evaluate(unsigned result, llvm::ArrayRef<Box> boxes);

  /// At most `rows` rows of a result, as boxes: the first, the last, and some in between, in few clusters so that
  /// they share keys and values. A row runs along the last dimension; along depth where the result is that of
  /// `attn.attention`, and a log-sum-exp is sampled by element. The same `seed` gives the same rows.
  mlir::FailureOr<llvm::SmallVector<Box>> sampleRows(unsigned result, int64_t rows = 256, uint64_t seed = 0);

  /// The magnitudes of elements `boxes` of a result that `attn.attention` returns as its output; nothing for others.
  /// Only under Precision::Exact.
  mlir::FailureOr<std::optional<Magnitude>> magnitude(unsigned result, llvm::ArrayRef<Box> boxes);

private:
  struct State;
  explicit Evaluation(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_INTERPRETER_H
