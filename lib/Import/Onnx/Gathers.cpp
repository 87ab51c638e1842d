//===- Gathers.cpp - ONNX gather operators --------------------------------===//
#include "Onnx.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/Gather.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;

static LogicalResult translateGather(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 0), rankOf(op.operand(0)));
  if (failed(axis))
    return failure();
  return append(frontend::gatherSlices(op, op.operand(0), op.operand(1), *axis), results);
}

static LogicalResult translateGatherElements(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 0), rankOf(op.operand(0)));
  if (failed(axis))
    return failure();
  return append(frontend::gatherElements(op, op.operand(0), op.operand(1), *axis), results);
}

/// The last dimension of the indices is a position in the dimensions of the table after the common `batch_dims`.
static LogicalResult translateGatherND(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 2)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value table = op.operand(0), indices = op.operand(1);
  int64_t rank = rankOf(table), depth = rankOf(indices), batches = op.integer("batch_dims", 0);
  int64_t count = depth ? cast<RankedTensorType>(indices.getType()).getDimSize(depth - 1) : 0;
  if (depth < 1 || ShapedType::isDynamic(count) || batches < 0 || batches >= std::min(rank, depth) || count < 1 ||
      batches + count > rank)
    return op.error() << "indices are " << indices.getType() << ", expected a static last dimension of 1 to "
                      << rank - batches << " for " << table.getType();
  if (failed(frontend::requireIndices(op, table, indices, llvm::to_vector(llvm::seq(batches, batches + count)))))
    return failure();
  Extents from = frontend::extentsOf(b, table), result = frontend::extentsOf(b, indices);
  result.pop_back();
  int64_t outer = result.size(), inner = rank - batches - count;
  result.append(from.end() - inner, from.end());
  // One input per gathered dimension, broadcast along the remaining dimensions of the table.
  SmallVector<Value> inputs, extents;
  for (int64_t i = 0; i < count; ++i) {
    Value one = frontend::selectIndex(b, indices, depth - 1, i);
    inputs.push_back(inner ? frontend::unsqueeze(b, one, llvm::to_vector(llvm::seq(outer, outer + inner))) : one);
    extents.push_back(getValueOrCreateConstantIndexOp(b, b.getLoc(), from[batches + i]));
  }
  auto body = [&](OpBuilder &nested, Location loc, ValueRange x) -> Value {
    SmallVector<Value> position(x.take_front(batches));
    for (auto [index, extent] : llvm::zip(x.take_back(count), extents))
      position.push_back(frontend::clampIndexToExtent(nested, loc, index, extent));
    llvm::append_range(position, x.slice(outer, inner));
    return tensor::ExtractOp::create(nested, loc, table, position);
  };
  results.push_back(frontend::generate(b, result, inputs, elementOf(table), body));
  return success();
}

void onnx::addGathers(frontend::Frontend &frontend) {
  frontend.translators["Gather"] = translateGather;
  frontend.translators["GatherElements"] = translateGatherElements;
  frontend.translators["GatherND"] = translateGatherND;
}
