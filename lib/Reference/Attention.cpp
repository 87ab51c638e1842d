//===- Attention.cpp - attn.attention as plain unfused attention ------------------===//
//
// The definition, row by row: scale · Q Kᵀ, score region, mask, softmax over all keys, a normalizer of each
// or stick-breaking, times V.
//
//===----------------------------------------------------------------------===//
#include "AttentionRows.h"
#include "Kernels.h"
#include <utility>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

AttentionRange AttentionRange::of(const Box &box, ArrayRef<Dim> dims) {
  AttentionRange range{0, 1, 0, 1, 0, 1};
  for (auto [offset, size, dim] : llvm::zip_equal(box.offsets, box.sizes, dims)) {
    if (dim == Dim::Batch)
      range.batch = offset, range.batches = size;
    else if (dim == Dim::Head)
      range.head = offset, range.heads = size;
    else if (dim == Dim::Seq)
      range.position = offset, range.positions = size;
  }
  return range;
}

static LogicalResult shapeOfAttention(attn::AttentionOp op, Frame &frame, unsigned result, Shape &shape) {
  FailureOr<Cells *> query = frame.cells(op.getQuery()), value = frame.cells(op.getValue());
  if (failed(query) || failed(value))
    return failure();
  NamedCells queries{*query, op.getQueryDims()}, values{*value, op.getValueDims()};
  auto type = cast<RankedTensorType>(op->getResult(result).getType());
  for (auto [dim, extent] : llvm::zip_equal(op.getResultDims(op->getResult(result)), type.getShape()))
    shape.push_back(dim != Dim::Depth ? queries.extent(dim) : result == 0 ? values.extent(dim) : extent);
  return success();
}

/// Checks the extents of the output, which may be static, against those of query and value.
static LogicalResult checkOutput(attn::AttentionOp op, const Scorer &scorer, const NamedCells &output) {
  for (Dim dim : {Dim::Batch, Dim::Head, Dim::Seq, Dim::Depth}) {
    int64_t expected = dim == Dim::Depth ? scorer.value.extent(dim) : scorer.query.extent(dim);
    if (output.extent(dim) != expected)
      return op.emitOpError() << "output has extent " << output.extent(dim) << " in dimension '" << stringifyDim(dim)
                              << "', expected " << expected;
  }
  return success();
}

/// The sink of a head; −inf if there is none.
static FailureOr<double> sinkOf(attn::AttentionOp op, Frame &frame, int64_t head, int64_t heads) {
  Value sink = op.getSink();
  if (!sink)
    return -INFINITY;
  if (!isa<RankedTensorType>(sink.getType())) {
    FailureOr<Scalar> number = frame.scalar(sink);
    return failed(number) ? FailureOr<double>(failure()) : number->real;
  }
  FailureOr<Cells *> sinks = frame.cells(sink);
  if (failed(sinks))
    return failure();
  if ((*sinks)->getShape()[0] != heads)
    return op.emitOpError() << "sink has head count " << (*sinks)->getShape()[0] << ", but query has " << heads;
  if (failed(frame.demand(sink, Box{{head}, {1}})))
    return failure();
  return (*sinks)->data()[head].real;
}

/// The sum of exp(score − max) over keys and sink, the log-sum-exp, and what its rounding took.
struct SoftmaxSums {
  double sum = 0, logSumExp = -INFINITY, lseLow = 0;
};

/// Computes probabilities from scores and a sink with the rounding of a softmax in `type`.
static SoftmaxSums softmax(Frame &frame, Type type, ArrayRef<double> scores, double sink,
                           std::vector<double> &weights) {
  weights.clear();
  double max = sink, sum = 0;
  auto exponential = [&](double score) {
    double value = std::exp(frame.rounded(type, score - max));
    return frame.rounded(type, frame.approximated(type, value, value));
  };
  for (double score : scores)
    max = maxOrNaN(max, score);
  if (max == -INFINITY)
    return {};
  if (sink != -INFINITY)
    sum = exponential(sink);
  for (double score : scores) {
    // A masked key has weight 0 even if max is Inf.
    weights.push_back(score == -INFINITY ? 0 : exponential(score));
  }
  double part = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    part = frame.rounded(type, part + weights[frame.term(i, weights.size())]);
    if ((i + 1) % sumLength != 0 && i + 1 < weights.size())
      continue;
    sum = frame.rounded(type, sum + part);
    part = 0;
  }
  for (double &weight : weights)
    weight = frame.rounded(type, weight / sum);
  double logarithm = frame.approximated(type, std::log(sum), std::log(2));
  logarithm = frame.rounded(type, logarithm);
  double logSumExp = frame.rounded(type, max + logarithm);
  return {sum, logSumExp, std::isinf(logSumExp) ? 0 : frame.rounded(type, logarithm - (logSumExp - max))};
}

