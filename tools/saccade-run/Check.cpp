//===- Check.cpp - Comparison with the float64 reference ----------------------===//
//
// Implements --check. Large programs are checked on sampled rows, because the reference interpreter is slow.
//
//===----------------------------------------------------------------------===//
#include "Report.h"
#include "saccade/Reference/Tolerance.h"
#include "saccade/Support/Progress.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::run;

/// Converts a tensor to the row-major double or int64 elements of the reference.
static reference::Tensor toReference(Type type, const HostTensor &tensor) {
  reference::Tensor result(getElementTypeOrSelf(type), tensor.shape());
  auto *to = result.values.data();
  bool isReal = result.isReal();
  tensor.forEach([&](char *element) {
    if (isReal)
      to->real = readElement(tensor.type(), element);
    else if (elementBytes(tensor.type()) == 8)
      std::memcpy(&to->integer, element, sizeof(int64_t)); // a double cannot represent all of them
    else
      to->integer = static_cast<int64_t>(readElement(tensor.type(), element));
    ++to;
  });
  return result;
}

namespace {

/// The exact evaluation, and the evaluations with rounding that give the tolerance.
struct Oracle {
  reference::Evaluation exact, forwards, reversedOrder, fused;
  std::optional<reference::Evaluation> onGPU;

  /// Prints a line and returns whether the result is within the tolerance. Fails if the reference cannot evaluate it.
  FailureOr<bool> check(unsigned index, const reference::Tensor &actual, bool full) {
    SmallVector<reference::Box> boxes = {reference::Box::whole(actual.shape)};
    if (!full) {
      FailureOr<SmallVector<reference::Box>> sampled = exact.sampleRows(index);
      if (failed(sampled))
        return failure();
      boxes = *sampled;
    }
    // What the reference refuses is reported by the first evaluation only.
    FailureOr<reference::Tensor> expected = exact.evaluate(index, boxes);
    if (failed(expected))
      return failure();
    FailureOr<reference::Tensor> plain = forwards.evaluate(index, boxes),
                                 reversed = reversedOrder.evaluate(index, boxes);
    FailureOr<std::optional<reference::Magnitude>> magnitude = exact.magnitude(index, boxes);
    FailureOr<std::vector<int64_t>> rows = exact.rowNumbers(index, boxes);
    if (failed(plain) || failed(reversed) || failed(magnitude) || failed(rows))
      return failure();
    reference::ResultContext context{.rows = *rows};
    FailureOr<reference::Tensor> beforeRounding;
    if (*magnitude) {
      context.magnitude = &**magnitude;
      // The fused evaluation takes time, and bounds attention of 16-bit arguments only.
      if (context.magnitude->isOfArguments && context.magnitude->inputType.getIntOrFloatBitWidth() < 32) {
        if (failed(beforeRounding = fused.evaluate(index, boxes)))
          return failure();
        context.fused = &*beforeRounding;
      }
    }
    SmallVector<reference::Tensor> plains = {std::move(*plain), std::move(*reversed)};
    if (onGPU) {
      FailureOr<reference::Tensor> truncated = onGPU->evaluate(index, boxes);
      if (failed(truncated))
        return failure();
      plains.push_back(std::move(*truncated));
    }
    reference::Tensor compared = reference::gather(actual, boxes);
    reference::Comparison comparison = reference::compare(*expected, plains, compared, context);
    // The reference has scores of f64, and does not overflow where compiled code does.
    FailureOr<std::optional<reference::Tensor>> overflow = std::optional<reference::Tensor>();
    if (!comparison.agrees()) {
      if (failed(overflow = exact.scoreOverflow(index, boxes)))
        return failure();
      if (*overflow) {
        context.scoreOverflow = &**overflow;
        comparison = reference::compare(*expected, plains, compared, context);
      }
    }
    // The rounding of scores matters only for these bounds.
    if (comparison.verdict == reference::Comparison::TooFar ||
        comparison.verdict == reference::Comparison::OutOfBound ||
        comparison.verdict == reference::Comparison::MeanTooFar) {
      FailureOr<std::optional<reference::Tensor>> rounding = exact.scoreRounding(index, boxes);
      if (failed(rounding))
        return failure();
      if (*rounding) {
        context.scoreRounding = &**rounding;
        comparison = reference::compare(*expected, plains, compared, context);
      }
    }
    // The terms of gradients take as long as the gradients, and matter only for this bound.
    if (comparison.verdict == reference::Comparison::MeanTooFar) {
      FailureOr<std::optional<reference::Tensor>> terms = exact.gradientTerms(index, boxes);
      if (failed(terms))
        return failure();
      if (*terms) {
        context.gradientTerms = &**terms;
        comparison = reference::compare(*expected, plains, compared, context);
      }
    }
    llvm::outs() << "check result #" << index << ", " << expected->size() << " of " << actual.size()
                 << " elements: " << comparison.describe();
    if (!comparison.agrees() && comparison.worst >= 0) {
      llvm::outs() << " at [";
      llvm::interleaveComma(reference::positionInTensor(boxes, comparison.worst), llvm::outs());
      llvm::outs() << ']';
    }
    printOrigin(comparison);
    llvm::outs() << '\n';
    return comparison.agrees();
  }

private:
  /// Prints the op that made the first NaN, or infinity if there is no NaN. What the exact evaluation has not, plain
  /// evaluation may have.
  void printOrigin(const reference::Comparison &comparison) {
    bool isNaN = comparison.found.nans + comparison.expected.nans > 0;
    if (!isNaN && comparison.found.infinities + comparison.expected.infinities == 0)
      return;
    StringRef what = isNaN ? "NaN" : "Inf";
    for (reference::Evaluation *each : {&exact, &forwards}) {
      std::optional<reference::Origin> origin = each->firstNonFinite(isNaN);
      if (!origin)
        continue;
      llvm::outs() << "; the first " << what << (origin->isArgument ? " is in " : " is made by ") << origin->name
                   << describePlace(origin->location);
      if (each != &exact)
        llvm::outs() << ", where its type overflows";
      return;
    }
    if (comparison.overflowing == 0)
      llvm::outs() << "; no op of the reference makes " << what;
  }
};

} // namespace

