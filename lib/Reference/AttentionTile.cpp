//===- AttentionTile.cpp - attn.accumulate, attn.merge, attn.finalize ------------===//
//
// The online softmax on an explicit state in base 2, as defined by the dialect, on tensors.
//
//===----------------------------------------------------------------------===//
#include "Scoring.h"
#include <cfloat>
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

namespace {

/// The state of a tile of queries: accumulator (rows × depth), running max and running sum.
struct TileState {
  Cells *acc, *max, *sum;

  /// The results of `op`, initialised from its inits.
  static FailureOr<TileState> start(DestinationStyleOpInterface op, Frame &frame) {
    Cells *cells[3];
    for (unsigned i = 0; i < 3; ++i) {
      FailureOr<Cells *> from = frame.demandAll(op.getDpsInitOperand(i)->get()), to = frame.cells(op->getResult(i));
      if (failed(from) || failed(to))
        return failure();
      std::copy_n((*from)->data(), (*from)->size(), (*to)->data());
      cells[i] = *to;
    }
    TileState state{cells[0], cells[1], cells[2]};
    if (failed(state.check(op, "state", state.rows(), state.depth())))
      return failure();
    return state;
  }

  static FailureOr<TileState> read(Frame &frame, Value acc, Value max, Value sum) {
    FailureOr<Cells *> a = frame.demandAll(acc), m = frame.demandAll(max), s = frame.demandAll(sum);
    if (failed(a) || failed(m) || failed(s))
      return failure();
    return TileState{*a, *m, *s};
  }

  int64_t rows() const { return acc->getShape()[0]; }
  int64_t depth() const { return acc->getShape()[1]; }
  double &m(int64_t row) const { return max->reals()[row]; }
  double &l(int64_t row) const { return sum->reals()[row]; }
  double *o(int64_t row) const { return acc->reals() + row * depth(); }

  LogicalResult check(Operation *op, StringRef role, int64_t rows, int64_t depth) const {
    if (this->rows() == rows && this->depth() == depth && max->size() == rows && sum->size() == rows)
      return success();
    return op->emitOpError() << role << " has accumulator " << this->rows() << 'x' << this->depth()
                             << ", running max of " << max->size() << " and running sum of " << sum->size()
                             << " rows, expected " << rows << " rows of head size " << depth;
  }
};

/// The rescaling factor 2^(max − newMax) of a state, with `isNatural` e^(max − newMax); 0 for the empty state. `newMax`
/// is not −inf.
double rescale(Frame &frame, Type type, double max, double newMax, bool isNatural) {
  double difference = frame.rounded(type, max - newMax);
  if (isNatural)
    difference = frame.rounded(type, difference * frame.rounded(type, std::numbers::log2e));
  return frame.rounded(type, std::exp2(difference));
}

/// The shape of result number `result` is that of its init.
template <typename OpTy> LogicalResult shapeOfInit(OpTy op, Frame &frame, unsigned result, Shape &shape) {
  FailureOr<Cells *> cells =
      frame.cells(cast<DestinationStyleOpInterface>(op.getOperation()).getDpsInitOperand(result)->get());
  if (failed(cells))
    return failure();
  shape.assign((*cells)->getShape().begin(), (*cells)->getShape().end());
  return success();
}

void setAllKnown(Operation *op, Frame &frame) {
  for (Value result : op->getResults())
    if (FailureOr<Cells *> cells = frame.cells(result); succeeded(cells))
      (*cells)->setKnown(Box::whole((*cells)->getShape()));
}

} // namespace

//===----------------------------------------------------------------------===//
// attn.accumulate
//===----------------------------------------------------------------------===//

/// The state in addition to accumulator, max and sum: tallies, row maximum and argmax.
struct OtherState {
  SmallVector<Cells *> tallies;
  Cells *rowMax = nullptr, *argmax = nullptr;

