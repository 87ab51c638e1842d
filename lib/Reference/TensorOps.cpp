//===- TensorOps.cpp - Constants, elementwise ops and tensor ops ---------------===//
#include "Program.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace saccade::reference;

/// Calls `value(index, element)` for every element of `box` of a result of `op`, to compute it.
template <typename Fill>
static LogicalResult fill(Operation *op, Frame &frame, const Box &box, Fill value, unsigned result = 0) {
  FailureOr<Cells *> cells = frame.cells(op->getResult(result));
  if (failed(cells))
    return failure();
  LogicalResult status = success();
  forEachPoint(box, [&](ArrayRef<int64_t> index) {
    if (succeeded(status))
      status = value(index, (*cells)->at(index));
  });
  return status;
}

/// For ops whose result type is always static.
template <typename OpTy> static LogicalResult noShape(OpTy, Frame &, unsigned, Shape &) {
  llvm_unreachable("the result type is static");
}

/// The shape of operand `number`.
template <typename OpTy, unsigned number>
static LogicalResult shapeOfOperand(OpTy op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> cells = frame.cells(op->getOperand(number));
  if (failed(cells))
    return failure();
  shape.assign((*cells)->getShape().begin(), (*cells)->getShape().end());
  return success();
}

//===----------------------------------------------------------------------===//
// Constants and elementwise ops
//===----------------------------------------------------------------------===//

static LogicalResult evaluateConstant(arith::ConstantOp op, Frame &frame, unsigned, const Box &box) {
  if (FailureOr<Scalar> number = scalarOf(op.getValue()); succeeded(number))
    return fill(op, frame, box, [&](ArrayRef<int64_t>, Scalar &element) { return element = *number, success(); });
  auto elements = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!elements || !elements.getElementType().isIntOrIndexOrFloat())
    return op.emitOpError() << "is a constant that the reference interpreter does not support";
  auto values = elements.getValues<Attribute>();
  SmallVector<int64_t> strides = rowMajorStrides(elements.getType().getShape());
  return fill(op, frame, box, [&](ArrayRef<int64_t> index, Scalar &element) -> LogicalResult {
    FailureOr<Scalar> number =
        scalarOf(elements.isSplat() ? elements.getSplatValue<Attribute>() : values[linearIndex(index, strides)]);
    if (failed(number))
      return op.emitOpError() << "is a constant that the reference interpreter does not support";
    element = *number;
    return success();
  });
}

/// An elementwise op on scalars or tensors; scalar operands, such as the condition of a select, are broadcast.
static LogicalResult evaluateElementwise(Operation *op, Frame &frame, unsigned result, const Box &box) {
  SmallVector<Cells *, 3> operands;
  for (Value operand : op->getOperands()) {
    bool isTensor = isa<RankedTensorType>(operand.getType());
    FailureOr<Cells *> cells = frame.cells(operand);
    if (succeeded(cells) && isTensor && (*cells)->getShape() != (*frame.cells(op->getResult(0)))->getShape())
      return op->emitOpError() << "has operands of different shapes";
    cells = frame.demand(operand, isTensor ? box : Box{});
    if (failed(cells))
      return failure();
    operands.push_back(*cells);
  }
  ScalarFunction function = scalarFunction(op, result);
  Type type = getElementTypeOrSelf(op->getResult(result));
  bool rounds = isRounded(frame.getPrecision(), type);
  return fill(
      op, frame, box,
      [&](ArrayRef<int64_t> index, Scalar &element) -> LogicalResult {
        SmallVector<Scalar, 3> values;
        for (Cells *cells : operands)
          values.push_back(cells->getShape().empty() ? *cells->data() : cells->at(index));
        if (Problem problem = function(values.data(), element))
          return op->emitOpError() << problem;
        if (rounds)
          element.real = roundTo(type, element.real);
        return success();
      },
      result);
}

const Semantics &saccade::reference::elementwiseSemantics() {
  static const Semantics semantics = {[](Operation *op, Frame &frame, unsigned, Shape &shape) -> LogicalResult {
                                        for (Value operand : op->getOperands())
                                          if (isa<RankedTensorType>(operand.getType())) {
                                            FailureOr<Cells *> cells = frame.cells(operand);
                                            if (failed(cells))
                                              return failure();
                                            shape.assign((*cells)->getShape().begin(), (*cells)->getShape().end());
                                          }
                                        return success();
                                      },
                                      evaluateElementwise};
  return semantics;
}

//===----------------------------------------------------------------------===//
// Creating tensors
//===----------------------------------------------------------------------===//

/// The shape of the result type, with dynamic extents from `sizes` in order.
template <typename OpTy> static LogicalResult shapeFromSizes(OpTy op, Frame &frame, OperandRange sizes, Shape &shape) {
  for (int64_t extent : cast<RankedTensorType>(op->getResult(0).getType()).getShape()) {
    FailureOr<int64_t> size = extent;
    if (ShapedType::isDynamic(extent)) {
      size = frame.index(sizes.front());
      sizes = sizes.drop_front();
    }
    if (failed(size))
      return failure();
    shape.push_back(*size);
  }
  return success();
}

