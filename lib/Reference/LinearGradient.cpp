//===- LinearGradient.cpp - attn.linear_gradient as a recurrence ---------------===//
//
// The states of all positions are kept, and the gradient of the state is carried from the last position to the first.
//
//===----------------------------------------------------------------------===//
#include "Recurrence.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

namespace {

class LinearGradientEvaluator : Recurrence {
public:
  static LogicalResult run(attn::LinearGradientOp op, Frame &frame);

private:
  LinearGradientEvaluator(attn::LinearGradientOp op, Frame &frame)
      : Recurrence(op, frame, /*isNormalized=*/false), gradient(op) {}
  LogicalResult fetchResults();
  LogicalResult runHead(int64_t batch, int64_t head);
  LogicalResult runNonCausal(int64_t batch, int64_t head);
  LogicalResult runPosition(int64_t batch, int64_t head, int64_t position);
  /// Adds the reads of queries at a position, with the state `read`, to their gradients and that of the state.
  void addQueries(int64_t batch, int64_t head, int64_t position, ArrayRef<double> read);
  /// Adds ± x · y of each row to `terms`.
  void addTerms(ArrayRef<double> x, ArrayRef<double> y, double sign) {
    for (int64_t row = 0; row < rows; ++row) {
      terms[row] = rounded(terms[row] + sign * rounded(x[row] * y[row]));
      sizes[row] += std::abs(x[row] * y[row]);
    }
  }
  void store(const NamedCells &to, int64_t batch, int64_t head, int64_t position, ArrayRef<double> numbers);
  void storeFactor(Cells *to, int64_t batch, int64_t head, int64_t position, ArrayRef<double> numbers);

