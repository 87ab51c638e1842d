//===- HeadSizeOrigins.cpp - Where the head size comes from ------------------------===//
//
// Follows the producers of a value and tracks the position of the dimension. Used by the linter.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/HeadSizeOrigins.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace saccade::attn;

/// The operand of an elementwise op that has the indexing map of `result`, or null.
static Value getElementwiseSource(linalg::LinalgOp op, OpResult result) {
  if (op.getNumParallelLoops() != op.getNumLoops())
    return {};
  AffineMap map = op.getIndexingMapMatchingResult(result);
  for (OpOperand *input : op.getDpsInputOperands())
    if (op.getMatchingIndexingMap(input) == map)
      return input->get();
  return {};
}

/// The static extent of the reduced dimension of a matmul, if there is exactly one.
static std::optional<int64_t> getReducedExtent(linalg::LinalgOp op) {
  SmallVector<unsigned> reductions;
  op.getReductionDims(reductions);
  if (reductions.size() != 1 || ShapedType::isDynamic(op.getStaticLoopRanges()[reductions[0]]))
    return std::nullopt;
  return op.getStaticLoopRanges()[reductions[0]];
}

llvm::SmallVector<HeadSizeOrigin> saccade::attn::findHeadSizeOrigins(Value value, unsigned dim) {
  SmallVector<HeadSizeOrigin> origins;
  auto splitFrom = [&](Value source) {
    value = source;
    if (int64_t extent = cast<RankedTensorType>(source.getType()).getDimSize(dim); !ShapedType::isDynamic(extent))
      origins.push_back({extent, /*isProjected=*/false});
  };
  // Unreachable code may be cyclic.
  for (unsigned step = 0; step < 64; ++step) {
    Operation *op = value.getDefiningOp();
    if (auto recast = dyn_cast_or_null<tensor::CastOp>(op);
        recast && isa<RankedTensorType>(recast.getSource().getType())) {
      // The extent may be known only before the cast.
      splitFrom(recast.getSource());
    } else if (auto transpose = dyn_cast_or_null<linalg::TransposeOp>(op)) {
      dim = transpose.getPermutation()[dim];
      value = transpose.getInput();
    } else if (auto expand = dyn_cast_or_null<tensor::ExpandShapeOp>(op)) {
      dim = expand.getCorrespondingSourceDim(dim);
      splitFrom(expand.getSrc());
    } else if (auto slice = dyn_cast_or_null<tensor::ExtractSliceOp>(op)) {
      llvm::SmallBitVector dropped = slice.getDroppedDims();
      for (unsigned source = 0; source <= dim; ++source)
        dim += dropped.test(source);
      splitFrom(slice.getSource());
    } else if (auto collapse = dyn_cast_or_null<tensor::CollapseShapeOp>(op)) {
      ReassociationIndices group = collapse.getReassociationIndices()[dim];
      if (group.size() != 1)
        return origins;
      dim = group[0];
      value = collapse.getSrc();
    } else if (auto structured = dyn_cast_or_null<linalg::LinalgOp>(op)) {
      if (std::optional<int64_t> extent = getReducedExtent(structured);
          extent && linalg::isaContractionOpInterface(structured))
        origins.push_back({*extent, /*isProjected=*/true});
      value = getElementwiseSource(structured, cast<OpResult>(value));
      if (!value)
        return origins;
    } else {
      return origins;
    }
  }
  return origins;
}