template <typename OpTy> static LogicalResult shapeFromDynamicExtents(OpTy op, Frame &frame, unsigned, Shape &shape) {
  if constexpr (std::is_same_v<OpTy, tensor::GenerateOp>)
    return shapeFromSizes(op, frame, op.getDynamicExtents(), shape);
  else
    return shapeFromSizes(op, frame, op.getDynamicSizes(), shape);
}

/// Uninitialised elements are NaN or an arbitrary integer pattern, so that their use shows in results.
static LogicalResult evaluateEmpty(tensor::EmptyOp op, Frame &frame, unsigned, const Box &box) {
  bool isReal = isa<FloatType>(op.getType().getElementType());
  Scalar unset =
      isReal ? Scalar{.real = NAN} : Scalar{.integer = wrapTo(op.getType().getElementType(), 0x5a5a5a5a5a5a5a5a)};
  return fill(op, frame, box, [&](ArrayRef<int64_t>, Scalar &element) { return element = unset, success(); });
}

static LogicalResult evaluateSplat(tensor::SplatOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Scalar> value = frame.scalar(op.getInput());
  if (failed(value))
    return failure();
  return fill(op, frame, box, [&](ArrayRef<int64_t>, Scalar &element) { return element = *value, success(); });
}

static LogicalResult evaluateFromElements(tensor::FromElementsOp op, Frame &frame, unsigned, const Box &box) {
  SmallVector<int64_t> strides = rowMajorStrides(op.getType().getShape());
  return fill(op, frame, box, [&](ArrayRef<int64_t> index, Scalar &element) -> LogicalResult {
    FailureOr<Scalar> value = frame.scalar(op.getElements()[linearIndex(index, strides)]);
    if (succeeded(value))
      element = *value;
    return value;
  });
}

/// Runs `body`, whose arguments are the index of an element.
static LogicalResult runIndexed(Program &body, ArrayRef<int64_t> index, Scalar &element) {
  for (auto [dim, position] : llvm::enumerate(index))
    body.setArgument(dim, Scalar{.integer = position});
  if (failed(body.run()))
    return failure();
  element = body.yielded(0);
  return success();
}

static LogicalResult evaluateGenerate(tensor::GenerateOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Program *> body = bindProgram(op.getBody(), frame);
  if (failed(body))
    return failure();
  return fill(op, frame, box,
              [&](ArrayRef<int64_t> index, Scalar &element) { return runIndexed(**body, index, element); });
}

//===----------------------------------------------------------------------===//
// Element access
//===----------------------------------------------------------------------===//

static LogicalResult evaluateDim(tensor::DimOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> source = frame.cells(op.getSource());
  FailureOr<int64_t> dim = frame.index(op.getIndex());
  if (failed(source) || failed(dim))
    return failure();
  if (*dim < 0 || *dim >= int64_t((*source)->getShape().size()))
    return op.emitOpError() << "reads the extent of dimension " << *dim << " of a tensor of rank "
                            << (*source)->getShape().size();
  return fill(op, frame, box, [&](ArrayRef<int64_t>, Scalar &element) {
    element.integer = (*source)->getShape()[*dim];
    return success();
  });
}

static LogicalResult evaluateRank(tensor::RankOp op, Frame &frame, unsigned, const Box &box) {
  return fill(op, frame, box, [&](ArrayRef<int64_t>, Scalar &element) {
    element.integer = cast<RankedTensorType>(op.getTensor().getType()).getRank();
    return success();
  });
}

/// Evaluates `values` as an index into `cells`; fails if it is out of bounds.
static LogicalResult indexInto(Operation *op, Frame &frame, Cells *cells, ValueRange values,
                               SmallVectorImpl<int64_t> &index) {
  if (failed(frame.indices(getAsOpFoldResult(values), index)))
    return failure();
  for (auto [dim, extent] : llvm::enumerate(cells->getShape()))
    if (index[dim] < 0 || index[dim] >= extent)
      return op->emitOpError() << "has index " << index[dim] << " in dimension " << dim << ", which has extent "
                               << extent;
  return success();
}

static LogicalResult evaluateExtract(tensor::ExtractOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> source = frame.cells(op.getTensor());
  SmallVector<int64_t> index;
  if (failed(source) || failed(indexInto(op, frame, *source, op.getIndices(), index)) ||
      failed(frame.demand(op.getTensor(), Box{index, SmallVector<int64_t>(index.size(), 1)})))
    return failure();
  return fill(op, frame, box,
              [&](ArrayRef<int64_t>, Scalar &element) { return element = (*source)->at(index), success(); });
}

static LogicalResult evaluateInsert(tensor::InsertOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> dest = frame.demand(op.getDest(), box);
  FailureOr<Scalar> scalar = frame.scalar(op.getScalar());
  SmallVector<int64_t> target;
  if (failed(dest) || failed(scalar) || failed(indexInto(op, frame, *dest, op.getIndices(), target)))
    return failure();
  return fill(op, frame, box, [&](ArrayRef<int64_t> index, Scalar &element) {
    element = index == ArrayRef<int64_t>(target) ? *scalar : (*dest)->at(index);
    return success();
  });
}

