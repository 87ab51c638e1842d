//===- Scoring.cpp - Masked scores of queries and keys ---------------------------===//
#include "Scoring.h"
#include "Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

//===----------------------------------------------------------------------===//
// NamedCells
//===----------------------------------------------------------------------===//

NamedCells::NamedCells(Cells *cells, attn::DimsAttr dims) : cells(cells), dims(dims) {
  for (auto [i, dim] : llvm::enumerate(dims.getDims())) {
    extents[unsigned(dim)] = cells->getShape()[i];
    strides[unsigned(dim)] = cells->getStrides()[i];
  }
}

double *NamedCells::at(int64_t batch, int64_t head, int64_t position) const {
  return cells->reals() + batch * stride(Dim::Batch) + head * stride(Dim::Head) +
         (start(batch) + position) * stride(Dim::Seq);
}

Box NamedCells::box(int64_t batch, int64_t head, int64_t heads, int64_t position, int64_t positions) const {
  Box box;
  for (Dim dim : dims.getDims()) {
    auto [offset, size] = dim == Dim::Batch  ? std::pair(batch, int64_t(1))
                          : dim == Dim::Head ? std::pair(head, heads)
                          : dim == Dim::Seq  ? std::pair(start(batch) + position, positions)
                                             : std::pair(int64_t(0), extent(Dim::Depth));
    box.offsets.push_back(offset);
    box.sizes.push_back(size);
  }
  return box;
}

//===----------------------------------------------------------------------===//
// Scorer
//===----------------------------------------------------------------------===//

/// Reads and checks cu_seqlens of ragged sequences.
LogicalResult Scorer::findSequences() {
  for (auto [clause, operand, offsets, views] :
       {std::tuple("cu_seqlens_q", "query", op.getCuSeqlensQ(), SmallVector<NamedCells *>{&query}),
        std::tuple("cu_seqlens_k", "key", op.getCuSeqlensK(), SmallVector<NamedCells *>{&key, &value})}) {
    if (!offsets)
      continue;
    FailureOr<Cells *> cells = frame->cells(offsets);
    if (failed(cells))
      return failure();
    int64_t size = (*cells)->getShape()[0], before = 0, total = views[0]->extent(Dim::Seq);
    if (size == 0)
      return op->emitOpError() << clause << " is empty, expected one more element than sequences";
    if (failed(frame->demand(offsets, Box{{0}, {size}})))
      return failure();
    for (int64_t i = 0; i < size; ++i) {
      int64_t offset = (*cells)->data()[i].integer;
      if (i == 0 && offset != 0)
        return op->emitOpError() << clause << " starts with " << offset << ", expected 0";
      if (offset < before || offset > total)
        return op->emitOpError() << clause << " has element " << i << " = " << offset << ", expected " << before
                                 << " to " << total << ", the rows of " << operand;
      for (NamedCells *view : views)
        view->starts.push_back(offset);
      before = offset;
    }
  }
  return success();
}

/// Checks at run time what the verifier checks for static sizes.
LogicalResult Scorer::findExtents() {
  for (auto [view, operand, dims] :
       {std::tuple(&query, op.getQuery(), op.getQueryDims()), std::tuple(&key, op.getKey(), op.getKeyDims()),
        std::tuple(&value, op.getValue(), op.getValueDims())}) {
    FailureOr<Cells *> cells = frame->cells(operand);
    if (failed(cells))
      return failure();
    *view = {*cells, dims};
  }
  if (failed(findSequences()))
    return failure();
  auto sameBatches = [&](StringRef role, const NamedCells &view) -> LogicalResult {
    if (view.batches() == query.batches())
      return success();
    return op->emitOpError() << role << " has batch size " << view.batches() << ", but query has " << query.batches();
  };
  auto same = [&](StringRef what, Dim dim, StringRef lhsRole, const NamedCells &lhs, StringRef rhsRole,
                  const NamedCells &rhs) -> LogicalResult {
    if (lhs.extent(dim) == rhs.extent(dim))
      return success();
    return op->emitOpError() << rhsRole << " has " << what << ' ' << rhs.extent(dim) << ", but " << lhsRole << " has "
                             << lhs.extent(dim);
  };
  if (failed(sameBatches("key", key)) || failed(sameBatches("value", value)) ||
      failed(same("head count", Dim::Head, "key", key, "value", value)) ||
      failed(same("length", Dim::Seq, "key", key, "value", value)) ||
      failed(same("head size", Dim::Depth, "query", query, "key", key)))
    return failure();
  int64_t queryHeads = query.extent(Dim::Head), kvHeads = key.extent(Dim::Head);
  if (kvHeads == 0 ? queryHeads != 0 : queryHeads % kvHeads != 0)
    return op->emitOpError() << "query has " << queryHeads << " heads, expected a multiple of the " << kvHeads
                             << " KV heads";
  inputType = query.getCells()->getElementType();
  scoreType = op.getScoreType();
  return success();
}

