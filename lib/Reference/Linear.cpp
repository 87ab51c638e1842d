//===- Linear.cpp - attn.linear as a recurrence -----------------------------------===//
//
// The definition, without chunks: keys and values update the state one position after another, and queries read it.
//
//===----------------------------------------------------------------------===//
#include "Scoring.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::reference;
using attn::Dim;

namespace {

/// Decay or beta: a factor that is broadcast along the dimensions it does not name.
struct Factor {
  Cells *cells = nullptr;
  attn::AxesAttr axes;

  double at(int64_t batch, int64_t head, int64_t position, int64_t depth) const {
    int64_t linear = 0;
    for (auto [dim, stride] : llvm::zip_equal(axes.getDims(), cells->getStrides()))
      linear += stride * (dim == Dim::Batch ? batch : dim == Dim::Head ? head : dim == Dim::Seq ? position : depth);
    return cells->reals()[linear];
  }
};

/// The recurrence of one batch and KV head.
class Recurrence {
public:
  /// Computes both results completely, since a row depends on all earlier positions.
  static LogicalResult run(attn::LinearOp op, Frame &frame);

private:
  Recurrence(attn::LinearOp op, Frame &frame) : op(op), frame(frame), type(op.getStateType()) {}
  LogicalResult fetch();
  LogicalResult checkExtents();
  /// `head`: of the operand that has the state.
  LogicalResult runHead(int64_t batch, int64_t head);

  /// Applies the feature map φ to the head-size elements at `from`.
  LogicalResult features(const double *from, int64_t stride, std::vector<double> &to);
  /// Decays the state of `head`, the head of decay.
  void decayState(int64_t batch, int64_t head, int64_t position);
  LogicalResult write(int64_t batch, int64_t head, int64_t position);
  LogicalResult read(int64_t batch, int64_t head, int64_t position);
  double rounded(double value) const { return frame.rounded(type, value); }
  double &cell(int64_t row, int64_t column) { return state[row * columns + column]; }
  /// Element `column` of Sᵀ x.
  double readState(ArrayRef<double> x, int64_t column);

