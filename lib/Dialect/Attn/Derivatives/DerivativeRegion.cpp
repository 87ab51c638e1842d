//===- DerivativeRegion.cpp - Regions of derivatives of an attention ----------===//
#include "DerivativeRegion.h"
#include "TensorEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"

using namespace mlir;
using namespace saccade::attn;

static Block &addBlock(AttentionOp op, ValueRange captures, Region &region, unsigned numbers) {
  SmallVector<Type> types(numbers, op.getScoreType());
  types.append(4, IndexType::get(op.getContext()));
  llvm::append_range(types, captures.getTypes());
  Block &block = region.emplaceBlock();
  block.addArguments(types, SmallVector<Location>(types.size(), op.getLoc()));
  return block;
}

DerivativeRegion::DerivativeRegion(AttentionOp op, ValueRange captures, Region &region, unsigned numbers)
    : op(op), b(op.getContext()), loc(op.getLoc()), block(addBlock(op, captures, region, numbers)),
      args(getRegionArguments(region, numbers)) {
  b.setInsertionPointToEnd(&block);
}

Value DerivativeRegion::constant(double number) {
  return arith::ConstantOp::create(b, loc, b.getFloatAttr(op.getScoreType(), number));
}

Value DerivativeRegion::multiply(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }

Value DerivativeRegion::add(Value x, Value y) {
  return !x ? y : !y ? x : arith::AddFOp::create(b, loc, x, y).getResult();
}

Value DerivativeRegion::converted(Value value, Type type) {
  return TensorEmitter::convertedScalar(b, loc, value, type);
}

IRMapping DerivativeRegion::enter(Region &region, Value number) {
  IRMapping values;
  if (region.empty())
    return values;
  RegionArguments from = getRegionArguments(region, /*numbers=*/1);
  for (auto [source, value] :
       {std::pair(from.score, number), std::pair(from.batch, args.batch), std::pair(from.head, args.head),
        std::pair(from.query, args.query), std::pair(from.key, args.key)})
    values.map(source, value);
  values.map(from.captures, args.captures.take_front(from.captures.size()));
  cloneScalarCode(b, region.front(), values);
  return values;
}

Value DerivativeRegion::yielded(Region &region, const IRMapping &values) {
  return values.lookupOrDefault(region.front().getTerminator()->getOperands().back());
}

LogicalResult saccade::attn::checkWeight(AttentionOp op) {
  if (!needsSoftmaxWeights(op))
    return success();
  return op.emitOpError() << "cannot be differentiated: its weight region is not proved proportional to the weight, "
                             "and other weight regions need a normalized second pass";
}

void saccade::attn::cloneRegions(AttentionOp from, DerivativeOpInterface to, ValueRange captures) {
  for (auto [source, copy] : {std::pair(&from.getScore(), &to.getScore()), std::pair(&from.getMask(), &to.getMask()),
                              std::pair(&from.getWeight(), &to.getWeight())}) {
    IRMapping mapping;
    source->cloneInto(copy, mapping);
    if (!copy->empty())
      for (Value added : captures.drop_front(from.getCaptures().size()))
        copy->addArgument(added.getType(), from.getLoc());
  }
}
