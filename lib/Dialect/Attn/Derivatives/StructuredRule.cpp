//===- StructuredRule.cpp - The rule of structured ops ------------------------===//
//
// A structured op whose body is f(inputs), or output + f(inputs), is differentiated by ops with the same loops: the
// gradient of an input is the sum of (gradient of the output) · ∂f/∂input over the loops that do not index the input,
// and the tangent of the output is (tangent of the output's operand) + the tangent of f. This covers elementwise ops,
// broadcasts, transposes, sums and contractions.
//
//===----------------------------------------------------------------------===//
#include "Gradients.h"
#include "Tangents.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

/// What a structured op computes for an output.
struct Term {
  Value value;  ///< f in the body
  bool isAdded; ///< to the element of the output; otherwise it replaces the element
};

FailureOr<Term> findTerm(linalg::LinalgOp op, OpOperand &init, const Differentiated &function) {
  BlockArgument element = op.getMatchingBlockArgument(&init);
  Value yielded = op.getBlock()->getTerminator()->getOperand(element.getArgNumber() - op.getNumDpsInputs());
  if (!element.use_empty()) {
    auto sum = yielded.getDefiningOp<arith::AddFOp>();
    if (!sum || !element.hasOneUse() || !llvm::is_contained(sum->getOperands(), element))
      return function.emitError(op) << "no rule for '" << op->getName()
                                    << "' that combines its output in another way than by a sum";
    return Term{sum.getLhs() == element ? sum.getRhs() : sum.getLhs(), true};
  }
  if (op.getNumReductionLoops() != 0)
    return function.emitError(op) << "no rule for '" << op->getName() << "' with a reduction that overwrites";
  return Term{yielded, false};
}

/// Fails if the body reads a tensor that is differentiated.
LogicalResult checkReads(linalg::LinalgOp op, const Differentiated &function,
                         function_ref<bool(Value)> isDifferentiated) {
  WalkResult reads = op->walk([&](tensor::ExtractOp read) {
    return isDifferentiated(read.getTensor()) ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (!reads.wasInterrupted())
    return success();
  return function.emitError(op) << "no rule for '" << op->getName() << "' with reads of a tensor at computed positions";
}

/// Scalars from outside that the body uses.
SetVector<Value> getOutsideScalars(linalg::LinalgOp op) {
  SetVector<Value> outside;
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (inner != op && operand.getParentBlock() != op.getBlock() && isa<FloatType>(operand.getType()))
        outside.insert(operand);
  });
  return outside;
}

/// Copies the ops of the body that do not depend on outputs.
void cloneIndependent(OpBuilder &b, linalg::LinalgOp op, IRMapping &values) {
  DenseSet<Value> ofOutputs;
  for (OpOperand &init : op.getDpsInitsMutable())
    ofOutputs.insert(op.getMatchingBlockArgument(&init));
  for (Operation &inner : op.getBlock()->without_terminator()) {
    if (llvm::any_of(inner.getOperands(), [&](Value operand) { return ofOutputs.contains(operand); }))
      ofOutputs.insert_range(inner.getResults());
    else
      b.clone(inner, values);
  }
}

//===----------------------------------------------------------------------===//
// Reverse mode
//===----------------------------------------------------------------------===//

class StructuredRule {
public:
  StructuredRule(linalg::LinalgOp op, Gradients &gradients)
      : op(op), gradients(gradients), e{gradients.b, op.getLoc()} {}

