//===- ScoreOverflow.cpp - Rows whose scores overflow -----------------------------===//
//
// The reference computes scores in f64. Compiled code and plain evaluation compute them in their type, f32 for most,
// and overflow where it does not. Which of them does depends on the order of the sum and on what is multiplied first:
// the query by the scale or the product, and a factor log2 e for exp2. So a row overflows, whatever evaluates it, if
// scale · log2 e · Σ |q k| of a visible key, an element of the scaled query, or log2 e times the modified score is more
// than the largest number of the type.
//
//===----------------------------------------------------------------------===//
#include "AttentionRows.h"
#include "NonFinite.h"
#include <set>
#include <tuple>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

static bool mayOverflow(const Scorer &scorer, const AttentionRow &row, double largest) {
  StridedRow query = scorer.queryRow(row.batch, row.head, row.position);
  int64_t keyStride = scorer.key.stride(Dim::Depth), depth = scorer.key.extent(Dim::Depth);
  double factor = std::max(1.0, std::abs(scorer.getScale())) * M_LOG2E;
  for (auto [number, score] : llvm::enumerate(row.scores)) {
    if (!scorer.isVisible(int64_t(number)))
      continue;
    const double *key = scorer.key.at(row.batch, scorer.kvHead(row.head), int64_t(number));
    double sum = 0;
    for (int64_t d = 0; d < depth; ++d) {
      sum += std::abs(query[d] * key[d * keyStride]);
      if (std::isfinite(query[d]) && std::abs(query[d]) * factor > largest)
        return true;
    }
    if (std::isfinite(sum) && sum * factor > largest)
      return true;
    if (std::isfinite(score) && std::abs(score) * M_LOG2E > largest)
      return true;
  }
  return false;
}

FailureOr<std::optional<Tensor>> saccade::reference::scoreOverflowOf(attn::AttentionOp op, Value result, Frame &frame,
                                                                     ArrayRef<Box> boxes) {
  Type element = getElementTypeOrSelf(result);
  if (!isa<FloatType>(element))
    return std::optional<Tensor>();
  SmallVector<Dim> dims = op.getResultDims(result);
  Tensor overflow(element, {0});
  for (const Box &box : boxes) {
    std::set<std::tuple<int64_t, int64_t, int64_t>> rows; // batch, head, token; in the order of Dim
    auto visit = [&](Scorer &scorer, const AttentionRow &row) {
      auto type = cast<FloatType>(scorer.scoreType);
      double largest = llvm::APFloat::getLargest(type.getFloatSemantics()).convertToDouble();
      if (mayOverflow(scorer, row, largest))
        rows.emplace(row.batch, row.head, row.tokenIndex);
      return success();
    };
    if (failed(forEachAttentionRow(op, frame, AttentionRange::of(box, dims), visit)))
      return failure();
    for (int64_t i = 0, size = box.size(); i < size; ++i) {
      SmallVector<int64_t> index = positionInTensor({box}, i);
      int64_t at[4] = {};
      for (auto [dim, position] : llvm::zip(dims, index)) // bins of a tally are beyond `dims`
        at[unsigned(dim)] = position;
      overflow.values.emplace_back().real = rows.count({at[0], at[1], at[2]}) ? 1 : 0;
    }
  }
  overflow.shape[0] = overflow.values.size();
  return std::optional<Tensor>(std::move(overflow));
}