  attn::LinearOp op;
  Frame &frame;
  Type type;
  NamedCells query, key, value, output;
  Factor decay, beta;
  Cells *before = nullptr, *after = nullptr;
  Program *feature = nullptr;
  double scale = 1;
  /// Rows are key features, columns value elements; with `normalize`, the last column accumulates values of 1.
  std::vector<double> state, k, v, q;
  int64_t rows = 0, columns = 0;
};

LogicalResult Recurrence::checkExtents() {
  auto same = [&](StringRef what, int64_t lhs, StringRef lhsRole, int64_t rhs, StringRef rhsRole) -> LogicalResult {
    if (lhs == rhs)
      return success();
    return op.emitOpError() << rhsRole << " has " << what << ' ' << rhs << ", but " << lhsRole << " has " << lhs;
  };
  auto extentOf = [&](const attn::NamedOperand &operand, Dim dim) {
    return (operand.role == "query" ? query : operand.role == "key" ? key : value).extent(dim);
  };
  attn::NamedOperand owner = op.getStateOwner(), grouped = op.getGrouped();
  int64_t heads = extentOf(grouped, Dim::Head), groups = extentOf(owner, Dim::Head);
  if (failed(same("batch size", query.extent(Dim::Batch), "query", key.extent(Dim::Batch), "key")) ||
      failed(same("batch size", query.extent(Dim::Batch), "query", value.extent(Dim::Batch), "value")) ||
      failed(same("head count", key.extent(Dim::Head), "key", value.extent(Dim::Head), "value")) ||
      failed(same("length", key.extent(Dim::Seq), "key", value.extent(Dim::Seq), "value")) ||
      failed(same("head size", query.extent(Dim::Depth), "query", rows, "key")))
    return failure();
  if (op.getCausal() && failed(same("length", query.extent(Dim::Seq), "query", key.extent(Dim::Seq), "key")))
    return failure();
  if (groups == 0 ? heads != 0 : heads % groups != 0)
    return op.emitOpError() << grouped.role << " has " << heads << " heads, expected a multiple of the " << groups
                            << (op.getTransposed() ? " query heads" : " KV heads");
  for (auto [role, factor] : {std::pair("decay", &decay), std::pair("beta", &beta)})
    if (factor->cells)
      for (auto [dim, extent] : llvm::zip_equal(factor->axes.getDims(), factor->cells->getShape()))
        if (attn::NamedOperand of = op.getFactorOwner(dim);
            failed(same("extent of '" + stringifyDim(dim).str() + "'", extentOf(of, dim), of.role, extent, role)))
          return failure();
  SmallVector<int64_t> expected;
  for (Dim dim : op.getStateDims())
    expected.push_back(extentOf(owner, dim));
  expected.append({rows, columns});
  for (auto [role, cells] : {std::pair("state", before), std::pair("final state", after)})
    if (cells)
      for (auto [i, extent] : llvm::enumerate(expected))
        if (failed(same("extent " + std::to_string(i), extent, "the state of these keys and values",
                        cells->getShape()[i], role)))
          return failure();
  return success();
}

LogicalResult Recurrence::fetch() {
  auto fetchAll = [&](Value operand, Cells *&cells) -> LogicalResult {
    if (!operand)
      return success();
    FailureOr<Cells *> found = frame.demandAll(operand);
    if (succeeded(found))
      cells = *found;
    return found;
  };
  for (auto [view, operand, dims] :
       {std::tuple(&query, op.getQuery(), op.getQueryDims()), std::tuple(&key, op.getKey(), op.getKeyDims()),
        std::tuple(&value, op.getValue(), op.getValueDims())}) {
    Cells *cells = nullptr;
    if (failed(fetchAll(operand, cells)))
      return failure();
    *view = {cells, dims};
  }
  decay.axes = op.getDecayAxesAttr();
  beta.axes = op.getBetaAxesAttr();
  FailureOr<Cells *> out = frame.cells(op.getOutput());
  if (failed(fetchAll(op.getDecay(), decay.cells)) || failed(fetchAll(op.getBeta(), beta.cells)) ||
      failed(fetchAll(op.getState(), before)) || failed(out))
    return failure();
  output = {*out, op.getOutputDims()};
  if (op.getFinalState()) {
    FailureOr<Cells *> found = frame.cells(op.getFinalState());
    if (failed(found))
      return failure();
    after = *found;
  }
  rows = key.extent(Dim::Depth);
  columns = value.extent(Dim::Depth) + (op.getNormalize() ? 1 : 0);
  if (FloatAttr constant = op.getScaleAttr())
    scale = rounded(constant.getValueAsDouble());
  if (!op.getFeature().empty()) {
    FailureOr<Program *> bound = bindProgram(op.getFeature(), frame);
    if (failed(bound))
      return failure();
    feature = *bound;
  }
  return checkExtents();
}

LogicalResult Recurrence::features(const double *from, int64_t stride, std::vector<double> &to) {
  to.clear();
  for (int64_t i = 0; i < rows; ++i) {
    to.push_back(from[i * stride]);
    if (!feature)
      continue;
    feature->setArgument(0, Scalar{.real = to.back()});
    if (failed(feature->run()))
      return failure();
    to.back() = feature->yielded(0).real;
  }
  return success();
}

double Recurrence::readState(ArrayRef<double> x, int64_t column) {
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t row = frame.term(i, rows);
    sum = rounded(sum + rounded(x[row] * cell(row, column)));
  }
  return sum;
}

void Recurrence::decayState(int64_t batch, int64_t head, int64_t position) {
  if (!decay.cells)
    return;
  bool ofColumns = op.getDecaysColumns();
  SmallVector<double> factors;
  for (int64_t i = 0; i < (ofColumns ? columns : rows); ++i)
    factors.push_back(rounded(std::exp(decay.at(batch, head, position, i))));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      cell(row, column) = rounded(cell(row, column) * factors[ofColumns ? column : row]);
}

LogicalResult Recurrence::write(int64_t batch, int64_t head, int64_t position) {
  if (failed(features(key.at(batch, head, position), key.stride(Dim::Depth), k)))
    return failure();
  const double *from = value.at(batch, head, position);
  v.assign(columns, 1.0);
  for (int64_t column = 0; column < value.extent(Dim::Depth); ++column)
    v[column] = from[column * value.stride(Dim::Depth)];
  if (beta.cells)
    for (int64_t column = 0; column < columns; ++column)
      v[column] = rounded(beta.at(batch, head, position, 0) * rounded(v[column] - readState(k, column)));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      cell(row, column) = rounded(cell(row, column) + rounded(k[row] * v[column]));
  return success();
}

