//===- Recurrence.cpp - The operands of linear attention ----------------------===//
#include "Recurrence.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

double Factor::at(int64_t batch, int64_t head, int64_t row, int64_t depth) const {
  int64_t linear = 0;
  for (auto [dim, stride] : llvm::zip_equal(axes.getDims(), cells->getStrides()))
    linear += stride * (dim == Dim::Batch ? batch : dim == Dim::Head ? head : dim == Dim::Seq ? row : depth);
  return cells->reals()[linear];
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

LogicalResult Recurrence::fetchAll(Value operand, Cells *&cells) {
  if (!operand)
    return success();
  FailureOr<Cells *> found = frame.demandAll(operand);
  if (succeeded(found))
    cells = *found;
  return found;
}

LogicalResult Recurrence::fetchNamed(Value operand, attn::DimsAttr dims, NamedCells &named) {
  Cells *cells = nullptr;
  if (failed(fetchAll(operand, cells)))
    return failure();
  if (cells)
    named = {cells, dims};
  return success();
}

LogicalResult Recurrence::findSequences() {
  Cells *offsets = nullptr;
  if (failed(fetchAll(op.getCuSeqlens(), offsets)) || failed(fetchAll(op.getKvLen(), lengths)))
    return failure();
  if (!offsets)
    return success();
  SmallVector<int64_t> starts;
  int64_t count = offsets->getShape()[0], rows = value.extent(Dim::Seq);
  for (int64_t i = 0; i < std::max<int64_t>(count, 1); ++i) {
    int64_t start = count ? offsets->at({i}).integer : 0, before = starts.empty() ? 0 : starts.back();
    if (start < before || start > rows || (i == 0 && start != 0))
      return op->emitOpError() << "cu_seqlens has element " << start << ", expected ascending ones from 0 to " << rows;
    starts.push_back(start);
  }
  query.starts = key.starts = value.starts = erase.starts = starts;
  return success();
}

LogicalResult Recurrence::fetch() {
  decay.axes = op.getDecayAxesAttr();
  beta.axes = op.getBetaAxesAttr();
  if (failed(fetchNamed(op.getQuery(), op.getQueryDims(), query)) ||
      failed(fetchNamed(op.getKey(), op.getKeyDims(), key)) ||
      failed(fetchNamed(op.getValue(), op.getValueDims(), value)) ||
      failed(fetchNamed(op.getErase(), op.getEraseDimsAttr(), erase)) || failed(fetchAll(op.getDecay(), decay.cells)) ||
      failed(fetchAll(op.getBeta(), beta.cells)) || failed(fetchAll(op.getState(), before)) || failed(findSequences()))
    return failure();
  rows = key.extent(Dim::Depth);
  columns = value.extent(Dim::Depth) + (isNormalized ? 1 : 0);
  if (FloatAttr constant = op.getScaleAttr())
    scale = rounded(constant.getValueAsDouble());
  return checkExtents();
}

LogicalResult Recurrence::checkExtents() {
  auto same = [&](StringRef what, int64_t lhs, StringRef lhsRole, int64_t rhs, StringRef rhsRole) -> LogicalResult {
    if (lhs == rhs)
      return success();
    return op->emitOpError() << rhsRole << " has " << what << ' ' << rhs << ", but " << lhsRole << " has " << lhs;
  };
  if (failed(same("batch size", query.extent(Dim::Batch), "query", key.extent(Dim::Batch), "key")) ||
      failed(same("batch size", query.extent(Dim::Batch), "query", value.extent(Dim::Batch), "value")) ||
      failed(same("length", key.extent(Dim::Seq), "key", value.extent(Dim::Seq), "value")) ||
      failed(same("head size", query.extent(Dim::Depth), "query", rows, "key")))
    return failure();
  if ((op.getCausal() || op.getCuSeqlens()) &&
      failed(same("length", query.extent(Dim::Seq), "query", key.extent(Dim::Seq), "key")))
    return failure();
  auto isMultiple = [](int64_t x, int64_t y) { return y == 0 ? x == 0 : x % y == 0; };
  for (auto [role, operand] : {std::pair("key", &key), std::pair("erase", &erase)})
    if (operand->getCells() && !isMultiple(heads(), operand->extent(Dim::Head)))
      return op->emitOpError() << "value has " << heads() << " heads, expected a multiple of the "
                               << operand->extent(Dim::Head) << " heads of " << role;
  int64_t queries = query.extent(Dim::Head);
  if (!isMultiple(outputHeads(), queries) || !isMultiple(outputHeads(), heads()))
    return op->emitOpError() << "query has " << queries << " heads, expected a multiple or a divisor of the " << heads()
                             << " heads of value";
  for (auto [role, factor] : {std::pair("decay", &decay), std::pair("beta", &beta)})
    if (factor->cells)
      for (auto [dim, extent] : llvm::zip_equal(factor->axes.getDims(), factor->cells->getShape()))
        if (failed(same("extent of '" + stringifyDim(dim).str() + "'", dim == Dim::Depth ? rows : value.extent(dim),
                        dim == Dim::Depth ? "key" : "value", extent, role)))
          return failure();
  Shape expected;
  if (failed(shapeOfState(op, frame, isNormalized, expected)))
    return failure();
  for (size_t i = 0; before && i < expected.size(); ++i)
    if (failed(same("extent " + std::to_string(i), expected[i], "the state of these keys and values",
                    before->getShape()[i], "state")))
      return failure();
  return success();
}

LogicalResult saccade::reference::shapeOfState(attn::LinearOpInterface op, Frame &frame, bool isNormalized,
                                               Shape &shape) {
  FailureOr<Cells *> key = frame.cells(op.getKey()), value = frame.cells(op.getValue());
  if (failed(key) || failed(value))
    return failure();
  NamedCells keys{*key, op.getKeyDims()}, values{*value, op.getValueDims()};
  for (Dim dim : op.getStateDims()) {
    if (dim != Dim::Batch || !op.getCuSeqlens()) {
      shape.push_back(values.extent(dim));
      continue;
    }
    FailureOr<Cells *> offsets = frame.cells(op.getCuSeqlens());
    if (failed(offsets))
      return failure();
    shape.push_back(std::max<int64_t>((*offsets)->getShape()[0] - 1, 0));
  }
  shape.append({keys.extent(Dim::Depth), values.extent(Dim::Depth) + (isNormalized ? 1 : 0)});
  return success();
}

int64_t Recurrence::length(int64_t batch) const {
  if (!lengths)
    return value.length(batch);
  return std::clamp<int64_t>(lengths->at({batch}).integer, 0, value.extent(Dim::Seq));
}

int64_t Recurrence::stateOffset(int64_t batch, int64_t head) const {
  int64_t first = 0;
  for (Dim dim : const_cast<Recurrence *>(this)->op.getStateDims())
    first = dim == Dim::Batch ? first * value.batches() + batch : first * heads() + head;
  return first * rows * columns;
}

std::vector<double> Recurrence::row(const NamedCells &operand, int64_t batch, int64_t head, int64_t position) const {
  std::vector<double> result;
  const double *from = operand.at(batch, head, position);
  for (int64_t i = 0; i < operand.extent(Dim::Depth); ++i)
    result.push_back(from[i * operand.stride(Dim::Depth)]);
  return result;
}

std::vector<double> Recurrence::values(int64_t batch, int64_t head, int64_t position) const {
  std::vector<double> result = row(value, batch, head, position);
  if (isNormalized)
    result.push_back(1);
  return result;
}

FailureOr<std::vector<double>> Recurrence::eraseKey(int64_t batch, int64_t head, int64_t position) {
  if (erase.getCells())
    return row(erase, batch, shared(erase, head), position);
  return features(key, batch, shared(key, head), position);
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

void Recurrence::beginState(int64_t batch, int64_t head) {
  state.assign(rows * columns, 0.0);
  if (before)
    std::copy_n(before->reals() + stateOffset(batch, head), state.size(), state.begin());
}

std::vector<double> Recurrence::decayFactors(int64_t batch, int64_t head, int64_t position) const {
  std::vector<double> factors(rows, 1.0);
  for (int64_t i = 0; decay.cells && i < rows; ++i)
    factors[i] = rounded(std::exp(decay.at(batch, head, value.start(batch) + position, i)));
  return factors;
}

void Recurrence::decayState(int64_t batch, int64_t head, int64_t position) {
  if (!decay.cells)
    return;
  std::vector<double> factors = decayFactors(batch, head, position);
  for (int64_t i = 0; i < rows * columns; ++i)
    state[i] = rounded(state[i] * factors[i / columns]);
}

double Recurrence::betaAt(int64_t batch, int64_t head, int64_t position) const {
  return beta.cells ? beta.at(batch, head, value.start(batch) + position, 0) : 1;
}

FailureOr<std::vector<double>> Recurrence::remainder(int64_t batch, int64_t head, int64_t position) {
  std::vector<double> result = values(batch, head, position);
  if (!op.hasDeltaRule())
    return result;
  FailureOr<std::vector<double>> at = eraseKey(batch, head, position);
  if (failed(at))
    return failure();
  for (int64_t column = 0; column < columns; ++column)
    result[column] = rounded(result[column] - readColumn(state, *at, column));
  return result;
}

LogicalResult Recurrence::write(int64_t batch, int64_t head, int64_t position) {
  FailureOr<std::vector<double>> k = features(key, batch, shared(key, head), position),
                                 u = remainder(batch, head, position);
  if (failed(k) || failed(u))
    return failure();
  if (beta.cells)
    for (double &element : *u)
      element = rounded(betaAt(batch, head, position) * element);
  addProduct(state, *k, *u);
  return success();
}

void Recurrence::addProduct(std::vector<double> &matrix, ArrayRef<double> x, ArrayRef<double> y, double factor) {
  for (size_t i = 0; i < matrix.size(); ++i)
    matrix[i] = rounded(matrix[i] + rounded(factor * operand(x[i / y.size()]) * operand(y[i % y.size()])));
}

double Recurrence::readColumn(ArrayRef<double> matrix, ArrayRef<double> x, int64_t column) const {
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t row = frame.term(i, rows);
    sum = rounded(sum + rounded(operand(x[row]) * operand(matrix[row * columns + column])));
  }
  return sum;
}

double Recurrence::readRow(ArrayRef<double> matrix, ArrayRef<double> x, int64_t row) const {
  double sum = 0;
  for (int64_t i = 0; i < columns; ++i) {
    int64_t column = frame.term(i, columns);
    sum = rounded(sum + rounded(operand(x[column]) * operand(matrix[row * columns + column])));
  }
  return sum;
}