  LogicalResult apply() {
    for (OpOperand &init : op.getDpsInitsMutable())
      if (failed(addOutput(init)))
        return failure();
    if (seeds.empty())
      return success();
    if (failed(checkReads(op, gradients, [&](Value tensor) { return gradients.isActive(tensor); })))
      return failure();
    for (OpOperand *input : op.getDpsInputOperands())
      if (gradients.isActive(input->get()) &&
          failed(addInput(input->get(), op.getMatchingBlockArgument(input), op.getMatchingIndexingMap(input))))
        return failure();
    AffineMap none = AffineMap::get(op.getNumLoops(), 0, op.getContext());
    for (Value scalar : getOutsideScalars(op))
      if (gradients.isActive(scalar) && failed(addInput(scalar, scalar, none)))
        return failure();
    return success();
  }

private:
  /// Records the value f of an output with a gradient.
  LogicalResult addOutput(OpOperand &init) {
    Value gradient = gradients.of(op.getTiedOpResult(&init));
    if (!gradient)
      return success();
    FailureOr<Term> term = findTerm(op, init, gradients);
    if (failed(term))
      return failure();
    if (term->isAdded)
      gradients.add(init.get(), gradient);
    Value yielded = term->value;
    AffineMap map = op.getMatchingIndexingMap(&init);
    seeds.push_back({yielded, gradient, map});
    return success();
  }

  /// Adds the gradient of `operand`, an operand with indexing map `map` that `element` is in the body.
  LogicalResult addInput(Value operand, Value element, AffineMap map) {
    if (!map.isProjectedPermutation(/*allowZeroInResults=*/true))
      return gradients.emitError(op) << "no rule for '" << op->getName() << "' with the indexing map "
                                     << AffineMapAttr::get(map);
    Block &block = *op.getBlock();
    SmallVector<TensorEmitter::Indexed> inputs;
    for (OpOperand *input : op.getDpsInputOperands())
      inputs.push_back({input->get(), op.getMatchingIndexingMap(input)});
    for (const Seed &seed : seeds)
      inputs.push_back({seed.gradient, seed.map});
    Type type = getScoreType(element.getType());
    bool isSum = llvm::any_of(llvm::seq(op.getNumLoops()), [&](unsigned loop) { return !map.isFunctionOfDim(loop); });
    LogicalResult status = success();
    bool isZero = false;
    Value result = e.accumulate(inputs, operand, map, type, [&](OpBuilder &nested, ValueRange elements) -> Value {
      IRMapping values;
      for (OpOperand *input : op.getDpsInputOperands())
        values.map(op.getMatchingBlockArgument(input), elements[input->getOperandNumber()]);
      cloneIndependent(nested, op, values);
      SmallVector<std::pair<Value, Value>> seeded;
      for (auto [seed, gradient] : llvm::zip_equal(seeds, elements.drop_back().take_back(seeds.size())))
        seeded.emplace_back(seed.value, gradient);
      auto found = emitReverseMode(nested, "'" + gradients.function.str() + "'", block, values, seeded, {element});
      status = found;
      isZero = failed(found) || found->empty();
      if (isZero)
        return elements.back();
      Value amount = found->front().amount;
      return isSum ? Value(arith::AddFOp::create(nested, e.loc, elements.back(), amount)) : amount;
    });
    if (!isZero)
      gradients.add(operand, result);
    return status;
  }

  struct Seed {
    Value value, gradient; ///< f in the body, and the gradient of the output
    AffineMap map;         ///< of the output
  };
  linalg::LinalgOp op;
  Gradients &gradients;
  TensorEmitter e;
  SmallVector<Seed> seeds;
};

//===----------------------------------------------------------------------===//
// Forward mode
//===----------------------------------------------------------------------===//

class StructuredTangent {
public:
  StructuredTangent(linalg::LinalgOp op, Tangents &tangents)
      : op(op), tangents(tangents), e{tangents.b, op.getLoc()}, place("'" + tangents.function.str() + "'") {}

