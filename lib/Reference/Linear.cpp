//===- Linear.cpp - attn.linear as a recurrence -------------------------------===//
//
// The definition, without chunks: keys and values update the state one position after another, and queries read it.
//
//===----------------------------------------------------------------------===//
#include "Recurrence.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

namespace {

class LinearEvaluator : Recurrence {
public:
  /// Computes both results completely, since a row depends on all earlier positions.
  static LogicalResult run(attn::LinearOp op, Frame &frame);

private:
  LinearEvaluator(attn::LinearOp op, Frame &frame) : Recurrence(op, frame, op.getNormalize()), linear(op) {}
  LogicalResult fetchResults();
  LogicalResult runHead(int64_t batch, int64_t head);
  FailureOr<std::vector<double>> features(const NamedCells &operand, int64_t batch, int64_t head,
                                          int64_t position) override;
  LogicalResult read(int64_t batch, int64_t head, int64_t position);

  attn::LinearOp linear;
  NamedCells output;
  Cells *after = nullptr;
  Program *feature = nullptr;
};

LogicalResult LinearEvaluator::fetchResults() {
  FailureOr<Cells *> out = frame.cells(linear.getOutput());
  if (failed(out))
    return failure();
  output = {*out, linear.getOutputDims()};
  output.starts = value.starts;
  if (linear.getFinalState()) {
    FailureOr<Cells *> found = frame.cells(linear.getFinalState());
    if (failed(found))
      return failure();
    after = *found;
  }
  if (linear.getFeature().empty())
    return success();
  FailureOr<Program *> bound = bindProgram(linear.getFeature(), frame);
  if (succeeded(bound))
    feature = *bound;
  return bound;
}

FailureOr<std::vector<double>> LinearEvaluator::features(const NamedCells &operand, int64_t batch, int64_t head,
                                                         int64_t position) {
  std::vector<double> x = row(operand, batch, head, position);
  if (linear.getL2norm()) {
    double squares = 0;
    for (double element : x)
      squares = rounded(squares + rounded(element * element));
    double root = rounded(std::sqrt(rounded(squares + linear.getL2norm()->convertToDouble())));
    for (double &element : x)
      element = rounded(element / root);
  }
  for (double &element : x) {
    if (!feature)
      break;
    feature->setArgument(0, Scalar{.real = element});
    if (failed(feature->run()))
      return failure();
    element = feature->yielded(0).real;
  }
  return x;
}

LogicalResult LinearEvaluator::read(int64_t batch, int64_t head, int64_t position) {
  FailureOr<std::vector<double>> q = features(query, batch, queryHead(head), position);
  if (failed(q))
    return failure();
  double *to = output.at(batch, head, position);
  double sum = isNormalized ? readColumn(state, *q, columns - 1) : 1;
  for (int64_t column = 0; column < value.extent(Dim::Depth); ++column) {
    double number = readColumn(state, *q, column);
    number = isNormalized ? (sum == 0 ? 0 : number / sum) : number * scale;
    to[column * output.stride(Dim::Depth)] = frame.rounded(output.getCells()->getElementType(), rounded(number));
  }
  return success();
}

LogicalResult LinearEvaluator::runHead(int64_t batch, int64_t head) {
  int64_t group = outputHeads() / heads(), positions = length(batch);
  beginState(batch, head);
  auto readAll = [&](int64_t position) -> LogicalResult {
    for (int64_t i = head * group; i < (head + 1) * group; ++i)
      if (failed(read(batch, i, position)))
        return failure();
    return success();
  };
  for (int64_t position = 0; position < positions; ++position) {
    decayState(batch, head, position);
    if (failed(write(batch, head, position)) || (op.getCausal() && failed(readAll(position))))
      return failure();
  }
  int64_t queries = lengths || op.getCuSeqlens() ? positions : query.extent(Dim::Seq);
  for (int64_t i = 0; !op.getCausal() && i < queries; ++i)
    if (failed(readAll(i)))
      return failure();
  for (size_t i = 0; after && i < state.size(); ++i)
    after->reals()[stateOffset(batch, head) + i] = frame.rounded(after->getElementType(), state[i]);
  return success();
}

LogicalResult LinearEvaluator::run(attn::LinearOp op, Frame &frame) {
  LinearEvaluator evaluator(op, frame);
  if (failed(evaluator.fetch()) || failed(evaluator.fetchResults()))
    return failure();
  Cells *output = evaluator.output.getCells();
  std::fill_n(output->reals(), output->size(), 0.0); // positions outside of the sequences
  for (int64_t batch = 0; batch < evaluator.value.batches(); ++batch)
    for (int64_t head = 0; head < evaluator.heads(); ++head)
      if (failed(evaluator.runHead(batch, head)))
        return failure();
  for (Cells *cells : {output, evaluator.after})
    if (cells)
      cells->setKnown(Box::whole(cells->getShape()));
  return success();
}

LogicalResult evaluateLinear(attn::LinearOp op, Frame &frame, unsigned, const Box &) {
  return LinearEvaluator::run(op, frame);
}

LogicalResult shapeOfLinear(attn::LinearOp op, Frame &frame, unsigned result, Shape &shape) {
  if (result == 1)
    return shapeOfState(op, frame, op.getNormalize(), shape);
  FailureOr<Cells *> query = frame.cells(op.getQuery()), value = frame.cells(op.getValue());
  if (failed(query) || failed(value))
    return failure();
  NamedCells queries{*query, op.getQueryDims()}, values{*value, op.getValueDims()};
  for (Dim dim : op.getOutputDims().getDims())
    shape.push_back(dim == Dim::Depth  ? values.extent(dim)
                    : dim == Dim::Head ? std::max(queries.extent(dim), values.extent(dim))
                                       : queries.extent(dim));
  return success();
}

} // namespace

void saccade::reference::addLinearSemantics(SemanticsTable &table) {
  table.add<attn::LinearOp>(shapeOfLinear, evaluateLinear);
}
