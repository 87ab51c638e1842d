//===- Scatters.cpp - ONNX scatter operators ------------------------------===//
#include "Onnx.h"
#include "saccade/Import/Common/Scatter.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using frontend::Extents;

/// Rejects scatter with a reduction and mismatched operands.
static LogicalResult verifyScatter(FrontendOp &op) {
  if (failed(requireOperands(op, 3, 3)))
    return failure();
  if (StringRef reduction = op.text("reduction", "none"); reduction != "none")
    return op.error() << "the reduction '" << reduction << "' is not supported";
  if (!isa<IntegerType>(elementOf(op.operand(1))))
    return op.error() << "indices are " << op.operand(1).getType() << ", expected integers";
  if (elementOf(op.operand(0)) != elementOf(op.operand(2)))
    return op.error() << "updates are " << op.operand(2).getType() << ", expected elements of "
                      << elementOf(op.operand(0));
  return success();
}

/// The last dimension of the indices is a position in the leading dimensions of the tensor. Updates have the other
/// dimensions of the indices, then those of the tensor.
static LogicalResult translateScatterND(FrontendOp &op, Values &results) {
  if (failed(verifyScatter(op)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Value tensor = op.operand(0), indices = op.operand(1), updates = op.operand(2);
  int64_t rank = rankOf(tensor), depth = rankOf(indices);
  int64_t count = depth ? cast<RankedTensorType>(indices.getType()).getShape().back() : 0;
  if (depth < 1 || ShapedType::isDynamic(count) || count < 1 || count > rank)
    return op.error() << "indices are " << indices.getType() << ", expected a static last dimension of 1 to " << rank;
  Extents extents = frontend::extentsOf(b, tensor), from = frontend::extentsOf(b, indices);
  auto type = cast<RankedTensorType>(updates.getType());
  Extents fitting(from.begin(), from.end() - 1);
  fitting.append(extents.begin() + count, extents.end());
  bool fits = type.getRank() == static_cast<int64_t>(fitting.size());
  for (int64_t i = 0; fits && i < type.getRank(); ++i)
    fits = type.isDynamicDim(i) || getConstantIntValue(fitting[i]).value_or(type.getDimSize(i)) == type.getDimSize(i);
  if (!fits)
    return op.error() << "updates are " << type << ", expected a shape that fits indices " << indices.getType()
                      << " and tensor " << tensor.getType();
  // Flatten the updates.
  OpFoldResult number = frontend::multiplyExtents(b, ArrayRef(from).drop_back());
  if (isConstantIntValue(number, 0)) {
    results.push_back(tensor);
    return success();
  }
  Extents rows = {number};
  rows.append(extents.begin() + count, extents.end());
  Value listed = frontend::reshape(b, updates, rows),
        table = frontend::reshape(b, indices, {number, b.getIndexAttr(count)});
  SmallVector<Value> columns;
  for (int64_t i = 0; i < count; ++i)
    columns.push_back(frontend::selectIndex(b, table, 1, i));
  SmallVector<int64_t> leading = llvm::to_vector(llvm::seq<int64_t>(0, count));
  results.push_back(frontend::scatterSlices(b, tensor, leading, columns, listed, /*at=*/0));
  return success();
}

/// Each update goes to its own position, with the position along `axis` replaced by the index.
static LogicalResult translateScatterElements(FrontendOp &op, Values &results) {
  if (failed(verifyScatter(op)))
    return failure();
  Value tensor = op.operand(0), indices = op.operand(1), updates = op.operand(2);
  FailureOr<int64_t> axis = resolveAxis(op, op.integer("axis", 0), rankOf(tensor));
  if (failed(axis))
    return failure();
  return append(frontend::scatterElements(op, tensor, indices, updates, *axis), results);
}

void onnx::addScatters(frontend::Frontend &frontend) {
  frontend.translators["ScatterND"] = translateScatterND;
  frontend.translators["ScatterElements"] = frontend.translators["Scatter"] = translateScatterElements;
}
