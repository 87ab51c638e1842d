//===- Gather.cpp - Gather ops with checked operands ----------------------===//
#include "saccade/Import/Common/Gather.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::frontend;

LogicalResult frontend::requireIndices(FrontendOp &op, Value table, Value indices, ArrayRef<int64_t> dims) {
  auto type = cast<RankedTensorType>(table.getType());
  if (!isa<IntegerType>(elementOf(indices)) || elementOf(indices).isInteger(1))
    return op.error() << "indices are " << indices.getType() << ", expected integers";
  for (int64_t dim : dims)
    if (type.getDimSize(dim) == 0)
      return op.error() << "cannot gather from " << type << ", dimension " << dim << " is empty";
  return success();
}

FailureOr<Value> frontend::gatherSlices(FrontendOp &op, Value table, Value indices, int64_t axis) {
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(table.getType());
  if (!isa<IntegerType>(elementOf(indices)))
    return op.error() << "indices are " << indices.getType() << ", expected integers";
  int64_t extent = type.getDimSize(axis);
  if (std::optional<SmallVector<int64_t>> constant = constantIntegers(indices);
      constant && !ShapedType::isDynamic(extent)) {
    for (int64_t &index : *constant) {
      if (index < -extent || index >= extent)
        return op.error() << "index " << index << " is outside of dimension " << axis << " of " << type;
      index += index < 0 ? extent : 0;
    }
    if (rankOf(indices) == 0)
      return selectIndex(b, table, axis, constant->front());
    // Known elements, such as those of a shape.
    std::optional<SmallVector<OpFoldResult>> elements = elementsOf(table);
    if (elements && type.getRank() == 1 && static_cast<int64_t>(constant->size()) <= maxFoldedElements) {
      auto chosen = llvm::map_to_vector(*constant, [&](int64_t index) { return (*elements)[index]; });
      auto expected = RankedTensorType::get(cast<ShapedType>(indices.getType()).getShape(), type.getElementType());
      return fromElements(b, expected, chosen);
    }
  }
  if (failed(requireIndices(op, table, indices, axis)))
    return failure();
  return gather(b, table, indices, axis);
}

FailureOr<Value> frontend::gatherElements(FrontendOp &op, Value table, Value indices, int64_t axis) {
  ImplicitLocOpBuilder &b = op.builder();
  int64_t rank = rankOf(table);
  if (failed(requireIndices(op, table, indices, axis)))
    return failure();
  auto type = cast<RankedTensorType>(table.getType()), found = cast<RankedTensorType>(indices.getType());
  bool fits = found.getRank() == rank;
  for (int64_t i = 0; fits && i < rank; ++i)
    fits = i == axis || type.isDynamicDim(i) || found.isDynamicDim(i) || found.getDimSize(i) <= type.getDimSize(i);
  if (!fits)
    return op.error() << "indices are " << found << ", expected extents of at most those of " << type
                      << " except along axis " << axis;
  Value extent = getValueOrCreateConstantIndexOp(b, b.getLoc(), extentsOf(b, table)[axis]);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    SmallVector<Value> position(x.take_front(rank));
    position[axis] = clampIndexToExtent(nested, loc, x.back(), extent);
    return tensor::ExtractOp::create(nested, loc, table, position);
  };
  return generate(b, extentsOf(b, indices), indices, elementOf(table), body);
}
