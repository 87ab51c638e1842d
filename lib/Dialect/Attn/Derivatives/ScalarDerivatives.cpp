//===- ScalarDerivatives.cpp - Reverse and forward mode of scalar code --------===//
//
// Both modes add contributions: products of a derivative and a partial derivative, each with the conditions under which
// it counts.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarRules.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// A derivative that counts where all conditions hold and is 0 elsewhere. A null amount is 0 everywhere.
struct Contribution {
  Value amount;
  SmallVector<Condition, 2> conditions;

  bool has(const Condition &condition) const { return llvm::is_contained(conditions, condition); }
  Contribution without(Value value) const {
    Contribution result = *this;
    llvm::erase_if(result.conditions, [&](const Condition &each) { return each.value == value; });
    return result;
  }
};

class Emitter {
public:
  Emitter(OpBuilder &b, StringRef place, const IRMapping &values) : b(b), place(place), values(values) {}

protected:
  /// Adds to `parts` the product of `derivative` and the derivative of `result` with respect to its operand, in the
  /// type of derivatives of `of`.
  void addProduct(SmallVectorImpl<Contribution> &parts, const Contribution &derivative, OpResult result,
                  unsigned operand, Value of) {
    Location loc = result.getLoc();
    Partial partial = emitPartial(b, result, operand, values);
    if (partial.condition && derivative.has({partial.condition->value, !partial.condition->holds}))
      return;
    Type inner = partial.factor ? partial.factor.getType() : getScoreType(result.getType());
    Contribution to = derivative;
    to.amount = converted(loc, to.amount, inner);
    if (partial.kind == Partial::MinusOne)
      to.amount = arith::NegFOp::create(b, loc, to.amount);
    else if (partial.kind == Partial::Factor)
      to.amount = arith::MulFOp::create(b, loc, to.amount, partial.factor);
    to.amount = converted(loc, to.amount, getScoreType(of.getType()));
    if (partial.condition && !to.has(*partial.condition))
      to.conditions.push_back(*partial.condition);
    parts.push_back(std::move(to));
  }

  /// The sum of contributions to a value of one type. Conditions that all of them share remain conditions.
  Contribution sum(Location loc, ArrayRef<Contribution> parts) {
    SmallVector<Condition, 2> shared;
    for (const Condition &condition : parts.front().conditions)
      if (llvm::all_of(parts, [&](const Contribution &part) { return part.has(condition); }))
        shared.push_back(condition);
    SmallVector<Contribution> rest(parts);
    for (const Condition &condition : shared)
      for (Contribution &part : rest)
        part = part.without(condition.value);
    return {guardedSum(loc, rest), shared};
  }

  /// The same, 0 where the conditions do not hold; null without parts.
  Value guardedSum(Location loc, ArrayRef<Contribution> parts) {
    Value condition;
    for (const Contribution &part : parts)
      if (!part.conditions.empty())
        condition = part.conditions.front().value;
    SmallVector<Contribution> whenTrue, whenFalse, always;
    for (const Contribution &part : parts)
      (!condition                              ? always
       : part.has(Condition{condition})        ? whenTrue
       : part.has(Condition{condition, false}) ? whenFalse
                                               : always)
          .push_back(condition ? part.without(condition) : part);
    Value result;
    if (condition)
      result = chosen(loc, condition, guardedSum(loc, whenTrue), guardedSum(loc, whenFalse));
    else
      for (const Contribution &part : parts)
        result = added(loc, result, part.amount);
    return condition ? added(loc, result, guardedSum(loc, always)) : result;
  }

  Value added(Location loc, Value x, Value y) { return !x ? y : !y ? x : Value(arith::AddFOp::create(b, loc, x, y)); }
  Value chosen(Location loc, Value condition, Value x, Value y) {
    Type type = (x ? x : y).getType();
    auto orZero = [&](Value value) {
      return value ? value : Value(arith::ConstantOp::create(b, loc, b.getFloatAttr(type, 0.0)));
    };
    return arith::SelectOp::create(b, loc, condition, orZero(x), orZero(y));
  }
  Value converted(Location loc, Value value, Type type) {
    if (value.getType() == type)
      return value;
    bool isWider = type.getIntOrFloatBitWidth() > value.getType().getIntOrFloatBitWidth();
    return isWider ? Value(arith::ExtFOp::create(b, loc, type, value))
                   : Value(arith::TruncFOp::create(b, loc, type, value));
  }