  LogicalResult apply() {
    if (failed(checkReads(op, tangents, [&](Value tensor) { return bool(tangents.of(tensor)); })))
      return failure();
    for (OpOperand *input : op.getDpsInputOperands())
      if (Value tangent = tangents.of(input->get()))
        inputs.push_back({op.getMatchingBlockArgument(input), {tangent, op.getMatchingIndexingMap(input)}});
    AffineMap none = AffineMap::get(op.getNumLoops(), 0, op.getContext());
    for (Value scalar : getOutsideScalars(op))
      if (Value tangent = tangents.of(scalar))
        inputs.push_back({scalar, {tangent, none}});
    for (OpOperand &init : op.getDpsInitsMutable())
      if (tangents.isNeeded(op.getTiedOpResult(&init)) && failed(pushOutput(init)))
        return failure();
    return success();
  }

private:
  /// An operand, as the body names it, and its tangent.
  using Input = std::pair<Value, TensorEmitter::Indexed>;

  LogicalResult pushOutput(OpOperand &init) {
    FailureOr<Term> term = findTerm(op, init, tangents);
    if (failed(term))
      return failure();
    Value result = op.getTiedOpResult(&init);
    Type type = getScoreType(getElementTypeOrSelf(result));
    Value sums = tangents.of(init.get());
    if (!term->isAdded || !sums)
      sums = term->isAdded ? e.zeros(init.get(), type) : e.empty(init.get(), type);
    else
      sums = e.withElement(sums, type);
    // A sum of products has a tangent for each factor, and each of them is a contraction.
    SmallVector<ArrayRef<Input>> parts = {inputs};
    if (op.getNumReductionLoops() != 0) {
      parts.clear();
      for (const Input &input : inputs)
        parts.push_back(input);
    }
    for (ArrayRef<Input> part : parts)
      if (failed(addTangent(init, part, sums)))
        return failure();
    tangents.set(result, sums);
    return success();
  }

  /// Adds to `sums`, or sets it to, the tangent of the output by those of `part`.
  LogicalResult addTangent(OpOperand &init, ArrayRef<Input> part, Value &sums) {
    SmallVector<TensorEmitter::Indexed> operands;
    for (OpOperand *input : op.getDpsInputOperands())
      operands.push_back({input->get(), op.getMatchingIndexingMap(input)});
    for (const Input &input : part)
      operands.push_back(input.second);
    Value output = op.getMatchingBlockArgument(&init);
    LogicalResult status = success();
    sums = e.generic(
        operands, {sums, op.getMatchingIndexingMap(&init)}, [&](OpBuilder &nested, ValueRange elements) -> Value {
          IRMapping values;
          for (OpOperand *input : op.getDpsInputOperands())
            values.map(op.getMatchingBlockArgument(input), elements[input->getOperandNumber()]);
          cloneIndependent(nested, op, values);
          ValueRange given = elements.drop_back().take_back(part.size());
          auto tangentOf = [&](Value value) -> Value {
            if (value == output)
              return elements.back();
            for (auto [input, tangent] : llvm::zip_equal(part, given))
              if (input.first == value)
                return TensorEmitter::convertedScalar(nested, e.loc, tangent, getScoreType(tangent.getType()));
            return {};
          };
          auto found = emitForwardMode(nested, place, *op.getBlock(), values, tangentOf);
          status = found;
          Value tangent = succeeded(found) ? (*found)[init.getOperandNumber() - op.getNumDpsInputs()] : Value();
          if (tangent)
            return tangent;
          auto type = cast<FloatType>(elements.back().getType());
          return arith::ConstantOp::create(nested, e.loc, nested.getFloatAttr(type, 0));
        });
    return status;
  }

  linalg::LinalgOp op;
  Tangents &tangents;
  TensorEmitter e;
  std::string place;
  SmallVector<Input> inputs;
};

} // namespace

LogicalResult saccade::attn::pushStructured(Operation *op, Tangents &tangents) {
  return StructuredTangent(cast<linalg::LinalgOp>(op), tangents).apply();
}

LogicalResult saccade::attn::differentiateStructured(Operation *op, Gradients &gradients) {
  return StructuredRule(cast<linalg::LinalgOp>(op), gradients).apply();
}