  /// The results of `op`, initialized from its inits.
  static FailureOr<OtherState> start(DestinationStyleOpInterface op, Frame &frame) {
    for (auto [init, result] : llvm::zip_equal(op.getDpsInits().drop_front(3), op->getResults().drop_front(3))) {
      FailureOr<Cells *> from = frame.demandAll(init), to = frame.cells(result);
      if (failed(from) || failed(to))
        return failure();
      std::copy_n((*from)->data(), (*from)->size(), (*to)->data());
    }
    return read(frame, attn::State(op->getResults()));
  }

  static FailureOr<OtherState> read(Frame &frame, const attn::State &parts, bool isDemanded = false) {
    OtherState state;
    auto cellsOf = [&](Value value) { return isDemanded ? frame.demandAll(value) : frame.cells(value); };
    for (Value part : parts.getParts()) {
      if (llvm::is_contained({parts.acc, parts.max, parts.sum}, part))
        continue;
      FailureOr<Cells *> cells = cellsOf(part);
      if (failed(cells))
        return failure();
      if (part == parts.rowMax)
        state.rowMax = *cells;
      else if (part == parts.argmax)
        state.argmax = *cells;
      else
        state.tallies.push_back(*cells);
    }
    return state;
  }

  /// The bins of a row.
  SmallVector<MutableArrayRef<double>> bins(int64_t row) const {
    return llvm::map_to_vector(tallies, [&](Cells *tally) {
      int64_t count = tally->getShape()[1];
      return MutableArrayRef<double>(tally->reals() + row * count, count);
    });
  }
};

/// Updates row maximum and argmax of a row with the scores of a tile.
static void updateRowMax(const Scorer &scorer, ArrayRef<double> scores, const OtherState &state, int64_t row) {
  RowMax max(scores);
  if (!state.rowMax || !(max.score > state.rowMax->reals()[row]))
    return;
  state.rowMax->reals()[row] = max.score;
  if (state.argmax)
    state.argmax->data()[row].integer = scorer.at.key + max.key;
}

/// Adds the values of the visible keys to row `row`, times what the weight region makes of `weights`.
static LogicalResult addValues(Frame &frame, Scorer &scorer, ArrayRef<double> scores, ArrayRef<double> weights,
                               const TileState &state, int64_t row) {
  double *sums = state.o(row);
  for (size_t i = 0; i < scores.size(); ++i) {
    int64_t key = frame.term(i, scores.size());
    if (scores[key] == -INFINITY)
      continue;
    FailureOr<double> weight = scorer.modifiedWeight(key, weights[key]);
    if (failed(weight))
      return failure();
    double factor = frame.rounded(scorer.inputType, *weight);
    const double *values = scorer.value.at(0, 0, key);
    for (int64_t depth = 0; depth < state.depth(); ++depth)
      sums[depth] += factor * values[depth * scorer.value.stride(Dim::Depth)];
  }
  for (int64_t depth = 0; depth < state.depth(); ++depth)
    sums[depth] = frame.rounded(scorer.scoreType, sums[depth]);
  return success();
}

/// The same without a softmax: adds the values times what the normalizer computes from the scores.
static LogicalResult accumulatePointwise(Frame &frame, Scorer &scorer, ArrayRef<double> scores, const TileState &state,
                                         int64_t row) {
  if (llvm::any_of(scores, [](double score) { return score != -INFINITY; }))
    state.m(row) = 0;
  return addValues(frame, scorer, scores, scores, state, row);
}

/// The same with stick_breaking: keys before the tile share what the keys of the tile leave of the stick. Its base-2
/// logarithm is the maximum of the state.
static LogicalResult accumulateStick(Frame &frame, Scorer &scorer, ArrayRef<double> scores, const TileState &state,
                                     int64_t row) {
  std::vector<double> weights;
  double stick = breakStick(scores, weights), *sums = state.o(row);
  state.m(row) = frame.rounded(scorer.scoreType, state.m(row) + std::log2(stick));
  for (int64_t depth = 0; depth < state.depth(); ++depth)
    sums[depth] *= stick;
  return addValues(frame, scorer, scores, weights, state, row);
}