  /// Reports an op through which no derivative can be taken.
  LogicalResult checkRule(Operation &op) {
    if (hasScalarRule(&op))
      return success();
    return op.emitOpError() << "has no derivative, but " << place << " is differentiated through it";
  }
  /// Bits of a float are not a differentiable function of it, but other functions of integers are steps.
  LogicalResult checkBits(Operation &op, function_ref<bool(Value)> depends) {
    if (isa<arith::BitcastOp>(op) && !op.use_empty() && depends(op.getOperand(0)))
      return checkRule(op);
    return success();
  }

  OpBuilder &b;
  StringRef place;
  const IRMapping &values;
};

//===----------------------------------------------------------------------===//
// Reverse mode
//===----------------------------------------------------------------------===//

class ReverseMode : Emitter {
public:
  using Emitter::Emitter;

  FailureOr<SmallVector<ElementGradient>> run(Block &block, ArrayRef<std::pair<Value, Value>> seeds,
                                              ArrayRef<Value> inputs) {
    if (failed(findDependent(block, inputs)))
      return failure();
    for (auto [value, seed] : seeds)
      if (dependent.contains(value))
        contributions[value].push_back({converted(value.getLoc(), seed, getScoreType(value.getType())), {}});
    for (Operation &op : llvm::reverse(block.without_terminator()))
      for (OpResult result : op.getResults())
        if (failed(propagate(op, result)))
          return failure();
    SmallVector<ElementGradient> gradients;
    for (Value input : inputs) {
      for (Value read : reads[input])
        addTo(gradients, {input, emittedIndices(read), total(read)});
      if (Value amount = isa<ShapedType>(input.getType()) ? Value() : total(input))
        gradients.push_back({input, {}, amount});
    }
    return gradients;
  }

private:
  /// Finds the values that depend on the inputs and may have a derivative with respect to them.
  LogicalResult findDependent(Block &block, ArrayRef<Value> inputs) {
    dependent.insert_range(inputs);
    for (Operation &op : block.without_terminator()) {
      if (failed(checkBits(op, [&](Value value) { return dependent.contains(value); })))
        return failure();
      for (OpResult result : op.getResults())
        if (isa<FloatType>(result.getType()) && dependsOnInput(op, result))
          dependent.insert(result);
    }
    return success();
  }
  bool dependsOnInput(Operation &op, OpResult result) {
    if (auto read = dyn_cast<tensor::ExtractOp>(op))
      return dependent.contains(read.getTensor());
    return llvm::any_of(op.getOpOperands(), [&](OpOperand &operand) {
      return dependent.contains(operand.get()) && isa<FloatType>(operand.get().getType()) &&
             (!hasScalarRule(&op) || hasPartial(result, operand.getOperandNumber()));
    });
  }

  LogicalResult propagate(Operation &op, OpResult result) {
    auto known = contributions.find(result);
    if (known == contributions.end())
      return success();
    if (auto read = dyn_cast<tensor::ExtractOp>(op)) {
      reads[read.getTensor()].push_back(read);
      return success();
    }
    if (failed(checkRule(op)))
      return failure();
    if (known->second.empty())
      return success();
    Contribution derivative = sum(op.getLoc(), known->second);
    for (OpOperand &operand : op.getOpOperands())
      if (Value of = operand.get(); dependent.contains(of) && hasPartial(result, operand.getOperandNumber()))
        addProduct(contributions[of], derivative, result, operand.getOperandNumber(), of);
    return success();
  }

  Value total(Value value) {
    auto known = contributions.find(value);
    return known == contributions.end() ? Value() : guardedSum(value.getLoc(), known->second);
  }
  SmallVector<Value, 4> emittedIndices(Value read) {
    return llvm::map_to_vector<4>(read.getDefiningOp<tensor::ExtractOp>().getIndices(),
                                  [&](Value index) { return values.lookupOrDefault(index); });
  }
  void addTo(SmallVector<ElementGradient> &gradients, ElementGradient gradient) {
    for (ElementGradient &each : gradients)
      if (each.input == gradient.input && each.indices == gradient.indices) {
        each.amount = added(gradient.amount.getLoc(), each.amount, gradient.amount);
        return;
      }
    gradients.push_back(gradient);
  }