LogicalResult
saccade::reference::forEachAttentionRow(attn::AttentionOp op, Frame &frame, const AttentionRange &range,
                                        function_ref<LogicalResult(Scorer &, const AttentionRow &)> visit) {
  FailureOr<Scorer> scorer = Scorer::create(op, frame);
  FailureOr<Cells *> output = frame.cells(op.getOutput());
  if (failed(scorer) || failed(output) || failed(checkOutput(op, *scorer, {*output, op.getOutputDims()})))
    return failure();
  if (range.heads == 0)
    return success();
  bool isRagged = op.getCuSeqlensQ() != nullptr;
  std::vector<double> scores, weights, factors;
  if (isRagged) {
    // Rows after the last sequence.
    int64_t end = range.position + range.positions;
    for (int64_t head = range.head; head < range.head + range.heads; ++head)
      for (int64_t tokenIndex = std::max(range.position, scorer->query.starts.back()); tokenIndex < end; ++tokenIndex)
        if (failed(visit(*scorer, {0, head, 0, tokenIndex, {}, {}, {}, 0, -INFINITY, 0})))
          return failure();
  }
  int64_t firstBatch = isRagged ? 0 : range.batch,
          lastBatch = isRagged ? scorer->query.batches() : range.batch + range.batches;
  for (int64_t batch = firstBatch; batch < lastBatch; ++batch) {
    // The part of the range in this batch.
    int64_t start = scorer->query.start(batch), firstPosition = std::max<int64_t>(range.position - start, 0);
    int64_t lastPosition = std::min(range.position + range.positions - start, scorer->query.length(batch));
    if (isRagged && firstPosition >= lastPosition)
      continue;
    FailureOr<int64_t> keys = scorer->enterBatch(batch);
    if (failed(keys))
      return failure();

    int64_t firstKVHead = scorer->kvHead(range.head);
    int64_t kvHeads = scorer->kvHead(range.head + range.heads - 1) - firstKVHead + 1;
    if (failed(frame.demand(op.getQuery(), scorer->query.box(batch, range.head, range.heads, firstPosition,
                                                             lastPosition - firstPosition))) ||
        failed(frame.demand(op.getKey(), scorer->key.box(batch, firstKVHead, kvHeads, 0, *keys))) ||
        failed(frame.demand(op.getValue(), scorer->value.box(batch, firstKVHead, kvHeads, 0, *keys))))
      return failure();
    for (int64_t head = range.head; head < range.head + range.heads; ++head) {
      FailureOr<double> sink = sinkOf(op, frame, head, scorer->query.extent(Dim::Head));
      if (failed(sink))
        return failure();
      for (int64_t position = firstPosition; position < lastPosition; ++position) {
        bool isWithin = scorer->at.query + position < scorer->queryLength;
        if (failed(scorer->scores(batch, head, position, isWithin ? *keys : 0, scores)))
          return failure();
        SoftmaxSums sums;
        if (op.getPointwise())
          weights.assign(scores.size(), 0);
        else if (op.getStickBreaking())
          breakStick(scores, weights);
        else
          sums = softmax(frame, scorer->scoreType, scores, isWithin ? *sink : -INFINITY, weights);
        factors = weights;
        for (auto [key, factor] : llvm::enumerate(factors)) {
          if (scores[key] == -INFINITY)
            continue;
          FailureOr<double> modified = scorer->modifiedWeight(key, op.getPointwise() ? scores[key] : factor);
          if (failed(modified))
            return failure();
          factor = *modified;
        }
        if (failed(visit(*scorer, {batch, head, position, start + position, weights, factors, scores, sums.sum,
                                   sums.logSumExp, sums.lseLow})))
          return failure();
      }
    }
  }
  return success();
}