/// Accumulates one row of scores into row `row` of the state. If `op` is final, max and sum are those of all keys.
static LogicalResult accumulateRow(attn::AccumulateOp op, Frame &frame, Scorer &scorer, ArrayRef<double> scores,
                                   const TileState &state, const OtherState &others, int64_t row) {
  if (op.getPointwise())
    return accumulatePointwise(frame, scorer, scores, state, row);
  if (op.getStickBreaking())
    return accumulateStick(frame, scorer, scores, state, row);
  Type type = scorer.scoreType;
  bool isFinal = op.getFinal(), isNatural = op.getNaturalMax();
  updateRowMax(scorer, scores, others, row);
  double log2e = frame.rounded(type, std::numbers::log2e);
  double newMax = state.m(row);
  double largest = -INFINITY;
  for (double score : scores) {
    largest = maxOrNaN(largest, score);
    newMax = maxOrNaN(newMax, isNatural ? score : frame.rounded(type, score * log2e));
  }
  // As in kernels, a finite maximum that overflows as an exponent becomes the largest finite number, and is subtracted
  // before the multiplication.
  bool isSaturated = !isNatural && std::isinf(frame.rounded(type, largest * log2e)) && std::isfinite(largest);
  if (isSaturated)
    newMax = std::max(state.m(row), std::copysign(type.isF64() ? DBL_MAX : FLT_MAX, largest));
  if (newMax == -INFINITY)
    return success();
  double factor = rescale(frame, type, state.m(row), newMax, isNatural);
  state.m(row) = newMax;
  if (!isFinal)
    state.l(row) = frame.rounded(type, state.l(row) * factor);
  SmallVector<MutableArrayRef<double>> tallies = others.bins(row);
  for (MutableArrayRef<double> bins : tallies)
    for (double &bin : bins)
      bin = frame.rounded(type, bin * factor);
  std::vector<double> weights(scores.size());
  double *sums = state.o(row);
  for (int64_t depth = 0; depth < state.depth(); ++depth)
    sums[depth] = frame.rounded(type, sums[depth] * factor);
  for (size_t i = 0; i < scores.size(); ++i) {
    int64_t key = frame.term(i, scores.size());
    if (scores[key] == -INFINITY)
      continue;
    double exponent = isNatural     ? frame.rounded(type, frame.rounded(type, scores[key] - newMax) * log2e)
                      : isSaturated ? frame.rounded(type, frame.rounded(type, scores[key] - largest) * log2e)
                                    : frame.rounded(type, frame.rounded(type, scores[key] * log2e) - newMax);
    double weight = weights[key] = frame.rounded(type, std::exp2(exponent));
    if (!isFinal)
      state.l(row) = frame.rounded(type, state.l(row) + weight);
    FailureOr<double> modified =
        scorer.modifiedWeight(key, isFinal ? frame.rounded(type, weight / state.l(row)) : weight);
    if (failed(modified))
      return failure();
    weight = frame.rounded(scorer.inputType, isFinal ? frame.rounded(type, *modified * state.l(row)) : *modified);
    const double *values = scorer.value.at(0, 0, key);
    for (int64_t depth = 0; depth < state.depth(); ++depth)
      sums[depth] = frame.rounded(
          type, sums[depth] + frame.rounded(type, weight * values[depth * scorer.value.stride(Dim::Depth)]));
  }
  return addTallies(frame, scorer, scores, weights, tallies);
}