LogicalResult Scorer::findScale() {
  int64_t depth = key.extent(Dim::Depth);
  scale = depth ? 1.0 / std::sqrt(double(depth)) : 1.0;
  if (FloatAttr constant = op.getScaleAttr())
    scale = constant.getValueAsDouble();
  if (Value value = op.getScaleValue()) {
    FailureOr<Scalar> number = frame->scalar(value);
    if (failed(number))
      return failure();
    scale = number->real;
  }
  scale = frame->rounded(scoreType, scale);
  return success();
}

FailureOr<Scorer> Scorer::create(attn::ScoringOpInterface op, Frame &frame) {
  Scorer scorer(op, frame);
  if (failed(scorer.findExtents()) || failed(scorer.findScale()))
    return failure();
  std::array<int64_t, 4> at = {};
  for (auto [position, start] : llvm::zip(op.getAt(), at)) {
    FailureOr<int64_t> number = frame.index(position);
    if (failed(number))
      return failure();
    start = *number;
  }
  scorer.at = attn::PositionOf<int64_t>::of(at);
  for (const attn::NamedRegion &named : attn::getNamedRegions(op)) {
    IRMapping captures;
    captures.map(named.arguments().captures, op.getCaptures());
    FailureOr<Program *> bound = bindProgram(*named.region, frame, captures);
    if (failed(bound))
      return failure();
    if (named.name == "tally")
      scorer.tallies.push_back(*bound);
    else if (named.isMask())
      scorer.mask = *bound;
    else if (named.name == "score")
      scorer.score = *bound;
    else if (named.name == "weight" || named.name == "normalizer")
      scorer.weight = *bound;
    else
      scorer.derivative = *bound, scorer.derivativeNumbers = named.numbers();
  }
  return scorer;
}

/// The length operand `length` at `batch`, or `whole` if it is null.
static FailureOr<int64_t> lengthOf(attn::ScoringOpInterface op, Frame &frame, StringRef role, Value length,
                                   int64_t batch, int64_t batches, int64_t whole) {
  if (!length)
    return whole;
  if (!isa<RankedTensorType>(length.getType()))
    return frame.index(length);
  FailureOr<Cells *> lengths = frame.cells(length);
  if (failed(lengths))
    return failure();
  if ((*lengths)->getShape()[0] != batches)
    return op->emitOpError() << role << " has batch size " << (*lengths)->getShape()[0] << ", but query has "
                             << batches;
  if (failed(frame.demand(length, Box{{batch}, {1}})))
    return failure();
  return (*lengths)->data()[batch].integer;
}

FailureOr<int64_t> Scorer::enterBatch(int64_t batch) {
  int64_t batches = query.batches(), keys = key.length(batch);
  FailureOr<int64_t> ofQueries =
      lengthOf(op, *frame, "q_len", op.getQLen(), batch, batches, at.query + query.length(batch));
  FailureOr<int64_t> ofKeys = lengthOf(op, *frame, "kv_len", op.getKvLen(), batch, batches, at.key + keys);
  if (failed(ofQueries) || failed(ofKeys))
    return failure();
  queryLength = *ofQueries;
  keyLength = *ofKeys;
  return std::clamp<int64_t>(keyLength - at.key, 0, keys);
}

FailureOr<Program *> Scorer::runDerivative(int64_t key, ArrayRef<double> numbers) {
  for (auto [i, number] : llvm::enumerate(numbers))
    derivative->setArgument(i, Scalar{.real = number});
  derivative->setArgument(derivativeNumbers + 3, Scalar{.integer = at.key + key});
  if (failed(derivative->run()))
    return failure();
  return derivative;
}

FailureOr<double> Scorer::modifiedWeight(int64_t key, double value) {
  if (!weight)
    return value;
  weight->setArgument(0, Scalar{.real = value});
  weight->setArgument(4, Scalar{.integer = at.key + key});
  if (failed(weight->run()))
    return failure();
  return weight->yielded(0).real;
}

LogicalResult Scorer::tally(unsigned number, int64_t key, double score, int64_t &bin, double &amount) {
  Program *program = tallies[number];
  program->setArgument(0, Scalar{.real = score});
  program->setArgument(4, Scalar{.integer = at.key + key});
  if (failed(program->run()))
    return failure();
  bin = program->yielded(0).integer;
  amount = program->yielded(1).real;
  return success();
}

double saccade::reference::breakStick(ArrayRef<double> scores, std::vector<double> &weights) {
  weights.assign(scores.size(), 0);
  double stick = 1;
  for (size_t key = scores.size(); key-- > 0;) {
    if (scores[key] == -INFINITY)
      continue;
    StickBreak part(scores[key]);
    weights[key] = part.taken * stick;
    stick *= part.rest;
  }
  return stick;
}

