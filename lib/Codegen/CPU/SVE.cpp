//===- SVE.cpp - Instructions of SVE ------------------------------------------===//
#include "SVE.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace saccade::cpu;

static VectorType scalableType(Type element) {
  return VectorType::get({128 / int64_t(element.getIntOrFloatBitWidth())}, element, /*scalableDims=*/{true});
}

static Value toScalable(Emitter &e, Value operand) {
  auto fixed = dyn_cast<VectorType>(operand.getType());
  if (!fixed || fixed.isScalable())
    return operand;
  Value none = LLVM::PoisonOp::create(e.b, e.loc, scalableType(fixed.getElementType()));
  return LLVM::vector_insert::create(e.b, e.loc, none.getType(), none, operand, /*pos=*/0);
}

Value saccade::cpu::emitSVE(Emitter &e, StringRef intrinsic, VectorType result, ValueRange operands) {
  SmallVector<Value> scalable;
  for (Value operand : operands)
    scalable.push_back(toScalable(e, operand));
  Value called = LLVM::CallIntrinsicOp::create(e.b, e.loc, scalableType(result.getElementType()),
                                               e.b.getStringAttr(intrinsic), scalable)
                     .getResult(0);
  if (result.isScalable())
    return called;
  return LLVM::vector_extract::create(e.b, e.loc, result, called, /*pos=*/0);
}

Value saccade::cpu::emitScalable(Emitter &e, Value vector, Type element) {
  return LLVM::BitcastOp::create(e.b, e.loc, scalableType(element), toScalable(e, vector));
}

Value saccade::cpu::emitRoundInSVE(Emitter &e, Value first, Value second) {
  VectorType pairs = scalableType(e.b.getBF16Type()), integers = scalableType(e.b.getI16Type());
  Value none = LLVM::PoisonOp::create(e.b, e.loc, pairs);
  // The instruction writes the lower halves of lanes.
  auto round = [&](Value vector) -> Value {
    Value rounded = emitSVE(e, "llvm.aarch64.sve.fcvt.bf16f32.v2", pairs, {none, emitAllLanes(e), vector});
    return LLVM::BitcastOp::create(e.b, e.loc, integers, rounded);
  };
  Value rounded = emitSVE(e, "llvm.aarch64.sve.uzp1", integers, {round(first), round(second)});
  Value bits = LLVM::BitcastOp::create(e.b, e.loc, scalableType(e.type), rounded);
  return LLVM::vector_extract::create(e.b, e.loc, e.vectorType(), bits, /*pos=*/0);
}

Value saccade::cpu::emitAllLanes(Emitter &e) {
  auto type = VectorType::get({128 / int64_t(e.type.getWidth())}, e.b.getI1Type(), /*scalableDims=*/{true});
  return arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(type, true));
}
