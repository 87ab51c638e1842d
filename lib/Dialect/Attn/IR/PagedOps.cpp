//===- PagedOps.cpp - attn.paged, attn.load_pages ------------------------------===//
#include "Syntax.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace saccade::attn;
using namespace saccade::attn::syntax;

void syntax::addBufferEffects(DestinationStyleOpInterface op,
                              SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    effects.emplace_back(MemoryEffects::Read::get(), &operand);
    if (op.isDpsInit(&operand))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
}

//===----------------------------------------------------------------------===//
// PagedOp
//===----------------------------------------------------------------------===//

LogicalResult PagedOp::verify() {
  auto pool = cast<RankedTensorType>(getPool().getType()), result = cast<RankedTensorType>(getResult().getType());
  DimsAttr dims = getDims();
  if (pool.getRank() != dims.size())
    return emitOpError() << "pool has rank " << pool.getRank() << ", but names " << dims.size() << " dimensions";
  if (!dims.position(Dim::Batch))
    return emitOpError() << "pool has no dimension 'b', expected one: the pages";
  if (result.getElementType() != pool.getElementType() || result.getRank() != pool.getRank())
    return emitOpError() << "result has type " << result << ", expected the rank and the element type of the pool, "
                         << pool;
  auto table = cast<RankedTensorType>(getTable().getType());
  for (auto [i, dim] : llvm::enumerate(dims.getDims())) {
    int64_t expected = pool.getDimSize(i);
    if (dim == Dim::Batch)
      expected = table.getDimSize(0);
    else if (dim == Dim::Seq && expected == 0)
      return emitOpError() << "pool has pages of 0 positions, expected at least 1";
    else if (dim == Dim::Seq)
      expected = ShapedType::isDynamic(expected) || table.isDynamicDim(1) ? ShapedType::kDynamic
                                                                          : expected * table.getDimSize(1);
    StringRef role = dim == Dim::Batch ? "page table" : dim == Dim::Seq ? "page table times page size" : "pool";
    if (failed(verifySameExtent(*this, "extent of '" + stringifyDim(dim) + "'", role, expected, "result",
                                result.getDimSize(i))))
      return failure();
  }
  return success();
}

LogicalResult PagedOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  SmallVector<OpFoldResult> &shape = shapes.emplace_back();
  auto type = cast<RankedTensorType>(getResult().getType());
  for (auto [i, dim] : llvm::enumerate(getDims().getDims())) {
    if (!type.isDynamicDim(i)) {
      shape.push_back(b.getIndexAttr(type.getDimSize(i)));
      continue;
    }
    OpFoldResult size =
        tensor::getMixedSize(b, getLoc(), dim == Dim::Batch ? getTable() : getPool(), dim == Dim::Batch ? 0 : i);
    if (dim == Dim::Seq) {
      Value pages = getValueOrCreateConstantIndexOp(b, getLoc(), tensor::getMixedSize(b, getLoc(), getTable(), 1));
      size = b.createOrFold<arith::MulIOp>(getLoc(), pages, getValueOrCreateConstantIndexOp(b, getLoc(), size));
    }
    shape.push_back(size);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// LoadPagesOp
//===----------------------------------------------------------------------===//

LogicalResult LoadPagesOp::verify() {
  auto pool = cast<ShapedType>(getPool().getType()), pages = cast<ShapedType>(getPages().getType()),
       tile = cast<ShapedType>(getTile().getType());
  if (getDims().size() != 3 || pool.getRank() != 3 || getDims().position(Dim::Head))
    return emitOpError() << "pool has type " << pool << ", expected the dimensions b, s and d of one head";
  if (pages.getRank() != 1 || !isa<IndexType, IntegerType>(pages.getElementType()))
    return emitOpError() << "pages have type " << pages << ", expected a list of integers";
  if (tile.getRank() != 2 || tile.getElementType() != pool.getElementType())
    return emitOpError() << "tile has type " << tile << ", expected positions and " << pool.getElementType()
                         << " elements of the head size";
  return verifySameExtent(*this, "head size", "pool", getStaticDimSize(getPool(), getDims(), Dim::Depth), "tile",
                          tile.getDimSize(1));
}

void LoadPagesOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  addBufferEffects(cast<DestinationStyleOpInterface>(getOperation()), effects);
}
