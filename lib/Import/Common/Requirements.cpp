//===- Requirements.cpp - Operand checks shared by all frontends ----------===//
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Structured.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

int64_t frontend::rankOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getRank(); }
Type frontend::elementOf(Value tensor) { return getElementTypeOrSelf(tensor.getType()); }

FailureOr<int64_t> frontend::resolveAxis(FrontendOp &op, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    return op.error() << "axis " << axis << " is outside of a tensor with " << rank << " dimensions";
  return axis < 0 ? axis + rank : axis;
}

FailureOr<SmallVector<int64_t>> frontend::resolveAxes(FrontendOp &op, ArrayRef<int64_t> axes, int64_t rank) {
  SmallVector<int64_t> resolved;
  for (int64_t axis : axes) {
    FailureOr<int64_t> own = resolveAxis(op, axis, rank);
    if (failed(own))
      return failure();
    if (llvm::is_contained(resolved, *own))
      return op.error() << "axis " << axis << " comes twice";
    resolved.push_back(*own);
  }
  return resolved;
}

LogicalResult frontend::requireBroadcast(FrontendOp &op, ValueRange tensors) {
  SmallVector<Extents> shapes;
  for (Value tensor : tensors)
    shapes.push_back(extentsOf(op.builder(), tensor));
  if (succeeded(broadcastExtents(op.builder(), shapes)))
    return success();
  InFlightDiagnostic error = op.error() << "the inputs";
  for (Value tensor : tensors)
    error << " " << tensor.getType();
  return error << " do not broadcast to one another";
}

LogicalResult frontend::requireBroadcastTo(FrontendOp &op, Value tensor, Type to) {
  auto own = cast<RankedTensorType>(tensor.getType()), expected = cast<RankedTensorType>(to);
  int64_t added = expected.getRank() - own.getRank();
  bool fits = added >= 0;
  for (int64_t i = 0; fits && i < own.getRank(); ++i) {
    int64_t extent = own.getDimSize(i), target = expected.getDimSize(added + i);
    fits = extent == 1 || extent == target || ShapedType::isDynamic(extent) || ShapedType::isDynamic(target);
  }
  if (fits)
    return success();
  return op.error() << own << " does not broadcast to the shape of " << expected;
}

LogicalResult frontend::requireEqual(FrontendOp &op, int64_t found, int64_t expected, StringRef what) {
  if (found == expected || ShapedType::isDynamic(found) || ShapedType::isDynamic(expected))
    return success();
  return op.error() << what << ": found " << found << ", expected " << expected;
}

LogicalResult frontend::requireConcatenable(FrontendOp &op, ValueRange tensors, int64_t axis) {
  auto first = cast<RankedTensorType>(tensors.front().getType());
  int64_t rank = first.getRank();
  for (Value tensor : tensors) {
    auto type = cast<RankedTensorType>(tensor.getType());
    bool fits = type.getRank() == rank && type.getElementType() == first.getElementType();
    for (int64_t i = 0; fits && i < rank; ++i)
      fits = i == axis || type.isDynamicDim(i) || first.isDynamicDim(i) || type.getDimSize(i) == first.getDimSize(i);
    if (!fits)
      return op.error() << type << " and " << first << " differ in more than axis " << axis;
  }
  return success();
}

LogicalResult frontend::append(FailureOr<Value> result, SmallVectorImpl<Value> &results) {
  if (failed(result))
    return failure();
  results.push_back(*result);
  return success();
}
