//===- PlaceDequantize.cpp - Who dequantizes weights --------------------------===//
//
// Moves transposes, slices and roundings of dequantized weights into the ops that read them, and expands every
// attn.dequantize that no kernel reads. Runs after fusion, which leaves matmuls in their final form.
//
//===----------------------------------------------------------------------===//
#include "DequantizedElement.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"

namespace saccade::attn {
#define GEN_PASS_DEF_PLACEDEQUANTIZE
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// A slice of rows becomes the rows of a slice of the blocks.
struct SliceBlocks : OpRewritePattern<tensor::ExtractSliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::ExtractSliceOp op, PatternRewriter &rewriter) const override {
    auto whole = op.getSource().getDefiningOp<DequantizeOp>();
    if (!whole || !op.getType().hasStaticShape() || op.getType().getRank() != 2 || !op.hasUnitStride() ||
        !isConstantIntValue(op.getMixedOffsets()[1], 0) ||
        op.getType().getDimSize(1) != cast<ShapedType>(whole.getType()).getDimSize(1))
      return failure();
    auto rowsOf = [&](Value operand) -> Value {
      if (!operand)
        return nullptr;
      auto type = cast<RankedTensorType>(operand.getType());
      SmallVector<OpFoldResult> offsets(type.getRank(), rewriter.getIndexAttr(0)),
          strides(type.getRank(), rewriter.getIndexAttr(1)),
          sizes = tensor::getMixedSizes(rewriter, op.getLoc(), operand);
      offsets[0] = op.getMixedOffsets()[0], sizes[0] = op.getMixedSizes()[0];
      return tensor::ExtractSliceOp::create(rewriter, op.getLoc(), operand, offsets, sizes, strides);
    };
    rewriter.replaceOpWithNewOp<DequantizeOp>(op, op.getType(), rowsOf(whole.getCodes()), rowsOf(whole.getScales()),
                                              rowsOf(whole.getZeros()), whole.getFormat());
    return success();
  }
};

/// An element is computed from its block, so that a lookup of rows reads the blocks of these rows.
struct ExtractElement : OpRewritePattern<tensor::ExtractOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::ExtractOp op, PatternRewriter &rewriter) const override {
    auto whole = op.getTensor().getDefiningOp<DequantizeOp>();
    if (!whole)
      return failure();
    rewriter.replaceOp(op, emitDequantizedElement(rewriter, op.getLoc(), QuantizedWeights::of(whole),
                                                  op.getIndices()[0], op.getIndices()[1], op.getType()));
    return success();
  }
};

/// For a generic op that only permutes the two dimensions of its input: whether it transposes them.
std::optional<bool> readCopy(linalg::LinalgOp op) {
  if (!op || !op.hasPureTensorSemantics() || op.getNumDpsInputs() != 1 || op.getNumDpsInits() != 1 ||
      op.getNumLoops() != 2 || op.getNumParallelLoops() != 2)
    return std::nullopt;
  AffineMap read = op.getMatchingIndexingMap(op.getDpsInputOperand(0));
  AffineMap written = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (!read.isPermutation() || !written.isPermutation())
    return std::nullopt;
  return read != written;
}

/// Elements that are rounded by the only op that reads them are computed with this type.
struct NarrowElements : OpInterfaceRewritePattern<linalg::LinalgOp> {
  using OpInterfaceRewritePattern::OpInterfaceRewritePattern;

  LogicalResult matchAndRewrite(linalg::LinalgOp op, PatternRewriter &rewriter) const override {
    std::optional<bool> isTransposed = readCopy(op);
    if (!isTransposed || *isTransposed)
      return failure();
    auto whole = op.getDpsInputs()[0].getDefiningOp<DequantizeOp>();
    auto rounded = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp<arith::TruncFOp>();
    if (!whole || !rounded || rounded.getIn() != op.getBlock()->getArgument(0) ||
        !isa<Float16Type, BFloat16Type>(rounded.getType()))
      return failure();
    auto type = cast<RankedTensorType>(whole.getType()).clone(rounded.getType());
    rewriter.replaceOpWithNewOp<DequantizeOp>(op, type, whole.getCodes(), whole.getScales(), whole.getZeros(),
                                              whole.getFormat());
    return success();
  }
};

