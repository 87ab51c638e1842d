//===- FoldBias.cpp - Fold bias and truncation into matmuls -------------------===//
//
// Turns a bias into the initial value of a matmul and a truncation into its result type, which removes the epilogue. It
// runs before tiling, while matmul and epilogue are whole ops.
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

/// An elementwise op on a matmul: adds `bias` (if not null), then truncates if `isRounded`.
struct Epilogue {
  OpOperand *matmul, *bias = nullptr;
  bool isRounded = false;
};

} // namespace

/// Returns the input of `op` whose element in the body is `value`, possibly extended; null if there is none.
static OpOperand *inputOf(linalg::LinalgOp op, Value value) {
  if (auto extension = value.getDefiningOp<arith::ExtFOp>())
    value = extension.getIn();
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || argument.getOwner() != op.getBlock() || argument.getArgNumber() >= op.getNumDpsInputs())
    return nullptr;
  return op.getDpsInputOperand(argument.getArgNumber());
}

/// Returns the matmul initialized with 0 whose only use is `operand`, or null.
static linalg::LinalgOp zeroInitMatmul(OpOperand *operand) {
  auto matmul = operand ? operand->get().getDefiningOp<linalg::LinalgOp>() : nullptr;
  if (!matmul || !matmul->hasOneUse() || !isMatmul(matmul))
    return nullptr;
  auto fill = matmul.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
  return fill && matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) ? matmul : nullptr;
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
    result.matmul = inputOf(op, value);
    return rounding && zeroInitMatmul(result.matmul) ? std::optional(result) : std::nullopt;
  }
  OpOperand *lhs = inputOf(op, sum.getLhs()), *rhs = inputOf(op, sum.getRhs());
  if (!lhs || !rhs)
    return std::nullopt;
  bool isLhs = bool(zeroInitMatmul(lhs));
  result.matmul = isLhs ? lhs : rhs;
  result.bias = isLhs ? rhs : lhs;
  return zeroInitMatmul(result.matmul) ? std::optional(result) : std::nullopt;
}

/// Creates the same matmul in the type of its operands, initialized with `init`.
static linalg::LinalgOp createRounded(IRRewriter &rewriter, linalg::LinalgOp matmul, Value init) {
  auto generic = linalg::GenericOp::create(
      rewriter, matmul.getLoc(), init.getType(), matmul.getDpsInputs(), init, matmul.getIndexingMapsArray(),
      matmul.getIteratorTypesArray(), [](OpBuilder &b, Location loc, ValueRange arguments) {
        Value term = arith::MulFOp::create(b, loc, arguments[0], arguments[1]);
        linalg::YieldOp::create(b, loc, arith::AddFOp::create(b, loc, arguments[2], term).getResult());
      });
  if (Attribute schedule = matmul->getAttr("schedule"))
    generic->setAttr("schedule", schedule);
  return generic;
}

static void fold(IRRewriter &rewriter, linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInits() != 1 || op.getNumParallelLoops() != op.getNumLoops())
    return;
  std::optional<Epilogue> epilogue = readEpilogue(op);
  if (!epilogue || !op.getMatchingIndexingMap(epilogue->matmul).isIdentity() ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return;
  auto matmul = epilogue->matmul->get().getDefiningOp<linalg::LinalgOp>();
  Value out = op.getDpsInits()[0];
  Type type = getElementTypeOrSelf(out);
  auto hasType = [&](Value value) { return getElementTypeOrSelf(value) == type; };
  // A truncated matmul must have operands of the result type: a matmul contains no narrowing casts.
  if (epilogue->isRounded ? !llvm::all_of(matmul.getDpsInputs(), hasType) : !hasType(matmul->getResult(0)))
    return;

  rewriter.setInsertionPoint(op);
  Value init;
  if (epilogue->bias) {
    AffineMap map = op.getMatchingIndexingMap(epilogue->bias);
    Value bias = epilogue->bias->get();
    if (!hasType(bias) || map.getNumResults() != 1 || !isa<AffineDimExpr>(map.getResult(0)))
      return;
    unsigned position = map.getDimPosition(0);
    FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(matmul);
    AffineMap written = matmul.getMatchingIndexingMap(matmul.getDpsInitOperand(0));
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
    rewriter.replaceOp(op, createRounded(rewriter, matmul, init));
  } else {
    auto started = cast<linalg::LinalgOp>(rewriter.clone(*matmul));
    started.setDpsInitOperand(0, init);
    started->getResult(0).setType(init.getType());
    rewriter.replaceOp(op, started);
  }
  rewriter.eraseOp(matmul);
}

namespace {

struct FoldBias : saccade::impl::FoldBiasBase<FoldBias> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    // `fold` erases only the visited op and a matmul before it.
    for (linalg::LinalgOp op : ops)
      if (isa<linalg::GenericOp>(op) && !isMatmul(op))
        fold(rewriter, op);
  }
};

} // namespace
