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
#include "mlir/Dialect/Math/IR/Math.h"
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

/// The body of an elementwise op: of an element and of the largest magnitude of its block.
void emitFakeQuantized(OpBuilder &b, Location loc, ValueRange args) {
  auto constant = [&](double value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(float(value)));
  };
  Value steps = constant(127), zero = constant(0);
  Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, args[1], constant(fakeQuantizedLeast));
  Value inverse = arith::DivFOp::create(b, loc, steps, args[1]);
  inverse = arith::SelectOp::create(b, loc, isZero, zero, inverse);
  Value code = math::RoundEvenOp::create(b, loc, arith::MulFOp::create(b, loc, args[0], inverse));
  Value step = arith::DivFOp::create(b, loc, args[1], steps);
  linalg::YieldOp::create(b, loc, arith::MulFOp::create(b, loc, code, step).getResult());
}

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

/// Whether `lhs` is the result of an attn.fake_quantize, in another shape with the same rows.
bool isFakeQuantized(Value lhs) {
  while (Operation *op = lhs.getDefiningOp()) {
    if (isa<FakeQuantizeOp>(op))
      return true;
    auto isLastDimKept = [](Value x, Value y) {
      return cast<ShapedType>(x.getType()).getShape().back() == cast<ShapedType>(y.getType()).getShape().back();
    };
    if (!isa<tensor::CastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op) ||
        cast<ShapedType>(op->getOperand(0).getType()).getRank() == 0 || !isLastDimKept(op->getOperand(0), lhs))
      return false;
    lhs = op->getOperand(0);
  }
  return false;
}

/// Writes the rounded numbers by structured ops: the largest magnitude of each block, and the elements.
void expand(RewriterBase &rewriter, FakeQuantizeOp op) {
  rewriter.setInsertionPoint(op);
  Location loc = op.getLoc();
  auto type = cast<RankedTensorType>(op.getType());
  int64_t rank = type.getRank(), blocks = type.getShape().back() / fakeQuantizedBlock;
  SmallVector<ReassociationIndices> dims;
  for (int64_t i = 0; i + 1 < rank; ++i)
    dims.push_back({i});
  dims.push_back({rank - 1, rank});
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, op.getSource());
  sizes.back() = rewriter.getIndexAttr(blocks);
  Value empty = tensor::EmptyOp::create(rewriter, loc, sizes, type.getElementType());
  sizes.push_back(rewriter.getIndexAttr(fakeQuantizedBlock));
  SmallVector<int64_t> shape(type.getShape().drop_back());
  shape.append({blocks, fakeQuantizedBlock});
  Value source =
      tensor::ExpandShapeOp::create(rewriter, loc, type.clone(shape), op.getSource(), dims, sizes).getResult();
  Value zero = arith::ConstantOp::create(rewriter, loc, rewriter.getF32FloatAttr(0));
  Value zeros = linalg::FillOp::create(rewriter, loc, zero, empty).getResult(0);
  auto all = rewriter.getMultiDimIdentityMap(rank + 1), ofBlock = all.dropResult(rank);
  SmallVector<utils::IteratorType> loops(rank + 1, utils::IteratorType::parallel), reduction = loops;
  reduction.back() = utils::IteratorType::reduction;
  Value largest = linalg::GenericOp::create(rewriter, loc, zeros.getType(), source, zeros, {all, ofBlock}, reduction,
                                            [](OpBuilder &b, Location loc, ValueRange args) {
                                              Value magnitude = math::AbsFOp::create(b, loc, args[0]);
                                              Value most = arith::MaximumFOp::create(b, loc, magnitude, args[1]);
                                              linalg::YieldOp::create(b, loc, most);
                                            })
                      .getResult(0);
  Value result = tensor::EmptyOp::create(rewriter, loc, sizes, type.getElementType());
  Value rounded = linalg::GenericOp::create(rewriter, loc, result.getType(), {source, largest}, result,
                                            {all, ofBlock, all}, loops, emitFakeQuantized)
                      .getResult(0);
  rewriter.replaceOpWithNewOp<tensor::CollapseShapeOp>(op, type, rounded, dims);
}

struct PlaceDequantize : attn::impl::PlaceDequantizeBase<PlaceDequantize> {
  using PlaceDequantizeBase::PlaceDequantizeBase;

  void expandFakeQuantized() {
    SmallVector<FakeQuantizeOp> ops;
    getOperation().walk([&](FakeQuantizeOp op) { ops.push_back(op); });
    for (FakeQuantizeOp op : ops) {
      IRRewriter rewriter(op);
      expand(rewriter, op);
    }
  }

  void runOnOperation() override {
    SmallVector<DequantizeOp> ops;
    getOperation().walk([&](DequantizeOp op) { ops.push_back(op); });
    if (ops.empty())
      return expandFakeQuantized();
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
      auto isInt8 = [&](OpOperand &use) {
        auto matmul = cast<linalg::LinalgOp>(use.getOwner());
        return isFakeQuantized(matmul.getDpsInputOperand(1 - use.getOperandNumber())->get());
      };
      for (bool ofInt8 : {true, false}) {
        auto isOfCopy = [&](OpOperand &use) { return isRead(use) && isInt8(use) == ofInt8; };
        if (llvm::none_of(op->getUses(), isOfCopy))
          continue;
        auto copy = cast<DequantizeOp>(rewriter.clone(*op));
        copy.setInt8Lhs(ofInt8);
        rewriter.replaceUsesWithIf(op, copy.getResult(), isOfCopy);
      }
      if (op->use_empty())
        rewriter.eraseOp(op);
      else
        expand(rewriter, op);
    }
    expandFakeQuantized();
  }
};

} // namespace
