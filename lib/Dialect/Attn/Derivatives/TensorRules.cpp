//===- TensorRules.cpp - Rules of views and scalar ops ------------------------===//
#include "Gradients.h"
#include "Tangents.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace saccade::attn;

static LogicalResult differentiateCast(Operation *op, Gradients &gradients) {
  Value source = op->getOperand(0);
  gradients.add(source,
                tensor::CastOp::create(gradients.b, op->getLoc(), source.getType(), gradients.of(op->getResult(0))));
  return success();
}

static LogicalResult differentiateExtractSlice(Operation *op, Gradients &gradients) {
  auto slice = cast<tensor::ExtractSliceOp>(op);
  Value gradient = gradients.of(slice.getResult());
  Value zeros = TensorEmitter{gradients.b, op->getLoc()}.zeros(slice.getSource(), slice.getType().getElementType());
  gradients.add(slice.getSource(),
                tensor::InsertSliceOp::create(gradients.b, op->getLoc(), gradient, zeros, slice.getMixedOffsets(),
                                              slice.getMixedSizes(), slice.getMixedStrides()));
  return success();
}

static LogicalResult differentiateInsertSlice(Operation *op, Gradients &gradients) {
  auto slice = cast<tensor::InsertSliceOp>(op);
  Location loc = op->getLoc();
  Value gradient = gradients.of(slice.getResult());
  if (gradients.isActive(slice.getSource()))
    gradients.add(slice.getSource(), tensor::ExtractSliceOp::create(gradients.b, loc, slice.getSourceType(), gradient,
                                                                    slice.getMixedOffsets(), slice.getMixedSizes(),
                                                                    slice.getMixedStrides()));
  if (gradients.isActive(slice.getDest())) {
    Value zeros = TensorEmitter{gradients.b, loc}.zeros(slice.getSource(), slice.getSourceType().getElementType());
    gradients.add(slice.getDest(),
                  tensor::InsertSliceOp::create(gradients.b, loc, zeros, gradient, slice.getMixedOffsets(),
                                                slice.getMixedSizes(), slice.getMixedStrides()));
  }
  return success();
}

static LogicalResult differentiateExpand(Operation *op, Gradients &gradients) {
  auto expand = cast<tensor::ExpandShapeOp>(op);
  gradients.add(expand.getSrc(),
                tensor::CollapseShapeOp::create(gradients.b, op->getLoc(), expand.getSrcType(),
                                                gradients.of(expand.getResult()), expand.getReassociationIndices()));
  return success();
}

static LogicalResult differentiateCollapse(Operation *op, Gradients &gradients) {
  auto collapse = cast<tensor::CollapseShapeOp>(op);
  gradients.add(collapse.getSrc(),
                tensor::ExpandShapeOp::create(gradients.b, op->getLoc(), collapse.getSrcType(),
                                              gradients.of(collapse.getResult()), collapse.getReassociationIndices(),
                                              tensor::getMixedSizes(gradients.b, op->getLoc(), collapse.getSrc())));
  return success();
}

/// An op on scalars, outside of regions.
static LogicalResult differentiateScalar(Operation *op, Gradients &gradients) {
  TensorEmitter e{gradients.b, op->getLoc()};
  for (OpResult result : op->getResults()) {
    Value gradient = gradients.of(result);
    if (!gradient)
      continue;
    for (OpOperand &operand : op->getOpOperands()) {
      Value of = operand.get();
      if (!gradients.isActive(of) || !hasPartial(result, operand.getOperandNumber()))
        continue;
      Type element = getScoreType(of.getType());
      gradients.add(of, e.elementwise(gradient, element, [&](OpBuilder &nested, ValueRange elements) {
        Value wide = TensorEmitter::convertedScalar(nested, e.loc, elements.front(), getScoreType(result.getType()));
        return emitProduct(nested, wide, result, operand.getOperandNumber());
      }));
    }
  }
  return success();
}

GradientRule saccade::attn::findGradientRule(Operation *op) {
  return llvm::TypeSwitch<Operation *, GradientRule>(op)
      .Case<AttentionOp>([](auto) { return differentiateAttention; })
      .Case<LinearOp>([](auto) { return differentiateLinear; })
      .Case<linalg::LinalgOp>([](auto) { return differentiateStructured; })
      .Case<tensor::CastOp>([](auto) { return differentiateCast; })
      .Case<tensor::ExtractSliceOp>([](auto) { return differentiateExtractSlice; })
      .Case<tensor::InsertSliceOp>([](auto) { return differentiateInsertSlice; })
      .Case<tensor::ExpandShapeOp>([](auto) { return differentiateExpand; })
      .Case<tensor::CollapseShapeOp>([](auto) { return differentiateCollapse; })
      .Default([](Operation *other) { return hasScalarRule(other) ? differentiateScalar : nullptr; });
}

//===----------------------------------------------------------------------===//
// Forward mode
//===----------------------------------------------------------------------===//

/// A view or a read of an element, which are linear in their first operand.
static LogicalResult pushView(Operation *op, Tangents &tangents) {
  IRMapping mapping;
  mapping.map(op->getOperand(0), tangents.of(op->getOperand(0)));
  tangents.set(op->getResult(0), tangents.b.clone(*op, mapping)->getResult(0));
  return success();
}

static LogicalResult pushInsertSlice(Operation *op, Tangents &tangents) {
  auto slice = cast<tensor::InsertSliceOp>(op);
  TensorEmitter e{tangents.b, op->getLoc()};
  auto orZeros = [&](Value value) {
    Value tangent = tangents.of(value);
    return tangent ? tangent : e.zeros(value, getElementTypeOrSelf(value));
  };
  tangents.set(slice.getResult(), tensor::InsertSliceOp::create(tangents.b, op->getLoc(), orZeros(slice.getSource()),
                                                                orZeros(slice.getDest()), slice.getMixedOffsets(),
                                                                slice.getMixedSizes(), slice.getMixedStrides()));
  return success();
}

static LogicalResult pushScalar(Operation *op, Tangents &tangents) {
  SmallVector<Value> ofOperands = llvm::map_to_vector(op->getOperands(), [&](Value operand) {
    Value tangent = tangents.of(operand);
    return tangent ? TensorEmitter::convertedScalar(tangents.b, op->getLoc(), tangent, getScoreType(tangent.getType()))
                   : Value();
  });
  for (OpResult result : op->getResults())
    if (isFloat(result))
      if (Value tangent = emitTangent(tangents.b, ofOperands, result))
        tangents.set(result, tangent);
  return success();
}

TangentRule saccade::attn::findTangentRule(Operation *op) {
  return llvm::TypeSwitch<Operation *, TangentRule>(op)
      .Case<AttentionOp>([](auto) { return pushAttention; })
      .Case<LinearOp>([](auto) { return pushLinear; })
      .Case<linalg::LinalgOp>([](auto) { return pushStructured; })
      .Case<tensor::CastOp, tensor::ExtractOp, tensor::ExtractSliceOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
          [](auto) { return pushView; })
      .Case<tensor::InsertSliceOp>([](auto) { return pushInsertSlice; })
      .Default([](Operation *other) { return hasScalarRule(other) ? pushScalar : nullptr; });
}
