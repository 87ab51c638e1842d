//===- Interpreter.h - The float64 reference interpreter ------------*- C++ -*-===//
//
// The oracle against which every code generator is tested. It evaluates functions on tensors over the attn, linalg,
// tensor, arith, math, affine and scf dialects, op by op, as plain loops.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_INTERPRETER_H
#define SACCADE_REFERENCE_INTERPRETER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "saccade/Reference/Tensor.h"
#include <memory>
#include <optional>
#include <string>

namespace saccade::reference {

/// Precision of float results.
enum class Precision {
  /// Everything in f64, regardless of the declared types, except that floats of 8 bits are rounded: as for integers,
  /// the conversion to them is a quantization.
  Exact,
  /// Every result is rounded to its declared type; contractions accumulate in their declared type, at least f32.
  /// Attention is unfused: f32 scores (f64 for f64), probabilities rounded to the input type, f32 sums. With `qk_type`
  /// queries and keys are rounded to it.
  Rounded,
  /// Like `Rounded`, with every sum in reverse order, and with the division by the sum of a softmax after the sum over
  /// values: the same accuracy, different rounding errors.
  RoundedReversed,
  /// Like `Rounded`, but ops give at least f32 where 16-bit types are declared: a fused kernel before it rounds
  /// probabilities and its result. Regions round as they are written.
  Fused,
  /// Like `Rounded`, with the arithmetic of NVIDIA GPUs.
  ///
  /// Scores of 16-bit queries and keys are those of tensor cores. 8 products and the sum before them are aligned to the
  /// largest exponent, truncated to 24 bits of fraction and added, and the sum is truncated to f32.
  /// Fasi et al. measured this arithmetic of `mma` ("Numerical behavior of NVIDIA tensor cores", 2021).
  ///
  /// Functions in f32 have the error of approximate instructions (PTX ISA): relative to the result 2^-22 at most, that
  /// of 2 ulp of `ex2`; for logarithms 2^-22 log 2 (`lg2`), and for tanh, a quotient of such terms, 2^-22. The error is
  /// a fixed function of the result.
  GPU,
};

/// Evaluates `function` on `arguments` and returns all its results. Fails with a diagnostic if an op is not supported,
/// an argument does not match its type, or behaviour is undefined (index out of bounds, division by zero).
mlir::FailureOr<llvm::SmallVector<Tensor>> interpret(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments,
                                                     Precision precision = Precision::Exact);

/// Magnitudes of the terms of an attention output, per element.
struct Magnitude {
  Tensor weighted;      ///< Σ p |v|, which bounds the error of rounded probabilities and results
  Tensor spread;        ///< √(Σ p² v²), the deviation of the result if the errors of probabilities are independent
  Tensor conditioned;   ///< first-order effect of score errors as large as the scores; see Magnitude.cpp
  Tensor quantized;     ///< bound on the error of scores that are rounded to int8; empty without `qk_type`
  mlir::Type inputType; ///< type of query, key and value, to which probabilities may be rounded
  int64_t keys = 0;     ///< number of keys
  int64_t depth = 0;    ///< head size of query and key
  /// Whether query, key and value are arguments or parts of them, so that nothing is rounded before the attention.
  bool isOfArguments = false;
};

/// Where a value that is not finite was made.
struct Origin {
  mlir::Location location;
  std::string name; ///< of the op, or "argument #N"
  bool isArgument = false;
};

/// A call evaluated lazily: computes, once, only the values that the requested elements depend on, so a few rows of a
/// large program are cheap to check.
class Evaluation {
public:
  /// Checks that the arguments match the function and that every op is supported. Copies the arguments.
  static mlir::FailureOr<Evaluation> begin(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments,
                                           Precision precision = Precision::Exact);
  Evaluation(Evaluation &&) noexcept;
  Evaluation &operator=(Evaluation &&) noexcept;
  ~Evaluation();

  unsigned numResults() const;
  mlir::FailureOr<llvm::SmallVector<int64_t>> shape(unsigned result);
  mlir::FailureOr<Tensor> evaluate(unsigned result);
  /// Only the elements of `boxes`, concatenated as a tensor of rank 1 (equals `gather` of the whole result).
  mlir::FailureOr<Tensor> evaluate(unsigned result, llvm::ArrayRef<Box> boxes);

  /// At most `rows` rows of a result, as boxes: the first, the last, and clusters in between, which share keys and
  /// values. A row is along the last dimension, or along depth for the output of `attn.attention`; its other results
  /// are sampled by element. Deterministic in `seed`.
  mlir::FailureOr<llvm::SmallVector<Box>> sampleRows(unsigned result, int64_t rows = 256, uint64_t seed = 0);

  /// For each of the elements `boxes`, the number of its row as `sampleRows` defines it. Errors of elements of one row
  /// are correlated.
  mlir::FailureOr<std::vector<int64_t>> rowNumbers(unsigned result, llvm::ArrayRef<Box> boxes);

  /// Magnitudes of the elements `boxes` of a result that is the output of an `attn.attention`; nullopt for other
  /// results. Requires Precision::Exact.
  mlir::FailureOr<std::optional<Magnitude>> magnitude(unsigned result, llvm::ArrayRef<Box> boxes);

  /// For the elements `boxes` of a result of floats of an `attn.attention`: what rounding of scores changes at most,
  /// with a probability of 1 − 2 e^(−18) for each; see ScoreRounding.cpp. Nullopt for other results. Requires
  /// Precision::Exact.
  mlir::FailureOr<std::optional<Tensor>> scoreRounding(unsigned result, llvm::ArrayRef<Box> boxes);

  /// For the elements `boxes` of a gradient of query or key by `attn.gradient`: Σ c · (Σ |dO v| + |delta|) over pairs,
  /// the magnitudes of the terms of score gradients, with c = |∂s'/∂dP · scale · k| for a query and |∂s'/∂dP · scale ·
  /// q| for a key. Nullopt for other results. Requires Precision::Exact.
  mlir::FailureOr<std::optional<Tensor>> gradientTerms(unsigned result, llvm::ArrayRef<Box> boxes);

  /// For the elements `boxes` of a result of floats of an `attn.attention`: 1 if a score of the row may overflow the
  /// type of scores, in any order of its sum, else 0; see ScoreOverflow.cpp. Nullopt for other results. Requires
  /// Precision::Exact.
  mlir::FailureOr<std::optional<Tensor>> scoreOverflow(unsigned result, llvm::ArrayRef<Box> boxes);

  /// The first op whose results have a NaN (or an infinity) although its operands have none, or else the first argument
  /// that has one. Only what was evaluated so far counts.
  std::optional<Origin> firstNonFinite(bool isNaN);

private:
  struct State;
  int64_t rowDimension(unsigned result, int64_t rank);
  explicit Evaluation(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_INTERPRETER_H
