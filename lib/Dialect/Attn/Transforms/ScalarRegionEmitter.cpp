//===- ScalarRegionEmitter.cpp - Clone scalar code of a region ----------------===//
#include "ScalarRegionEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade::attn;

void saccade::attn::collectProducers(Value value, llvm::SetVector<Operation *> &ops) {
  if (Operation *op = value.getDefiningOp(); op && ops.insert(op))
    for (Value operand : op->getOperands())
      if (!isa<RankedTensorType>(operand.getType()))
        collectProducers(operand, ops);
}

Value saccade::attn::withoutCasts(Value tensor) {
  while (auto cast = tensor.getDefiningOp<tensor::CastOp>())
    tensor = cast.getSource();
  return tensor;
}

bool saccade::attn::isReadableBeforeCall(Value tensor) {
  tensor = withoutCasts(tensor);
  auto type = dyn_cast<RankedTensorType>(tensor.getType());
  return type && isa<BlockArgument>(tensor) && type.getElementType().isIntOrIndex();
}

Value ScalarRegionEmitter::emit(Value value) {
  if (Value found = values.lookupOrNull(value))
    return found;
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions() != 0)
    return {};
  Value result;
  if (auto read = dyn_cast<tensor::ExtractOp>(op)) {
    result = emitRead(read);
  } else if (auto length = dyn_cast<LengthOp>(op)) {
    result = length.getRole() == Role::Query ? queryLength : keyLength;
  } else if (op->getNumOperands() == 0 || isSpeculatable(op)) {
    for (Value operand : op->getOperands())
      if (!emit(operand))
        return {};
    result = b.clone(*op, values)->getResult(cast<OpResult>(value).getResultNumber());
  }
  if (result)
    values.map(value, result);
  return result;
}

Value ScalarRegionEmitter::emitRead(tensor::ExtractOp read) {
  Value tensor = values.lookupOrNull(read.getTensor());
  if (!tables || !tensor || !isReadableBeforeCall(tensor))
    return {};
  SmallVector<Value> indices;
  for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
    Value place = emit(index);
    if (!place)
      return {};
    Value size = tensor::DimOp::create(b, loc, tensor, dim), one = arith::ConstantIndexOp::create(b, loc, 1);
    Value last = arith::SubIOp::create(b, loc, size, one), zero = arith::ConstantIndexOp::create(b, loc, 0);
    place = arith::MinSIOp::create(b, loc, place, last);
    indices.push_back(arith::MaxSIOp::create(b, loc, place, zero));
  }
  tables->insert(tensor);
  return tensor::ExtractOp::create(b, loc, tensor, indices);
}

Value ScalarRegionEmitter::truth(bool holds) { return arith::ConstantIntOp::create(b, loc, holds, 1); }
Value ScalarRegionEmitter::both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); }
Value ScalarRegionEmitter::either(Value x, Value y) { return b.createOrFold<arith::OrIOp>(loc, x, y); }
Value ScalarRegionEmitter::negate(Value x) { return b.createOrFold<arith::XOrIOp>(loc, x, truth(true)); }

Value ScalarRegionEmitter::affectsResult(Value value, Value read) {
  if (value == read)
    return truth(true);
  llvm::SetVector<Operation *> ops;
  collectProducers(value, ops);
  if (!ops.contains(read.getDefiningOp()))
    return truth(false);
  if (Value found = known.lookup(value))
    return found;
  Value result = computeAffectsResult(value, read);
  if (result)
    known[value] = result;
  return result;
}

Value ScalarRegionEmitter::computeAffectsResult(Value value, Value read) {
  Operation *op = value.getDefiningOp();
  SmallVector<Value> ofOperands;
  for (Value operand : op->getOperands()) {
    ofOperands.push_back(isa<RankedTensorType>(operand.getType()) ? truth(false) : affectsResult(operand, read));
    if (!ofOperands.back())
      return {};
  }
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    Value condition = emit(select.getCondition());
    if (!condition)
      return {};
    Value chosen = either(both(condition, ofOperands[1]), both(negate(condition), ofOperands[2]));
    return either(ofOperands[0], chosen);
  }
  if (value.getType().isInteger(1) && isa<arith::AndIOp, arith::OrIOp>(op)) {
    // A false operand of and (true operand of or) decides the result without the other one.
    Value result = truth(false);
    for (unsigned i = 0; i < 2; ++i) {
      Value other = emit(op->getOperand(1 - i));
      if (!other)
        return {};
      Value isOpen = isa<arith::AndIOp>(op) ? other : negate(other);
      result = either(result, both(ofOperands[i], either(isOpen, ofOperands[1 - i])));
    }
    return result;
  }
  Value result = truth(false);
  for (Value each : ofOperands)
    result = either(result, each);
  return result;
}