static LogicalResult evaluateCast(tensor::CastOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> source = frame.demand(op.getSource(), box);
  if (failed(source))
    return failure();
  return fill(op, frame, box,
              [&](ArrayRef<int64_t> index, Scalar &element) { return element = (*source)->at(index), success(); });
}

//===----------------------------------------------------------------------===//
// tensor.pad and tensor.concat
//===----------------------------------------------------------------------===//

static LogicalResult shapeOfPad(tensor::PadOp op, Frame &frame, unsigned, Shape &shape) {
  FailureOr<Cells *> source = frame.cells(op.getSource());
  SmallVector<int64_t> low, high;
  if (failed(source) || failed(frame.indices(op.getMixedLowPad(), low)) ||
      failed(frame.indices(op.getMixedHighPad(), high)))
    return failure();
  for (auto [dim, extent] : llvm::enumerate((*source)->getShape()))
    shape.push_back(low[dim] + extent + high[dim]);
  return success();
}

static LogicalResult evaluatePad(tensor::PadOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> source = frame.cells(op.getSource());
  SmallVector<int64_t> low;
  if (failed(source) || failed(frame.indices(op.getMixedLowPad(), low)))
    return failure();
  Box inside{low, SmallVector<int64_t>((*source)->getShape())};
  if (std::optional<Box> needed = intersect(inside, box)) {
    for (auto [offset, padding] : llvm::zip_equal(needed->offsets, low))
      offset -= padding;
    if (failed(frame.demand(op.getSource(), *needed)))
      return failure();
  }
  FailureOr<Program *> padding = bindProgram(op.getRegion(), frame);
  if (failed(padding))
    return failure();
  return fill(op, frame, box, [&](ArrayRef<int64_t> index, Scalar &element) -> LogicalResult {
    SmallVector<int64_t> position;
    bool isInside = true;
    for (auto [dim, extent] : llvm::enumerate((*source)->getShape())) {
      position.push_back(index[dim] - low[dim]);
      isInside &= position.back() >= 0 && position.back() < extent;
    }
    if (!isInside)
      return runIndexed(**padding, index, element);
    element = (*source)->at(position);
    return success();
  });
}

static LogicalResult shapeOfConcat(tensor::ConcatOp op, Frame &frame, unsigned, Shape &shape) {
  for (Value input : op.getInputs()) {
    FailureOr<Cells *> cells = frame.cells(input);
    if (failed(cells))
      return failure();
    if (shape.empty())
      shape.assign((*cells)->getShape().begin(), (*cells)->getShape().end());
    else
      shape[op.getDim()] += (*cells)->getShape()[op.getDim()];
  }
  return success();
}

static LogicalResult evaluateConcat(tensor::ConcatOp op, Frame &frame, unsigned, const Box &box) {
  FailureOr<Cells *> to = frame.cells(op.getResult());
  if (failed(to))
    return failure();
  int64_t start = 0;
  for (Value input : op.getInputs()) {
    FailureOr<Cells *> from = frame.cells(input);
    if (failed(from))
      return failure();
    Box piece = Box::whole((*from)->getShape());
    for (auto [dim, extent] : llvm::enumerate((*to)->getShape()))
      if (dim != op.getDim() && piece.sizes[dim] != extent)
        return op.emitOpError() << "concatenates tensors of different extents in dimension " << dim << ": "
                                << piece.sizes[dim] << " and " << extent;
    piece.offsets[op.getDim()] = start;
    std::optional<Box> shared = intersect(piece, box);
    if (shared) {
      Box needed = *shared;
      needed.offsets[op.getDim()] -= start;
      if (failed(frame.demand(input, needed)))
        return failure();
      forEachPoint(needed, [&](ArrayRef<int64_t> index) {
        SmallVector<int64_t> target(index);
        target[op.getDim()] += start;
        (*to)->at(target) = (*from)->at(index);
      });
    }
    start += (*from)->getShape()[op.getDim()];
  }
  return success();
}

void saccade::reference::addTensorSemantics(SemanticsTable &table) {
  table.add<arith::ConstantOp>(noShape, evaluateConstant);
  table.add<tensor::EmptyOp>(shapeFromDynamicExtents, evaluateEmpty);
  table.add<tensor::SplatOp>(shapeFromDynamicExtents, evaluateSplat);
  table.add<tensor::FromElementsOp>(noShape, evaluateFromElements);
  table.add<tensor::GenerateOp>(shapeFromDynamicExtents, evaluateGenerate);
  table.add<tensor::DimOp>(noShape, evaluateDim);
  table.add<tensor::RankOp>(noShape, evaluateRank);
  table.add<tensor::ExtractOp>(noShape, evaluateExtract);
  table.add<tensor::InsertOp>(shapeOfOperand<tensor::InsertOp, 1>, evaluateInsert);
  table.add<tensor::CastOp>(shapeOfOperand<tensor::CastOp, 0>, evaluateCast);
  table.add<tensor::PadOp>(shapeOfPad, evaluatePad);
  table.add<tensor::ConcatOp>(shapeOfConcat, evaluateConcat);
}