static LogicalResult evaluateAccumulate(attn::AccumulateOp op, Frame &frame, unsigned, const Box &) {
  FailureOr<Scorer> scorer = Scorer::create(op, frame);
  if (failed(scorer))
    return failure();
  FailureOr<TileState> state = TileState::start(op, frame);
  if (failed(state))
    return failure();
  int64_t queries = scorer->query.extent(Dim::Seq), keys = scorer->key.extent(Dim::Seq);
  int64_t heads = scorer->query.extent(Dim::Head), rows = queries * heads;
  if (rows > state->rows())
    return op.emitOpError() << "query has " << rows << " rows, but accumulator has " << state->rows();
  if (scorer->value.extent(Dim::Depth) != state->depth())
    return op.emitOpError() << "accumulator has head size " << state->depth() << ", but value has "
                            << scorer->value.extent(Dim::Depth);
  scorer->queryLength = scorer->at.query + queries;
  scorer->keyLength = scorer->at.key + keys;
  for (auto [given, length] :
       {std::pair(op.getQLen(), &scorer->queryLength), std::pair(op.getKvLen(), &scorer->keyLength)}) {
    if (!given)
      continue;
    FailureOr<int64_t> number = frame.index(given);
    if (failed(number))
      return failure();
    *length = *number;
  }
  for (Value operand : {op.getQuery(), op.getKey(), op.getValue()})
    if (failed(frame.demandAll(operand)))
      return failure();
  FailureOr<OtherState> others = OtherState::start(op, frame);
  if (failed(others))
    return failure();
  std::vector<double> scores;
  for (int64_t row = 0; row < rows; ++row)
    if (failed(scorer->scores(0, row % heads, row / heads, keys, scores)) ||
        failed(accumulateRow(op, frame, *scorer, scores, *state, *others, row)))
      return failure();
  setAllKnown(op, frame);
  return success();
}

//===----------------------------------------------------------------------===//
// attn.merge
//===----------------------------------------------------------------------===//

/// The other state is that of later keys, which leave the factor 2^m of the stick to the keys of `state`.
static void mergeStick(Frame &frame, Type type, const TileState &state, const TileState &other, int64_t row) {
  double factor = std::exp2(other.m(row));
  state.m(row) = frame.rounded(type, state.m(row) + other.m(row));
  state.l(row) += other.l(row);
  for (int64_t depth = 0; depth < state.depth(); ++depth)
    state.o(row)[depth] = frame.rounded(type, state.o(row)[depth] * factor + other.o(row)[depth]);
}

static LogicalResult evaluateMerge(attn::MergeOp op, Frame &frame, unsigned, const Box &) {
  attn::State otherParts = op.getOtherState();
  FailureOr<TileState> other = TileState::read(frame, otherParts.acc, otherParts.max, otherParts.sum);
  FailureOr<OtherState> others = OtherState::start(op, frame);
  FailureOr<OtherState> from = OtherState::read(frame, otherParts, /*isDemanded=*/true);
  if (failed(other) || failed(others) || failed(from))
    return failure();
  FailureOr<TileState> state = TileState::start(op, frame);
  if (failed(state) || failed(other->check(op, "other state", state->rows(), state->depth())))
    return failure();
  Type type = state->acc->getElementType();
  for (int64_t row = 0; row < state->rows(); ++row) {
    if (op.getStickBreaking()) {
      mergeStick(frame, type, *state, *other, row);
      continue;
    }
    double newMax = maxOrNaN(state->m(row), other->m(row));
    if (newMax == -INFINITY)
      continue;
    double factor = rescale(frame, type, state->m(row), newMax, op.getNaturalMax()),
           otherFactor = rescale(frame, type, other->m(row), newMax, op.getNaturalMax());
    auto join = [&](double a, double b) {
      return frame.rounded(type, frame.rounded(type, factor * a) + frame.rounded(type, otherFactor * b));
    };
    state->m(row) = newMax;
    state->l(row) = join(state->l(row), other->l(row));
    for (int64_t depth = 0; depth < state->depth(); ++depth)
      state->o(row)[depth] = join(state->o(row)[depth], other->o(row)[depth]);
    for (auto [bins, otherBins] : llvm::zip_equal(others->bins(row), from->bins(row)))
      for (auto [bin, otherBin] : llvm::zip_equal(bins, otherBins))
        bin = join(bin, otherBin);
    if (!others->rowMax || !(from->rowMax->reals()[row] > others->rowMax->reals()[row]))
      continue;
    others->rowMax->reals()[row] = from->rowMax->reals()[row];
    if (others->argmax)
      others->argmax->data()[row].integer = from->argmax->data()[row].integer;
  }
  setAllKnown(op, frame);
  return success();
}

