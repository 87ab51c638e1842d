//===- FoldBias.cpp - Products start from their bias --------------------------===//
//
// A bias becomes what a product starts from, and a rounding its own, so that nothing is left to do after it. It stands
// before the products are cut into tiles, while both are still seen whole.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_FOLDBIAS
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

namespace {

/// What an elementwise op makes of a product: adds `bias` (null: nothing), then rounds it where `isRounded`.
struct Epilogue {
  OpOperand *product, *bias = nullptr;
  bool isRounded = false;
};

} // namespace

/// The input that `value`, or what it is a widened form of, is inside the body of `op`; null where it is none.
static OpOperand *inputOf(linalg::LinalgOp op, Value value) {
  if (auto extension = value.getDefiningOp<arith::ExtFOp>())
    value = extension.getIn();
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || argument.getOwner() != op.getBlock() || argument.getArgNumber() >= op.getNumDpsInputs())
    return nullptr;
  return op.getDpsInputOperand(argument.getArgNumber());
}

/// A product that starts from 0 and that `operand` alone reads, or null.
static linalg::LinalgOp zeroInitMatmul(OpOperand *operand) {
  auto product = operand ? operand->get().getDefiningOp<linalg::LinalgOp>() : nullptr;
  if (!product || !product->hasOneUse() || !isMatmul(product))
    return nullptr;
  auto fill = product.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
  return fill && matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) ? product : nullptr;
}

static std::optional<Epilogue> readEpilogue(linalg::LinalgOp op) {
  Value value = op.getBlock()->getTerminator()->getOperand(0);
  auto rounding = value.getDefiningOp<arith::TruncFOp>();
  if (rounding)
    value = rounding.getIn();
  Epilogue result{nullptr};
  result.isRounded = bool(rounding);
  auto sum = value.getDefiningOp<arith::AddFOp>();
  if (!sum) {
    result.product = inputOf(op, value);
    return rounding && zeroInitMatmul(result.product) ? std::optional(result) : std::nullopt;
  }
  OpOperand *left = inputOf(op, sum.getLhs()), *right = inputOf(op, sum.getRhs());
  if (!left || !right)
    return std::nullopt;
  bool isLeft = bool(zeroInitMatmul(left));
  result.product = isLeft ? left : right;
  result.bias = isLeft ? right : left;
  return zeroInitMatmul(result.product) ? std::optional(result) : std::nullopt;
}

/// The same product in the type of its factors, starting from `init`.
static linalg::LinalgOp createRounded(IRRewriter &rewriter, linalg::LinalgOp product, Value init) {
  auto generic = linalg::GenericOp::create(
      rewriter, product.getLoc(), init.getType(), product.getDpsInputs(), init, product.getIndexingMapsArray(),
      product.getIteratorTypesArray(), [](OpBuilder &b, Location loc, ValueRange arguments) {
        Value term = arith::MulFOp::create(b, loc, arguments[0], arguments[1]);
        linalg::YieldOp::create(b, loc, arith::AddFOp::create(b, loc, arguments[2], term).getResult());
      });
  if (Attribute schedule = product->getAttr("schedule"))
    generic->setAttr("schedule", schedule);
  return generic;
}

static void fold(IRRewriter &rewriter, linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInits() != 1 || op.getNumParallelLoops() != op.getNumLoops())
    return;
  std::optional<Epilogue> epilogue = readEpilogue(op);
  if (!epilogue || !op.getMatchingIndexingMap(epilogue->product).isIdentity() ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return;
  auto product = epilogue->product->get().getDefiningOp<linalg::LinalgOp>();
  Value out = op.getDpsInits()[0];
  Type type = getElementTypeOrSelf(out);
  auto hasType = [&](Value value) { return getElementTypeOrSelf(value) == type; };
  // The factors of what is rounded must have that type: a product has no narrowing casts.
  if (epilogue->isRounded ? !llvm::all_of(product.getDpsInputs(), hasType) : !hasType(product->getResult(0)))
    return;

  rewriter.setInsertionPoint(op);
  Value init;
  if (epilogue->bias) {
    AffineMap map = op.getMatchingIndexingMap(epilogue->bias);
    Value bias = epilogue->bias->get();
    if (!hasType(bias) || map.getNumResults() != 1 || !isa<AffineDimExpr>(map.getResult(0)))
      return;
    unsigned position = map.getDimPosition(0);
    FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(product);
    AffineMap written = product.getMatchingIndexingMap(product.getDpsInitOperand(0));
    if (written.getDimPosition(position) != dims->n.back())
      return;
    SmallVector<int64_t> added;
    for (int64_t i = 0; i < int64_t(map.getNumDims()); ++i)
      if (i != position)
        added.push_back(i);
    init = linalg::BroadcastOp::create(rewriter, op.getLoc(), bias, out, added)->getResult(0);
  } else {
    Value zero = arith::ConstantOp::create(rewriter, op.getLoc(), rewriter.getZeroAttr(type));
    init = linalg::FillOp::create(rewriter, op.getLoc(), zero, out).getResult(0);
  }
  if (epilogue->isRounded) {
    rewriter.replaceOp(op, createRounded(rewriter, product, init));
  } else {
    auto started = cast<linalg::LinalgOp>(rewriter.clone(*product));
    started.setDpsInitOperand(0, init);
    started->getResult(0).setType(init.getType());
    rewriter.replaceOp(op, started);
  }
  rewriter.eraseOp(product);
}

namespace {

struct FoldBias : saccade::impl::FoldBiasBase<FoldBias> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    // Only what is visited is replaced, or a product before it.
    for (linalg::LinalgOp op : ops)
      if (isa<linalg::GenericOp>(op) && !isMatmul(op))
        fold(rewriter, op);
  }
};

} // namespace