ExitCode run::checkResults(func::FuncOp function, const Entry &entry, llvm::ArrayRef<HostTensor> arguments,
                           llvm::ArrayRef<HostTensor> results, bool full, bool onGPU) {
  Progress progress("checking against the reference");
  SmallVector<reference::Tensor> values;
  for (auto [type, argument] : llvm::zip_equal(function.getArgumentTypes(), arguments))
    values.push_back(toReference(type, argument));
  auto exact = reference::Evaluation::begin(function, values, reference::Precision::Exact);
  auto forwards = reference::Evaluation::begin(function, values, reference::Precision::Rounded);
  auto reversedOrder = reference::Evaluation::begin(function, values, reference::Precision::RoundedReversed);
  auto fused = reference::Evaluation::begin(function, values, reference::Precision::Fused);
  if (failed(exact) || failed(forwards) || failed(reversedOrder) || failed(fused))
    return ExitUnsupported;
  Oracle oracle{std::move(*exact), std::move(*forwards), std::move(*reversedOrder), std::move(*fused), {}};
  if (onGPU) {
    auto truncated = reference::Evaluation::begin(function, values, reference::Precision::GPU);
    if (failed(truncated))
      return ExitUnsupported;
    oracle.onGPU = std::move(*truncated);
  }
  bool agrees = true;
  for (auto [i, result] : llvm::enumerate(results)) {
    FailureOr<bool> good = oracle.check(i, toReference(function.getResultTypes()[i], result), full);
    if (failed(good))
      return ExitInvalidInput;
    agrees &= *good;
  }
  return agrees ? ExitSuccess : ExitMismatch;
}
