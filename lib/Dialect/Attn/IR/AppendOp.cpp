//===- AppendOp.cpp - attn.append ---------------------------------------------===//
//
// Verifies that new rows fit the cache.
//
//===----------------------------------------------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

LogicalResult AppendOp::verify() {
  NamedOperand rows{"new rows", getRows(), getRowsDims()}, cache{"cache", getCache(), getCacheDims()};
  for (const NamedOperand &operand : {rows, cache})
    if (int64_t rank = cast<ShapedType>(operand.value.getType()).getRank(); rank != operand.dims.size())
      return emitOpError() << operand.role << " has rank " << rank << ", but names " << operand.dims.size()
                           << " dimensions";
  if (getCache().getType() != getType())
    return emitOpError() << "result has type " << getType() << ", expected that of the cache, " << getCache().getType();
  if (failed(verifyElement(*this, "new rows", getRows(), getElementTypeOrSelf(getCache()))))
    return failure();
  for (Dim dim : {Dim::Head, Dim::Depth})
    if (failed(verifySameExtent(*this, describe(dim), cache.role, cache.size(dim), rows.role, rows.size(dim))))
      return failure();
  StringRef role = cache.role;
  int64_t batches = cache.size(Dim::Batch);
  if (Value table = getTable()) {
    if (getRing())
      return emitOpError("has 'pages' and 'ring', expected one of them");
    if (!getCacheDims().position(Dim::Batch))
      return emitOpError("names no dimension 'b' of the pool, expected one: the pages");
    if (cache.size(Dim::Seq) == 0)
      return emitOpError("has pages of 0 positions, expected at least 1");
    role = "page table";
    batches = cast<ShapedType>(table.getType()).getDimSize(0);
  }
  if (getFrom() && (getRowsDims().position(Dim::Batch) || !getCount()))
    return emitOpError("has 'from', expected 'count' and new rows without a dimension 'b'");
  if (!getFrom() && failed(verifySameExtent(*this, "batch size", role, batches, rows.role, rows.size(Dim::Batch))))
    return failure();
  for (auto [clause, number] : {std::pair("at", getAt()), std::pair("count", getCount()), std::pair("from", getFrom())})
    if (auto type = number ? dyn_cast<RankedTensorType>(number.getType()) : RankedTensorType())
      if (failed(verifySameExtent(*this, "batch size", role, batches, clause, type.getDimSize(0))))
        return failure();
  int64_t capacity = cache.size(Dim::Seq);
  if (getRing() && !ShapedType::isDynamic(capacity) && int64_t(*getRing()) >= capacity)
    return emitOpError() << "ring keeps the first " << *getRing() << " rows of a cache of " << capacity
                         << ", expected less";
  return success();
}

OpFoldResult AppendOp::getBatches(OpBuilder &builder) {
  if (Value table = getTable())
    return tensor::getMixedSize(builder, getLoc(), table, 0);
  return getDimSize(builder, getLoc(), getCache(), getCacheDims(), Dim::Batch);
}

LogicalResult AppendOp::reifyResultShapes(OpBuilder &builder, ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(tensor::getMixedSizes(builder, getLoc(), getCache()));
  return success();
}