LogicalResult Recurrence::read(int64_t batch, int64_t head, int64_t position) {
  if (failed(features(query.at(batch, head, position), query.stride(Dim::Depth), q)))
    return failure();
  double *to = output.at(batch, head, position);
  double sum = op.getNormalize() ? readState(q, columns - 1) : 1;
  for (int64_t column = 0; column < value.extent(Dim::Depth); ++column) {
    double number = readState(q, column);
    number = op.getNormalize() ? (sum == 0 ? 0 : number / sum) : number * scale;
    to[column * output.stride(Dim::Depth)] = frame.rounded(output.getCells()->getElementType(), rounded(number));
  }
  return success();
}

LogicalResult Recurrence::runHead(int64_t batch, int64_t head) {
  bool isTransposed = op.getTransposed();
  const NamedCells &owner = isTransposed ? query : key, &grouped = isTransposed ? key : query;
  int64_t group = grouped.extent(Dim::Head) / owner.extent(Dim::Head);
  int64_t first = 0;
  for (Dim dim : op.getStateDims())
    first = first * owner.extent(dim) + (dim == Dim::Batch ? batch : head);
  first *= rows * columns;
  state.assign(rows * columns, 0.0);
  if (before)
    std::copy_n(before->reals() + first, state.size(), state.begin());
  auto forHeads = [&](bool isQuery, int64_t position) -> LogicalResult {
    int64_t count = isQuery != isTransposed ? group : 1;
    for (int64_t i = head * count; i < (head + 1) * count; ++i)
      if (failed(isQuery ? read(batch, i, position) : write(batch, i, position)))
        return failure();
    return success();
  };
  auto readAll = [&](int64_t position) { return forHeads(/*isQuery=*/true, position); };
  for (int64_t i = 0, length = key.extent(Dim::Seq); i < length; ++i) {
    int64_t position = isTransposed ? length - 1 - i : i;
    if (!isTransposed)
      decayState(batch, head, position);
    if (failed(forHeads(/*isQuery=*/false, position)) || (op.getCausal() && failed(readAll(position))))
      return failure();
    if (isTransposed)
      decayState(batch, head, position);
  }
  for (int64_t i = 0; !op.getCausal() && i < query.extent(Dim::Seq); ++i)
    if (failed(readAll(i)))
      return failure();
  for (size_t i = 0; after && i < state.size(); ++i)
    after->reals()[first + i] = frame.rounded(after->getElementType(), state[i]);
  return success();
}

LogicalResult Recurrence::run(attn::LinearOp op, Frame &frame) {
  Recurrence recurrence(op, frame);
  if (failed(recurrence.fetch()))
    return failure();
  const NamedCells &owner = op.getTransposed() ? recurrence.query : recurrence.key;
  for (int64_t batch = 0; batch < owner.extent(Dim::Batch); ++batch)
    for (int64_t head = 0; head < owner.extent(Dim::Head); ++head)
      if (failed(recurrence.runHead(batch, head)))
        return failure();
  for (Cells *cells : {recurrence.output.getCells(), recurrence.after})
    if (cells)
      cells->setKnown(Box::whole(cells->getShape()));
  return success();
}

LogicalResult evaluateLinear(attn::LinearOp op, Frame &frame, unsigned, const Box &) {
  return Recurrence::run(op, frame);
}

LogicalResult shapeOfLinear(attn::LinearOp op, Frame &frame, unsigned result, Shape &shape) {
  FailureOr<Cells *> query = frame.cells(op.getQuery()), key = frame.cells(op.getKey()),
                     value = frame.cells(op.getValue());
  if (failed(query) || failed(key) || failed(value))
    return failure();
  NamedCells queries{*query, op.getQueryDims()}, keys{*key, op.getKeyDims()}, values{*value, op.getValueDims()};
  if (result == 0) {
    for (Dim dim : op.getOutputDims().getDims())
      shape.push_back(dim == Dim::Depth ? values.extent(dim) : queries.extent(dim));
    return success();
  }
  for (Dim dim : op.getStateDims())
    shape.push_back((op.getTransposed() ? queries : keys).extent(dim));
  shape.append({keys.extent(Dim::Depth), values.extent(Dim::Depth) + (op.getNormalize() ? 1 : 0)});
  return success();
}

} // namespace

void saccade::reference::addLinearSemantics(SemanticsTable &table) {
  table.add<attn::LinearOp>(shapeOfLinear, evaluateLinear);
}
