//===- Windows.cpp - PyTorch views that read elements repeatedly ----------===//
#include "Torch.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

/// An extent that is 0 instead of negative.
static OpFoldResult atLeastZero(ImplicitLocOpBuilder &b, OpFoldResult extent) {
  if (std::optional<int64_t> known = getConstantIntValue(extent))
    return b.getIndexAttr(std::max<int64_t>(*known, 0));
  Value zero = arith::ConstantIndexOp::create(b, 0);
  return frontend::reuseExtent(b, getAsOpFoldResult(frontend::maximum(b, b.getLoc(), cast<Value>(extent), zero)));
}

/// Windows of `size` elements along `dimension`, one every `step` elements. Their elements are the last dimension.
static LogicalResult translateUnfold(Arguments &a, Values &results) {
  FailureOr<Value> self = a.required("self");
  FailureOr<OpFoldResult> size = a.size("size", 1);
  if (failed(self) || failed(size))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  // A single number is a row with one window.
  Value tensor = rankOf(*self) == 0 ? frontend::unsqueeze(b, *self, {0}) : *self;
  FailureOr<int64_t> axis = a.axis("dimension", 0, rankOf(tensor));
  if (failed(axis))
    return failure();
  int64_t step = a.integer("step", 1);
  Extents extents = frontend::extentsOf(b, tensor);
  std::optional<int64_t> width = getConstantIntValue(*size), extent = getConstantIntValue(extents[*axis]);
  if (step < 1 || (width && (*width < 0 || (extent && *width > *extent))))
    return a.op.error() << "found windows of " << width.value_or(-1) << " elements every " << step
                        << " elements, which do not fit dimension " << *axis << " of " << tensor.getType();
  OpFoldResult rest = frontend::subtractExtents(b, extents[*axis], *size);
  rest = atLeastZero(b, frontend::divideExtents(b, rest, b.getIndexAttr(step)));
  if (!width || !extent) { // the slice has a window, and checks that it fits
    Extents covered = extents;
    covered[*axis] = frontend::addExtents(b, frontend::multiplyExtents(b, {rest, b.getIndexAttr(step)}), *size);
    tensor = frontend::firstOf(b, tensor, covered);
  }
  extents[*axis] = frontend::addExtents(b, rest, b.getIndexAttr(1));
  extents.push_back(*size);
  Value made = frontend::generate(
      b, extents, {}, elementOf(tensor), [&](OpBuilder &nested, Location loc, ValueRange at) -> Value {
        SmallVector<Value> position(at.drop_back());
        Value first = frontend::mul(nested, loc, at[*axis], arith::ConstantIndexOp::create(nested, loc, step));
        position[*axis] = frontend::add(nested, loc, first, at.back());
        return tensor::ExtractOp::create(nested, loc, tensor, position);
      });
  results.push_back(rankOf(*self) == 0 ? frontend::squeeze(b, made, {0}) : made);
  return success();
}

/// The diagonal of dimensions `dim1` and `dim2`, `offset` columns to the right, as the last dimension.
static LogicalResult translateDiagonal(Arguments &a, Values &results) {
  FailureOr<Value> tensor = a.required("self");
  if (failed(tensor))
    return failure();
  ImplicitLocOpBuilder &b = a.op.builder();
  int64_t rank = rankOf(*tensor), offset = a.integer("offset", 0);
  FailureOr<int64_t> first = a.axis("dim1", 0, rank), second = a.axis("dim2", 1, rank);
  if (failed(first) || failed(second))
    return failure();
  if (*first == *second)
    return a.op.error() << "found the dimension " << *first << " twice, expected two dimensions";
  int64_t below = std::max<int64_t>(-offset, 0), right = std::max<int64_t>(offset, 0);
  Extents from = frontend::extentsOf(b, *tensor), extents;
  OpFoldResult rows = frontend::subtractExtents(b, from[*first], b.getIndexAttr(below)),
               columns = frontend::subtractExtents(b, from[*second], b.getIndexAttr(right)), length = rows;
  if (rows != columns) {
    Value x = getValueOrCreateConstantIndexOp(b, b.getLoc(), rows);
    Value y = getValueOrCreateConstantIndexOp(b, b.getLoc(), columns);
    length = getAsOpFoldResult(frontend::minimum(b, b.getLoc(), x, y));
  }
  for (int64_t i = 0; i < rank; ++i)
    if (i != *first && i != *second)
      extents.push_back(from[i]);
  extents.push_back(atLeastZero(b, length));
  results.push_back(frontend::generate(
      b, extents, {}, elementOf(*tensor), [&](OpBuilder &nested, Location loc, ValueRange at) -> Value {
        auto shifted = [&](int64_t by) {
          return frontend::add(nested, loc, at.back(), arith::ConstantIndexOp::create(nested, loc, by));
        };
        SmallVector<Value> position;
        for (int64_t i = 0, next = 0; i < rank; ++i)
          position.push_back(i == *first ? shifted(below) : i == *second ? shifted(right) : Value(at[next++]));
        return tensor::ExtractOp::create(nested, loc, *tensor, position);
      }));
  return success();
}

void torch::addWindows(frontend::Frontend &frontend) {
  add(frontend, "aten.diagonal", translateDiagonal);
  add(frontend, "aten.unfold", translateUnfold);
}
