//===- Matmul.cpp - Structured ops that are compiled as matmuls ---------------===//
//
// The definition for all stages. Upstream's contraction is wider: it accepts any unary op in the body.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade;

/// The operand of a widening cast, else `value`.
static Value skipWidening(Value value) {
  auto extension = value.getDefiningOp<arith::ExtFOp>();
  return extension ? extension.getIn() : value;
}

static bool areEither(Value a, Value b, Value x, Value y) { return (a == x && b == y) || (a == y && b == x); }

/// Whether `body` yields out + x · y for its arguments x, y and out.
static bool isMultiplyAdd(Block &body) {
  auto sum = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  Value out = body.getArgument(2);
  auto product = (sum.getLhs() == out ? sum.getRhs() : sum.getLhs()).getDefiningOp<arith::MulFOp>();
  return product && areEither(sum.getLhs(), sum.getRhs(), out, product) &&
         areEither(skipWidening(product.getLhs()), skipWidening(product.getRhs()), body.getArgument(0),
                   body.getArgument(1));
}

std::optional<linalg::ContractionDimensions> saccade::getMatmulDims(linalg::LinalgOp op) {
  auto isFloat = [](Type type) { return isa<ShapedType>(type) && isa<FloatType>(getElementTypeOrSelf(type)); };
  if (op.getNumDpsInputs() != 2 || op.getNumDpsInits() != 1 || !llvm::all_of(op->getOperandTypes(), isFloat) ||
      !llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) { return map.isProjectedPermutation(); }) ||
      !isMultiplyAdd(*op.getBlock()))
    return std::nullopt;
  FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(op);
  if (failed(dims) || dims->m.empty() || dims->n.empty() || dims->k.empty())
    return std::nullopt;
  return *dims;
}

bool saccade::isMatmul(linalg::LinalgOp op) { return getMatmulDims(op).has_value(); }

bool saccade::readsDequantizedRows(linalg::LinalgOp op, OpOperand &use) {
  std::optional<linalg::ContractionDimensions> dims = getMatmulDims(op);
  if (!dims || !op.isDpsInput(&use) || dims->n.size() != 1 || dims->k.size() != 1)
    return false;
  AffineMap map = op.getMatchingIndexingMap(&use);
  OpOperand *other = op.getDpsInputOperand(1 - use.getOperandNumber());
  auto isNarrow = [](Value operand) { return !getElementTypeOrSelf(operand).isF64(); };
  return map.getNumResults() == 2 && map.getDimPosition(0) == dims->n[0] && map.getDimPosition(1) == dims->k[0] &&
         other->get() != use.get() && isNarrow(other->get()) && isNarrow(op.getDpsInits()[0]);
}

MatmulBlock saccade::getMatmulBlock(linalg::LinalgOp op) {
  MatmulBlock block;
  if (auto schedule = op->getAttrOfType<attn::ScheduleAttr>("schedule")) {
    block.rows = schedule.getRows();
    block.columns = schedule.getCols();
    if (schedule.getDepth())
      block.depth = schedule.getDepth();
  }
  return block;
}

linalg::FillOp saccade::getZeroFill(linalg::LinalgOp op) {
  Value result = op.getDpsInits()[0], base = getBaseMemory(result);
  for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode()) {
    if (auto fill = dyn_cast<linalg::FillOp>(before); fill && fill.getOutputs()[0] == result)
      return matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) ? fill : linalg::FillOp();
    WalkResult uses = before->walk([&](Operation *inner) {
      bool isUse = !isa<ViewLikeOpInterface>(inner) &&
                   llvm::any_of(inner->getOperands(), [&](Value operand) { return getBaseMemory(operand) == base; });
      return isUse ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (uses.wasInterrupted())
      return nullptr;
  }
  return nullptr;
}