LogicalResult saccade::reference::addTallies(Frame &frame, Scorer &scorer, ArrayRef<double> scores,
                                             ArrayRef<double> weights, ArrayRef<MutableArrayRef<double>> sums) {
  for (auto [number, bins] : llvm::enumerate(sums))
    for (size_t i = 0; i < weights.size(); ++i) {
      int64_t key = frame.term(i, weights.size()), bin;
      double amount;
      if (scores[key] == -INFINITY)
        continue;
      if (failed(scorer.tally(number, key, scores[key], bin, amount)))
        return failure();
      if (bin >= 0 && bin < int64_t(bins.size()))
        bins[bin] = frame.rounded(scorer.scoreType, bins[bin] + frame.rounded(scorer.scoreType, weights[key] * amount));
    }
  return success();
}

RowMax::RowMax(ArrayRef<double> scores) {
  for (auto [i, each] : llvm::enumerate(scores))
    if (each > score)
      score = each, key = i;
}

double Scorer::dotProduct(const NamedCells &a, const double *fromA, const NamedCells &b, const double *fromB) const {
  int64_t depth = b.extent(Dim::Depth), strideA = a.stride(Dim::Depth), strideB = b.stride(Dim::Depth);
  if (frame->isReversed() && depth > 0) {
    fromA += (depth - 1) * strideA, fromB += (depth - 1) * strideB;
    strideA = -strideA, strideB = -strideB;
  }
  if (frame->isOnGPU() && inputType.getIntOrFloatBitWidth() == 16)
    return dotOnTensorCore(depth, fromA, strideA, fromB, strideB);
  bool isNarrow = frame->isRounded() && scoreType.isF32();
  return (isNarrow ? dot<float> : dot<double>)(depth, fromA, strideA, fromB, strideB);
}

FailureOr<double> Scorer::scoreOf(int64_t key, double scaled) {
  if (!score)
    return scaled;
  score->setArgument(4, Scalar{.integer = at.key + key});
  score->setArgument(0, Scalar{.real = scaled});
  if (failed(score->run()))
    return failure();
  return score->yielded(0).real;
}

const QuantizedKeys &Scorer::quantizedKeys(int64_t batch, int64_t kvHead, int64_t keys) {
  std::array<int64_t, 3> range = {batch, kvHead, keys};
  if (!quantized || range != quantizedRange)
    quantized = std::make_unique<QuantizedKeys>(StridedRow{key.at(batch, kvHead, 0), key.stride(Dim::Depth)},
                                                key.stride(Dim::Seq), keys, key.extent(Dim::Depth));
  quantizedRange = range;
  return *quantized;
}

LogicalResult Scorer::scores(int64_t batch, int64_t head, int64_t position, int64_t keys, std::vector<double> &scores) {
  SmallVector<Program *> programs = {mask, score, weight, derivative};
  programs.append(tallies);
  for (Program *program : programs) {
    if (!program)
      continue;
    unsigned first = program == mask ? 0 : program == derivative ? derivativeNumbers : 1;
    program->setArgument(first, Scalar{.integer = at.batch + batch});
    program->setArgument(first + 1, Scalar{.integer = at.head + head});
    program->setArgument(first + 2, Scalar{.integer = at.query + position});
    program->setLength(attn::Role::Query, queryLength);
    program->setLength(attn::Role::Key, keyLength);
  }
  const double *q = query.at(batch, head, position), *k = key.at(batch, kvHead(head), 0);
  int64_t step = key.stride(Dim::Seq);
  const QuantizedKeys *rounded =
      frame->isRounded() && isQuantized() && keys > 0 ? &quantizedKeys(batch, kvHead(head), keys) : nullptr;
  std::vector<double> roundedQuery;
  if (rounded)
    roundedQuery = rounded->round(queryRow(batch, head, position));
  scores.assign(keys, -INFINITY);
  scaledScores.assign(keys, 0);
  visible.assign(keys, false);
  for (int64_t i = 0; i < keys; ++i) {
    if (mask) {
      mask->setArgument(3, Scalar{.integer = at.key + i});
      if (failed(mask->run()))
        return failure();
      if (!mask->yielded(0).integer)
        continue;
    }
    visible[i] = true;
    double product = rounded ? rounded->dotProduct(roundedQuery, i) : dotProduct(query, q, key, k + i * step);
    scaledScores[i] = frame->rounded(scoreType, product * scale);
    FailureOr<double> result = scoreOf(i, scaledScores[i]);
    if (failed(result))
      return failure();
    scores[i] = *result;
  }
  return success();
}