//===----------------------------------------------------------------------===//
// attn.finalize
//===----------------------------------------------------------------------===//

static LogicalResult evaluateFinalize(attn::FinalizeOp op, Frame &frame, unsigned, const Box &) {
  FailureOr<TileState> state = TileState::read(frame, op.getAcc(), op.getMax(), op.getSum());
  FailureOr<Cells *> output = frame.cells(op->getResult(0));
  if (failed(state) || failed(output) || failed(state->check(op, "state", state->rows(), state->depth())))
    return failure();
  NamedCells out{*output, op.getOutputDims()};
  if (out.extent(Dim::Seq) > state->rows() || out.extent(Dim::Depth) != state->depth())
    return op.emitOpError() << "output has " << out.extent(Dim::Seq) << " rows of head size " << out.extent(Dim::Depth)
                            << ", but accumulator has " << state->rows() << " of " << state->depth();
  Type type = state->acc->getElementType();
  for (int64_t row = 0; row < out.extent(Dim::Seq); ++row)
    for (int64_t depth = 0; depth < state->depth(); ++depth) {
      double quotient = state->l(row) == 0 ? 0 : frame.rounded(type, state->o(row)[depth] / state->l(row));
      out.at(0, 0, row)[depth * out.stride(Dim::Depth)] = frame.rounded(out.getCells()->getElementType(), quotient);
    }
  if (op.getLse()) {
    FailureOr<Cells *> lse = frame.cells(op->getResult(1));
    if (failed(lse))
      return failure();
    if ((*lse)->size() > state->rows())
      return op.emitOpError() << "log-sum-exp has " << (*lse)->size() << " rows, but accumulator has " << state->rows();
    Cells *low = nullptr;
    if (op.getLseLow()) {
      FailureOr<Cells *> cells = frame.cells(op->getResult(2));
      if (failed(cells))
        return failure();
      low = *cells;
    }
    for (int64_t row = 0; row < (*lse)->size(); ++row) {
      double &of = (*lse)->reals()[row], max = state->m(row) == -INFINITY ? 0 : state->m(row);
      if (op.getNaturalMax()) {
        double log = state->l(row) == 0 ? -INFINITY : frame.rounded(type, std::log(state->l(row)));
        of = frame.rounded(type, max + log);
        if (low)
          low->reals()[row] = std::isinf(of) ? 0 : frame.rounded(type, log - (of - max));
        continue;
      }
      double base2 = frame.rounded(type, state->m(row) + frame.rounded(type, std::log2(state->l(row))));
      of = state->l(row) == 0 ? -INFINITY : frame.rounded(type, base2 * std::numbers::ln2);
    }
  }
  // Tallies are divided by the sum too; row maximum and argmax are copied.
  for (auto [from, to] : llvm::zip_equal(op.getOthers(), op->getResults().take_back(op.getOthers().size()))) {
    FailureOr<Cells *> source = frame.demandAll(from), copy = frame.cells(to);
    if (failed(source) || failed(copy))
      return failure();
    int64_t bins = (*copy)->getShape().size() == 2 ? (*copy)->getShape()[1] : 0;
    std::copy_n((*source)->data(), (*copy)->size(), (*copy)->data());
    for (int64_t i = 0; i < (*copy)->size() && bins != 0; ++i) {
      double sum = state->l(i / bins), &bin = (*copy)->reals()[i];
      bin = sum == 0 ? 0 : frame.rounded(type, bin / sum);
    }
  }
  setAllKnown(op, frame);
  return success();
}

void saccade::reference::addAttentionTileSemantics(SemanticsTable &table) {
  table.add<attn::AccumulateOp>(shapeOfInit, evaluateAccumulate);
  table.add<attn::MergeOp>(shapeOfInit, evaluateMerge);
  table.add<attn::FinalizeOp>(shapeOfInit, evaluateFinalize);
}
