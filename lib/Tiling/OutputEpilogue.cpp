//===- OutputEpilogue.cpp - Elementwise ops in the tasks of attention ---------------===//
//
// The op reads the tile through its output operand, so that bufferization needs no second buffer, and code generators
// find it as the user of the memory that attn.finalize writes.
//
//===----------------------------------------------------------------------===//
#include "OutputEpilogue.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// Replaces the extents of the output of `attention` by those of its operands.
static void replaceExtents(RewriterBase &rewriter, AttentionOp attention) {
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(attention);
  for (Operation *user : llvm::make_early_inc_range(attention.getOutput().getUsers())) {
    auto dim = dyn_cast<tensor::DimOp>(user);
    std::optional<int64_t> number = dim ? dim.getConstantIndex() : std::nullopt;
    if (!number)
      continue;
    Dim which = attention.getOutputDims().getDims()[*number];
    bool isDepth = which == Dim::Depth;
    OpFoldResult extent = getDimSize(rewriter, dim.getLoc(), isDepth ? attention.getValue() : attention.getQuery(),
                                     isDepth ? attention.getValueDims() : attention.getQueryDims(), which);
    rewriter.replaceOp(dim, getValueOrCreateConstantIndexOp(rewriter, dim.getLoc(), extent));
  }
}

/// Whether `op` computes each element of its result from elements of its operands, of which that of `input` has the
/// same place.
static bool keepsPlaces(linalg::GenericOp op, OpOperand &input) {
  if (op->getNumResults() != 1 || op.getNumParallelLoops() != op.getNumLoops() ||
      !op.payloadUsesValueFromOperand(&input))
    return false;
  AffineMap map = op.getMatchingIndexingMap(&input);
  if (!map.isPermutation() || map != op.getMatchingIndexingMap(op.getDpsInitOperand(0)))
    return false;
  bool isOfElements = llvm::all_of(op.getBody()->without_terminator(), [](Operation &inner) {
    return inner.getNumRegions() == 0 && isMemoryEffectFree(&inner) && !isa<linalg::IndexOp, tensor::ExtractOp>(inner);
  });
  return isOfElements && llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *operand) {
           return op.getMatchingIndexingMap(operand).isProjectedPermutation(/*allowZeroInResults=*/true);
         });
}

std::optional<OutputEpilogue> OutputEpilogue::take(RewriterBase &rewriter, AttentionOp attention) {
  Value output = attention.getOutput();
  replaceExtents(rewriter, attention);
  if (!output.hasOneUse())
    return std::nullopt;
  OpOperand &use = *output.getUses().begin();
  auto op = dyn_cast<linalg::GenericOp>(use.getOwner());
  bool fits = op && op->getBlock() == attention->getBlock() && op.isDpsInput(&use) && keepsPlaces(op, use) &&
              op->getResult(0).getType() == output.getType() &&
              !op.payloadUsesValueFromOperand(op.getDpsInitOperand(0));
  if (!fits)
    return std::nullopt;
  // The tasks are where the op is.
  for (Operation *user : attention->getUsers()) {
    Operation *ancestor = op->getBlock()->findAncestorOpInBlock(*user);
    fits &= ancestor && !ancestor->isBeforeInBlock(op);
  }
  if (!fits)
    return std::nullopt;
  rewriter.moveOpBefore(attention, op);
  return OutputEpilogue{op, use.getOperandNumber()};
}

std::optional<OutputEpilogue> OutputEpilogue::find(Value tile) {
  if (!tile.hasOneUse())
    return std::nullopt;
  OpOperand &use = *tile.getUses().begin();
  auto op = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!op || !op.isDpsInit(&use) || !keepsPlaces(op, use))
    return std::nullopt;
  return OutputEpilogue{op, use.getOperandNumber()};
}

Value OutputEpilogue::emit(OpBuilder &b, Value tile, const Slice &place) {
  Location loc = op.getLoc();
  AffineMap ofOutput = op.getMatchingIndexingMap(&op->getOpOperand(input));
  // The dimension of the output that each loop has, and the loops of the tile in the order of its dimensions.
  SmallVector<unsigned> dimOfLoop(op.getNumLoops());
  SmallVector<AffineExpr> exprs(op.getNumLoops());
  unsigned loops = 0;
  for (unsigned dim = 0; dim < ofOutput.getNumResults(); ++dim) {
    unsigned loop = ofOutput.getDimPosition(dim);
    dimOfLoop[loop] = dim;
    if (!place.dropped.test(dim))
      exprs[loop] = b.getAffineDimExpr(loops++);
  }
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (OpOperand *operand : op.getDpsInputOperands()) {
    if (operand->getOperandNumber() == input)
      continue;
    Slice slice;
    SmallVector<AffineExpr> results;
    for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults()) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      unsigned dim = loop ? dimOfLoop[loop.getPosition()] : 0;
      if (!loop) {
        slice.addPosition(zero);
      } else if (place.dropped.test(dim)) {
        slice.addPosition(place.offsets[dim]);
      } else {
        slice.add(place.offsets[dim], place.sizes[dim], one);
        results.push_back(exprs[loop.getPosition()]);
      }
    }
    bool isTensor = isa<RankedTensorType>(operand->get().getType());
    inputs.push_back(isTensor ? slice.extract(b, loc, operand->get()) : operand->get());
    maps.push_back(AffineMap::get(loops, 0, results, b.getContext()));
  }
  maps.push_back(b.getMultiDimIdentityMap(loops));
  SmallVector<utils::IteratorType> iterators(loops, utils::IteratorType::parallel);
  auto emitted = linalg::GenericOp::create(
      b, loc, tile.getType(), inputs, tile, maps, iterators, [&](OpBuilder &nested, Location, ValueRange arguments) {
        IRMapping values;
        unsigned next = 0;
        for (OpOperand *operand : op.getDpsInputOperands())
          if (operand->getOperandNumber() != input)
            values.map(op.getMatchingBlockArgument(operand), arguments[next++]);
        values.map(op.getMatchingBlockArgument(&op->getOpOperand(input)), arguments.back());
        for (Operation &inner : *op.getBody())
          nested.clone(inner, values);
      });
  return emitted.getResult(0);
}