  attn::LinearGradientOp gradient;
  NamedCells outputGradient, ofQuery, ofKey, ofValue, ofErase;
  Cells *ofDecay = nullptr, *ofBeta = nullptr, *ofState = nullptr, *stateGradient = nullptr;
  SmallVector<Cells *> results;
  /// States after the decay of a position, and after its write.
  std::vector<std::vector<double>> decayed, written;
  std::vector<double> carried; ///< the gradient of the state
  /// Kernels compute the gradient of a decay as the sum of q · dq, −k · dk and e · de over the later positions: this
  /// sum, and that of the absolute terms.
  std::vector<double> terms, sizes;
};

LogicalResult LinearGradientEvaluator::fetchResults() {
  if (failed(fetchNamed(gradient.getOutputGradient(), op.getOutputDims(), outputGradient)) ||
      failed(fetchAll(gradient.getStateGradient(), stateGradient)))
    return failure();
  outputGradient.starts = value.starts;
  auto resultOf = [&](Value result, Cells *&cells) -> LogicalResult {
    if (!result)
      return success();
    FailureOr<Cells *> found = frame.cells(result);
    if (failed(found))
      return failure();
    results.push_back(cells = *found);
    return success();
  };
  for (auto [named, result, dims] : {std::tuple(&ofQuery, gradient.getQueryGradient(), op.getQueryDims()),
                                     std::tuple(&ofKey, gradient.getKeyGradient(), op.getKeyDims()),
                                     std::tuple(&ofValue, gradient.getValueGradient(), op.getValueDims()),
                                     std::tuple(&ofErase, gradient.getEraseGradient(), op.getEraseDimsAttr())}) {
    Cells *cells = nullptr;
    if (failed(resultOf(result, cells)))
      return failure();
    if (cells)
      *named = {cells, dims};
    named->starts = value.starts;
  }
  return success(succeeded(resultOf(gradient.getDecayGradient(), ofDecay)) &&
                 succeeded(resultOf(gradient.getBetaGradient(), ofBeta)) &&
                 succeeded(resultOf(gradient.getInitialGradient(), ofState)));
}

void LinearGradientEvaluator::store(const NamedCells &to, int64_t batch, int64_t head, int64_t position,
                                    ArrayRef<double> numbers) {
  double *into = to.at(batch, head, position);
  for (auto [i, number] : llvm::enumerate(numbers))
    into[i * to.stride(Dim::Depth)] = frame.rounded(to.getCells()->getElementType(), number);
}

void LinearGradientEvaluator::storeFactor(Cells *to, int64_t batch, int64_t head, int64_t position,
                                          ArrayRef<double> numbers) {
  SmallVector<int64_t> index;
  for (Dim dim : gradient.getFactorDims(/*isMatrix=*/false))
    index.push_back(dim == Dim::Batch ? batch : dim == Dim::Seq ? value.start(batch) + position : head);
  int64_t first = 0;
  for (auto [i, stride] : llvm::zip(index, to->getStrides()))
    first += i * stride;
  for (auto [i, number] : llvm::enumerate(numbers))
    to->reals()[first + i] = frame.rounded(to->getElementType(), number);
}

void LinearGradientEvaluator::addQueries(int64_t batch, int64_t head, int64_t position, ArrayRef<double> read) {
  int64_t group = outputHeads() / heads();
  for (int64_t i = head * group; i < (head + 1) * group; ++i) {
    std::vector<double> q = row(query, batch, queryHead(i), position), u = row(outputGradient, batch, i, position);
    for (double &element : u)
      element = rounded(element * scale);
    addProduct(carried, q, u);
    std::vector<double> numbers;
    for (int64_t row = 0; row < rows; ++row)
      numbers.push_back(readRow(read, u, row));
    store(ofQuery, batch, i, position, numbers);
    addTerms(q, numbers, 1);
  }
}

LogicalResult LinearGradientEvaluator::runPosition(int64_t batch, int64_t head, int64_t position) {
  addQueries(batch, head, position, written[position]);
  state = decayed[position];
  FailureOr<std::vector<double>> left = remainder(batch, head, position), e = eraseKey(batch, head, position);
  if (failed(left) || failed(e))
    return failure();
  std::vector<double> k = row(key, batch, shared(key, head), position), u = *left, du, dk, de;
  double rate = betaAt(batch, head, position), dbeta = 0;
  for (double &element : u)
    element = rounded(rate * element);
  for (int64_t column = 0; column < columns; ++column)
    du.push_back(readColumn(carried, k, column));
  for (int64_t row = 0; row < rows; ++row)
    dk.push_back(readRow(carried, u, row));
  for (int64_t column = 0; column < columns; ++column) {
    dbeta = rounded(dbeta + rounded(du[column] * (*left)[column]));
    du[column] = rounded(du[column] * rate);
  }
  addTerms(k, dk, -1);
  if (op.hasDeltaRule()) {
    for (int64_t row = 0; row < rows; ++row)
      de.push_back(-readRow(decayed[position], du, row));
    addTerms(*e, de, 1);
    addProduct(carried, *e, du, -1);
    if (ofErase.getCells())
      store(ofErase, batch, head, position, de);
    else
      for (int64_t row = 0; row < rows; ++row)
        dk[row] = rounded(dk[row] + de[row]);
  }
  store(ofKey, batch, head, position, dk);
  store(ofValue, batch, head, position, du);
  if (ofBeta)
    storeFactor(ofBeta, batch, head, position, {dbeta});
  std::vector<double> factors = decayFactors(batch, head, position), sums(rows);
  for (int64_t i = 0; i < rows * columns; ++i)
    if (factors[i / columns] != 0)
      sums[i / columns] = rounded(sums[i / columns] + rounded(carried[i] * decayed[position][i]));
  for (int64_t row = 0; row < rows; ++row)
    if (factors[row] != 0)
      // With more than one rounding error of the terms, which kernels add in parts.
      sums[row] = frame.isReversed() ? 2 * terms[row] - sums[row]
                                     : rounded(rounded(sums[row] + 4 * sizes[row]) - 4 * sizes[row]);
  if (ofDecay && !op.hasMatrixDecay()) {
    double sum = 0;
    for (double element : sums)
      sum = rounded(sum + element);
    sums = {sum};
  }
  if (ofDecay)
    storeFactor(ofDecay, batch, head, position, sums);
  for (int64_t i = 0; i < rows * columns; ++i)
    carried[i] = rounded(carried[i] * factors[i / columns]);
  return success();
}

LogicalResult LinearGradientEvaluator::runNonCausal(int64_t batch, int64_t head) {
  int64_t queries = lengths || op.getCuSeqlens() ? length(batch) : query.extent(Dim::Seq);
  std::vector<double> last = state;
  for (int64_t position = 0; position < queries; ++position)
    addQueries(batch, head, position, last);
  for (int64_t position = 0; position < length(batch); ++position) {
    std::vector<double> k = row(key, batch, shared(key, head), position), v = row(value, batch, head, position), dk, dv;
    for (int64_t row = 0; row < rows; ++row)
      dk.push_back(readRow(carried, v, row));
    for (int64_t column = 0; column < columns; ++column)
      dv.push_back(readColumn(carried, k, column));
    store(ofKey, batch, head, position, dk);
    store(ofValue, batch, head, position, dv);
  }
  return success();
}

LogicalResult LinearGradientEvaluator::runHead(int64_t batch, int64_t head) {
  beginState(batch, head);
  decayed.clear(), written.clear();
  for (int64_t position = 0; position < length(batch); ++position) {
    decayState(batch, head, position);
    decayed.push_back(state);
    if (failed(write(batch, head, position)))
      return failure();
    written.push_back(state);
  }
  carried.assign(rows * columns, 0.0);
  int64_t offset = stateOffset(batch, head);
  if (stateGradient)
    std::copy_n(stateGradient->reals() + offset, carried.size(), carried.begin());
  terms.assign(rows, 0.0);
  sizes.assign(rows, 0.0);
  for (int64_t i = 0; i < rows * columns; ++i) {
    terms[i / columns] = rounded(terms[i / columns] + rounded(carried[i] * state[i]));
    sizes[i / columns] += std::abs(carried[i] * state[i]);
  }
  if (!op.getCausal()) {
    if (failed(runNonCausal(batch, head)))
      return failure();
  } else {
    for (int64_t position = length(batch) - 1; position >= 0; --position)
      if (failed(runPosition(batch, head, position)))
        return failure();
  }
  for (size_t i = 0; ofState && i < carried.size(); ++i)
    ofState->reals()[offset + i] = frame.rounded(ofState->getElementType(), carried[i]);
  return success();
}

LogicalResult LinearGradientEvaluator::run(attn::LinearGradientOp op, Frame &frame) {
  LinearGradientEvaluator evaluator(op, frame);
  if (failed(evaluator.fetch()) || failed(evaluator.fetchResults()))
    return failure();
  for (Cells *cells : evaluator.results)
    std::fill_n(cells->reals(), cells->size(), 0.0); // positions outside of the sequences
  for (int64_t batch = 0; batch < evaluator.value.batches(); ++batch)
    for (int64_t head = 0; head < evaluator.heads(); ++head)
      if (failed(evaluator.runHead(batch, head)))
        return failure();
  for (Cells *cells : evaluator.results)
    cells->setKnown(Box::whole(cells->getShape()));
  return success();
}

LogicalResult evaluateLinearGradient(attn::LinearGradientOp op, Frame &frame, unsigned, const Box &) {
  return LinearGradientEvaluator::run(op, frame);
}

LogicalResult shapeOfLinearGradient(attn::LinearGradientOp op, Frame &frame, unsigned result, Shape &shape) {
  Value like = op->getResult(result);
  if (like == op.getInitialGradient())
    return shapeOfState(op, frame, /*isNormalized=*/false, shape);
  FailureOr<Cells *> value = frame.cells(op.getValue()), query = frame.cells(op.getQuery()),
                     key = frame.cells(op.getKey());
  if (failed(value) || failed(query) || failed(key))
    return failure();
  NamedCells values{*value, op.getValueDims()}, queries{*query, op.getQueryDims()}, keys{*key, op.getKeyDims()};
  if (like == op.getDecayGradient() || like == op.getBetaGradient()) {
    for (Dim dim : op.getFactorDims(like == op.getDecayGradient() && op.hasMatrixDecay()))
      shape.push_back(dim == Dim::Depth ? keys.extent(dim) : values.extent(dim));
    return success();
  }
  bool isQuery = like == op.getQueryGradient(), isErase = like == op.getEraseGradient();
  Value operand = isQuery                       ? op.getQuery()
                  : isErase                     ? op.getErase()
                  : like == op.getKeyGradient() ? op.getKey()
                                                : op.getValue();
  attn::DimsAttr dims = isQuery                       ? op.getQueryDims()
                        : isErase                     ? op.getEraseDimsAttr()
                        : like == op.getKeyGradient() ? op.getKeyDims()
                                                      : op.getValueDims();
  FailureOr<Cells *> cells = frame.cells(operand);
  if (failed(cells))
    return failure();
  NamedCells named{*cells, dims};
  for (Dim dim : dims.getDims())
    shape.push_back(dim != Dim::Head ? named.extent(dim)
                    : isQuery        ? std::max(queries.extent(dim), values.extent(dim))
                                     : values.extent(dim));
  return success();
}

} // namespace

void saccade::reference::addLinearGradientSemantics(SemanticsTable &table) {
  table.add<attn::LinearGradientOp>(shapeOfLinearGradient, evaluateLinearGradient);
}
