//===- DequantizedTiles.cpp - The weights that a task dequantizes -------------===//
#include "DequantizedTiles.h"
#include "UpperBound.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;

/// The rows [offset, offset + size) of `operand`; null for null.
static Value sliceRows(OpBuilder &b, Location loc, Value operand, OpFoldResult offset, OpFoldResult size) {
  if (!operand)
    return nullptr;
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, operand);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0)), strides(sizes.size(), b.getIndexAttr(1));
  offsets[0] = offset, sizes[0] = size;
  return tensor::ExtractSliceOp::create(b, loc, operand, offsets, sizes, strides);
}

/// The rows of `op` in a temporary, which has a static size.
static Value loadRows(IRRewriter &rewriter, attn::DequantizeOp op, OpFoldResult offset, OpFoldResult size) {
  Location loc = op.getLoc();
  auto type = cast<RankedTensorType>(op.getType());
  int64_t rows = std::min(findUpperBound(size).value_or(type.getDimSize(0)), type.getDimSize(0));
  Value whole = tensor::EmptyOp::create(rewriter, loc, {rows, type.getDimSize(1)}, type.getElementType());
  Value tile = sliceRows(rewriter, loc, whole, rewriter.getIndexAttr(0), size);
  auto rowsOf = [&](Value operand) { return sliceRows(rewriter, loc, operand, offset, size); };
  return attn::LoadDequantizedOp::create(rewriter, loc, tile.getType(), rowsOf(op.getCodes()), rowsOf(op.getScales()),
                                         rowsOf(op.getZeros()), tile, op.getFormat(), op.getInt8Lhs())
      ->getResult(0);
}

LogicalResult saccade::loadDequantizedTiles(IRRewriter &rewriter, Operation *root) {
  SmallVector<attn::DequantizeOp> ops;
  root->walk([&](attn::DequantizeOp op) { ops.push_back(op); });
  for (attn::DequantizeOp op : ops) {
    auto type = cast<RankedTensorType>(op.getType());
    for (Operation *user : llvm::make_early_inc_range(op->getUsers())) {
      rewriter.setInsertionPoint(user);
      if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user); slice && slice->getParentOfType<scf::ForallOp>()) {
        SmallVector<OpFoldResult> offsets = slice.getMixedOffsets(), sizes = slice.getMixedSizes();
        if (!slice.hasUnitStride() || !isConstantIntValue(offsets[1], 0) ||
            !isConstantIntValue(sizes[1], type.getDimSize(1)) || slice.getType().getRank() != 2)
          return slice.emitOpError() << "is a part of dequantized weights, expected whole rows";
        Value rows = loadRows(rewriter, op, offsets[0], sizes[0]);
        if (rows.getType() != slice.getType())
          rows = tensor::CastOp::create(rewriter, op.getLoc(), slice.getType(), rows);
        rewriter.replaceOp(slice, rows);
      } else if (isa<linalg::LinalgOp>(user) && user->getParentOfType<scf::ForallOp>()) {
        Value rows = loadRows(rewriter, op, rewriter.getIndexAttr(0), rewriter.getIndexAttr(type.getDimSize(0)));
        user->replaceUsesOfWith(op, rows);
      } else if (!isa<tensor::DimOp>(user)) {
        return op.emitOpError() << "is not read by a task";
      }
    }
    if (op->use_empty())
      rewriter.eraseOp(op);
  }
  return success();
}