/// A matmul reads the source of a transpose.
struct TransposeRHS : OpInterfaceRewritePattern<linalg::LinalgOp> {
  using OpInterfaceRewritePattern::OpInterfaceRewritePattern;

  LogicalResult matchAndRewrite(linalg::LinalgOp op, PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics() || !isMatmul(op))
      return failure();
    for (OpOperand *operand : op.getDpsInputOperands()) {
      auto transpose = operand->get().getDefiningOp<linalg::LinalgOp>();
      std::optional<bool> isTransposed = readCopy(transpose);
      if (!isTransposed || !*isTransposed || !transpose.getDpsInputs()[0].getDefiningOp<DequantizeOp>() ||
          transpose.getBlock()->getTerminator()->getOperand(0) != transpose.getBlock()->getArgument(0))
        continue;
      SmallVector<AffineMap> maps = op.getIndexingMapsArray();
      AffineMap &map = maps[operand->getOperandNumber()];
      map = AffineMap::get(map.getNumDims(), 0, {map.getResult(1), map.getResult(0)}, op.getContext());
      SmallVector<Value> inputs = op.getDpsInputs();
      inputs[operand->getOperandNumber()] = transpose.getDpsInputs()[0];
      auto matmul = linalg::GenericOp::create(rewriter, op.getLoc(), op->getResultTypes(), inputs, op.getDpsInits(),
                                              maps, op.getIteratorTypesArray());
      rewriter.cloneRegionBefore(op->getRegion(0), matmul.getRegion(), matmul.getRegion().begin());
      rewriter.replaceOp(op, matmul);
      return success();
    }
    return failure();
  }
};

/// Writes all elements by a structured op.
void expand(RewriterBase &rewriter, DequantizeOp op) {
  rewriter.setInsertionPoint(op);
  auto type = cast<RankedTensorType>(op.getType());
  Value empty = tensor::EmptyOp::create(rewriter, op.getLoc(), type.getShape(), type.getElementType());
  auto identity = AffineMap::getMultiDimIdentityMap(2, rewriter.getContext());
  SmallVector<utils::IteratorType> loops(2, utils::IteratorType::parallel);
  auto elements = linalg::GenericOp::create(
      rewriter, op.getLoc(), empty.getType(), ValueRange(), empty, identity, loops,
      [&](OpBuilder &b, Location loc, ValueRange) {
        Value row = linalg::IndexOp::create(b, loc, 0), column = linalg::IndexOp::create(b, loc, 1);
        linalg::YieldOp::create(
            b, loc, emitDequantizedElement(b, loc, QuantizedWeights::of(op), row, column, type.getElementType()));
      });
  rewriter.replaceOp(op, elements.getResult(0));
}

struct PlaceDequantize : attn::impl::PlaceDequantizeBase<PlaceDequantize> {
  using PlaceDequantizeBase::PlaceDequantizeBase;

  void runOnOperation() override {
    SmallVector<DequantizeOp> ops;
    getOperation().walk([&](DequantizeOp op) { ops.push_back(op); });
    if (ops.empty())
      return;
    RewritePatternSet patterns(&getContext());
    patterns.add<SliceBlocks, ExtractElement, NarrowElements, TransposeRHS>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    ops.clear();
    getOperation().walk([&](DequantizeOp op) { ops.push_back(op); });
    for (DequantizeOp op : ops) {
      IRRewriter rewriter(op);
      // An op for the matmuls, and one for all other uses.
      auto isRead = [&](OpOperand &use) {
        auto matmul = dyn_cast<linalg::LinalgOp>(use.getOwner());
        return !gpu && matmul && readsDequantizedRows(matmul, use);
      };
      if (llvm::all_of(op->getUses(), isRead))
        continue;
      if (llvm::any_of(op->getUses(), isRead)) {
        auto copy = cast<DequantizeOp>(rewriter.clone(*op));
        rewriter.replaceUsesWithIf(op, copy.getResult(), [&](OpOperand &use) { return isRead(use); });
      }
      expand(rewriter, op);
    }
  }
};

} // namespace
