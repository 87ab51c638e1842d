//===- Gathers.cpp - ONNX's operators that look elements up -------------------===//
#include "Onnx.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using door::Extents;

static LogicalResult translateGather(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value table = op.operand(0), indices = op.operand(1);
  auto type = cast<RankedTensorType>(table.getType());
  if (!isa<IntegerType>(elementOf(indices)))
    return op.error() << "indices are " << indices.getType() << ", wanted integers";
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 0), type.getRank());
  if (failed(axis))
    return failure();
  int64_t extent = type.getDimSize(*axis);
  if (std::optional<SmallVector<int64_t>> constant = door::constantIntegers(indices);
      constant && !ShapedType::isDynamic(extent)) {
    for (int64_t &index : *constant) {
      if (index < -extent || index >= extent)
        return op.error() << "index " << index << " is outside of dimension " << *axis << " of " << type;
      index += index < 0 ? extent : 0;
    }
    if (rankOf(indices) == 0) {
      results.push_back(door::pick(b, table, *axis, constant->front()));
      return success();
    }
    // Elements of a shape.
    std::optional<SmallVector<OpFoldResult>> elements = door::elementsOf(table);
    if (elements && type.getRank() == 1 && static_cast<int64_t>(constant->size()) <= door::maxElements) {
      auto chosen = llvm::map_to_vector(*constant, [&](int64_t index) { return (*elements)[index]; });
      auto wanted = RankedTensorType::get(cast<ShapedType>(indices.getType()).getShape(), type.getElementType());
      results.push_back(door::fromElements(b, wanted, chosen));
      return success();
    }
  }
  if (extent == 0)
    return op.error() << "cannot gather from " << type << ", dimension " << *axis << " is empty";
  results.push_back(door::gather(b, table, indices, *axis));
  return success();
}

/// Refuses indices that are no integers, and a table that has nothing to read along `dims`.
static LogicalResult requireIndices(DoorOp &op, ArrayRef<int64_t> dims) {
  auto table = cast<RankedTensorType>(op.operand(0).getType());
  if (!isa<IntegerType>(elementOf(op.operand(1))))
    return op.error() << "indices are " << op.operand(1).getType() << ", wanted integers";
  for (int64_t dim : dims)
    if (table.getDimSize(dim) == 0)
      return op.error() << "cannot gather from " << table << ", dimension " << dim << " is empty";
  return success();
}

/// Element by element: the position of each, but for `axis`, which the indices say.
static LogicalResult translateGatherElements(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value table = op.operand(0), indices = op.operand(1);
  int64_t rank = rankOf(table);
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 0), rank);
  if (failed(axis) || failed(requireIndices(op, *axis)))
    return failure();
  auto type = cast<RankedTensorType>(table.getType()), found = cast<RankedTensorType>(indices.getType());
  bool fits = found.getRank() == rank;
  for (int64_t i = 0; fits && i < rank; ++i)
    fits = i == *axis || type.isDynamicDim(i) || found.isDynamicDim(i) || found.getDimSize(i) <= type.getDimSize(i);
  if (!fits)
    return op.error() << "indices are " << found << ", wanted no more than " << type << " has beside axis " << *axis;
  Value extent = getValueOrCreateConstantIndexOp(b, b.getLoc(), door::extentsOf(b, table)[*axis]);
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    SmallVector<Value> position(x.take_front(rank));
    position[*axis] = door::toPosition(nested, loc, x.back(), extent);
    return tensor::ExtractOp::create(nested, loc, table, position);
  };
  results.push_back(door::generate(b, door::extentsOf(b, indices), indices, elementOf(table), body));
  return success();
}

/// The last dimension of the indices is a position in the table's dimensions behind `batch_dims`, which both have.
static LogicalResult translateGatherND(DoorOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value table = op.operand(0), indices = op.operand(1);
  int64_t rank = rankOf(table), depth = rankOf(indices), batches = op.integer("batch_dims", 0);
  int64_t count = depth ? cast<RankedTensorType>(indices.getType()).getDimSize(depth - 1) : 0;
  if (depth < 1 || ShapedType::isDynamic(count) || batches < 0 || batches >= std::min(rank, depth) || count < 1 ||
      batches + count > rank)
    return op.error() << "indices are " << indices.getType() << ", wanted a static last dimension of 1 to "
                      << rank - batches << " for " << table.getType();
  if (failed(requireIndices(op, llvm::to_vector(llvm::seq(batches, batches + count)))))
    return failure();
  Extents from = door::extentsOf(b, table), result = door::extentsOf(b, indices);
  result.pop_back();
  int64_t outer = result.size(), inner = rank - batches - count;
  result.append(from.end() - inner, from.end());
  // One input for each looked-up dimension, stretched along those of the table that stay.
  SmallVector<Value> inputs, extents;
  for (int64_t i = 0; i < count; ++i) {
    Value one = door::pick(b, indices, depth - 1, i);
    inputs.push_back(inner ? door::unsqueeze(b, one, llvm::to_vector(llvm::seq(outer, outer + inner))) : one);
    extents.push_back(getValueOrCreateConstantIndexOp(b, b.getLoc(), from[batches + i]));
  }
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    SmallVector<Value> position(x.take_front(batches));
    for (auto [index, extent] : llvm::zip(x.take_back(count), extents))
      position.push_back(door::toPosition(nested, loc, index, extent));
    llvm::append_range(position, x.slice(outer, inner));
    return tensor::ExtractOp::create(nested, loc, table, position);
  };
  results.push_back(door::generate(b, result, inputs, elementOf(table), body));
  return success();
}

void onnx::addGathers(door::Door &door) {
  door.translators["Gather"] = translateGather;
  door.translators["GatherElements"] = translateGatherElements;
  door.translators["GatherND"] = translateGatherND;
}