  llvm::DenseSet<Value> dependent;
  llvm::DenseMap<Value, SmallVector<Contribution>> contributions;
  llvm::DenseMap<Value, SmallVector<Value>> reads;
};

//===----------------------------------------------------------------------===//
// Forward mode
//===----------------------------------------------------------------------===//

class ForwardMode : Emitter {
public:
  using Emitter::Emitter;

  FailureOr<SmallVector<Value>> run(Block &block, function_ref<Value(Value)> tangentOf) {
    auto tangent = [&](Value value) {
      auto [it, isNew] = tangents.try_emplace(value);
      if (isNew && isa<FloatType>(value.getType()))
        it->second = tangentOf(value);
      return it->second;
    };
    for (Operation &op : block.without_terminator()) {
      if (failed(checkBits(op, [&](Value value) { return bool(tangent(value)); })))
        return failure();
      if (isa<tensor::ExtractOp>(op)) {
        tangents[op.getResult(0)] = isa<FloatType>(op.getResult(0).getType()) ? tangentOf(op.getResult(0)) : Value();
        continue;
      }
      for (OpResult result : op.getResults()) {
        SmallVector<Contribution> parts;
        for (OpOperand &operand : op.getOpOperands()) {
          Value own = isa<FloatType>(result.getType()) ? tangent(operand.get()) : Value();
          if (!own || result.use_empty())
            continue;
          if (failed(checkRule(op)))
            return failure();
          if (hasPartial(result, operand.getOperandNumber()))
            addProduct(parts, {own, {}}, result, operand.getOperandNumber(), result);
        }
        tangents[result] = guardedSum(op.getLoc(), parts);
      }
    }
    return llvm::map_to_vector(block.getTerminator()->getOperands(), tangent);
  }

private:
  llvm::DenseMap<Value, Value> tangents;
};

struct SingleOp : Emitter {
  using Emitter::Emitter;
  Value emitReverse(Value derivative, OpResult result, unsigned operand) {
    SmallVector<Contribution> parts;
    addProduct(parts, {derivative, {}}, result, operand, result.getOwner()->getOperand(operand));
    return guardedSum(result.getLoc(), parts);
  }
  Value emitForward(ArrayRef<Value> tangents, OpResult result) {
    SmallVector<Contribution> parts;
    for (auto [i, tangent] : llvm::enumerate(tangents))
      if (tangent && hasPartial(result, i))
        addProduct(parts, {tangent, {}}, result, i, result);
    return guardedSum(result.getLoc(), parts);
  }
};

} // namespace

Value saccade::attn::emitProduct(OpBuilder &b, Value derivative, OpResult result, unsigned operand) {
  IRMapping none;
  return SingleOp(b, /*place=*/"", none).emitReverse(derivative, result, operand);
}

Value saccade::attn::emitTangent(OpBuilder &b, ArrayRef<Value> tangents, OpResult result) {
  IRMapping none;
  return SingleOp(b, /*place=*/"", none).emitForward(tangents, result);
}

void saccade::attn::cloneScalarCode(OpBuilder &b, Block &block, IRMapping &values) {
  for (Operation &op : block.without_terminator())
    b.clone(op, values);
}

FailureOr<SmallVector<ElementGradient>> saccade::attn::emitReverseMode(OpBuilder &b, StringRef place, Block &block,
                                                                       const IRMapping &values,
                                                                       ArrayRef<std::pair<Value, Value>> seeds,
                                                                       ArrayRef<Value> inputs) {
  return ReverseMode(b, place, values).run(block, seeds, inputs);
}

FailureOr<SmallVector<Value>> saccade::attn::emitForwardMode(OpBuilder &b, StringRef place, Block &block,
                                                             const IRMapping &values,
                                                             function_ref<Value(Value)> tangentOf) {
  return ForwardMode(b, place, values).run(block, tangentOf);
}