/// Σ weight · value over the keys of a row. In reverse order the sum of the softmax divides the result, as in fused
/// kernels. Weights are then rounded as multiples of that sum.
template <typename Sum>
static std::vector<Sum> weightedSum(Frame &frame, const Scorer &scorer, const AttentionRow &row) {
  std::vector<Sum> sums(scorer.value.extent(Dim::Depth), 0), part(sums);
  const double *values = scorer.value.at(row.batch, scorer.kvHead(row.head), 0);
  double divisor = frame.isReversed() && row.sum != 0 ? row.sum : 1;
  for (size_t i = 0; i < row.factors.size(); ++i) {
    if (int64_t key = frame.term(i, row.factors.size()); row.scores[key] != -INFINITY)
      addScaled<Sum>(part.size(), frame.rounded(scorer.inputType, row.factors[key] * divisor),
                     values + key * scorer.value.stride(Dim::Seq), scorer.value.stride(Dim::Depth), part.data());
    if ((i + 1) % sumLength != 0 && i + 1 < row.factors.size())
      continue;
    for (auto [sum, addend] : llvm::zip_equal(sums, part))
      sum += std::exchange(addend, 0);
  }
  for (Sum &sum : sums)
    sum = Sum(sum / divisor);
  return sums;
}

/// A result and the box of its elements for one row.
struct RowOfResult {
  Cells *cells;
  Box box;

  static FailureOr<RowOfResult> of(attn::AttentionOp op, Frame &frame, Value result, const AttentionRow &row) {
    FailureOr<Cells *> cells = frame.cells(result);
    if (failed(cells))
      return failure();
    Box box;
    for (auto [dim, extent] : llvm::zip_equal(op.getResultDims(result), (*cells)->getShape())) {
      int64_t positions[] = {row.batch, row.head, row.tokenIndex, 0}; // in the order of Dim
      box.offsets.push_back(positions[unsigned(dim)]);
      box.sizes.push_back(dim == Dim::Depth ? extent : 1);
    }
    return RowOfResult{*cells, box};
  }
  Scalar &front() const { return cells->at(box.offsets); }
};

/// Stores log-sum-exp, row maximum, argmax and tallies of a row.
static LogicalResult evaluateOthers(attn::AttentionOp op, Frame &frame, Scorer &scorer, const AttentionRow &row) {
  RowMax max(row.scores);
  SmallVector<MutableArrayRef<double>> tallies;
  for (Value result : op->getResults().drop_front()) {
    FailureOr<RowOfResult> elements = RowOfResult::of(op, frame, result, row);
    if (failed(elements))
      return failure();
    if (result == op.getLse()) {
      elements->front().real = row.logSumExp;
    } else if (result == op.getLseLow()) {
      elements->front().real = row.lseLow;
    } else if (result == op.getRowMax()) {
      elements->front().real = max.score;
    } else if (result == op.getArgmax()) {
      elements->front().integer = max.key < 0 ? -1 : scorer.at.key + max.key;
    } else {
      // Bins are the last dimension, so those of a row are contiguous.
      tallies.emplace_back(&elements->front().real, elements->box.sizes.back());
      // If the probabilities are NaN, so are all bins.
      llvm::fill(tallies.back(), std::isnan(row.logSumExp) ? NAN : 0.0);
    }
    elements->cells->setKnown(elements->box);
  }
  return addTallies(frame, scorer, row.scores, row.weights, tallies);
}

static LogicalResult evaluateAttention(attn::AttentionOp op, Frame &frame, unsigned result, const Box &box) {
  FailureOr<Cells *> output = frame.cells(op.getOutput());
  if (failed(output))
    return failure();
  NamedCells out{*output, op.getOutputDims()};
  auto visit = [&](Scorer &scorer, const AttentionRow &row) -> LogicalResult {
    auto store = [&](const auto &sums) {
      double *to = out.at(row.batch, row.head, row.tokenIndex);
      for (auto [depth, sum] : llvm::enumerate(sums))
        to[depth * out.stride(Dim::Depth)] = frame.rounded(out.getCells()->getElementType(), sum);
    };
    if (frame.isRounded() && scorer.scoreType.isF32())
      store(weightedSum<float>(frame, scorer, row));
    else
      store(weightedSum<double>(frame, scorer, row));
    FailureOr<RowOfResult> elements = RowOfResult::of(op, frame, op.getOutput(), row);
    if (failed(elements))
      return failure();
    out.getCells()->setKnown(elements->box);
    return evaluateOthers(op, frame, scorer, row);
  };
  return forEachAttentionRow(op, frame, AttentionRange::of(box, op.getResultDims(op->getResult(result))), visit);
}

void saccade::reference::addAttentionSemantics(SemanticsTable &table) {
  table.add<attn::AttentionOp>(shapeOfAttention, evaluateAttention);
}
