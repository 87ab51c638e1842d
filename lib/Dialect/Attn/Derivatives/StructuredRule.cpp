//===- StructuredRule.cpp - The rule of structured ops ------------------------===//
//
// A structured op whose body is f(inputs), or output + f(inputs), is differentiated by ops with the same loops: the
// gradient of an input is the sum of (gradient of the output) · ∂f/∂input over the loops that do not index the input.
// This covers elementwise ops, broadcasts, transposes, sums and contractions.
//
//===----------------------------------------------------------------------===//
#include "Gradients.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "saccade/Dialect/Attn/Derivatives/ScalarDerivatives.h"

using namespace mlir;
using namespace saccade::attn;

namespace {

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
    WalkResult reads = op->walk([&](tensor::ExtractOp read) {
      return gradients.isActive(read.getTensor()) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (reads.wasInterrupted())
      return gradients.emitError(op) << "no rule for '" << op->getName()
                                     << "' with reads of a tensor at computed positions";
    for (OpOperand *input : op.getDpsInputOperands())
      if (gradients.isActive(input->get()) &&
          failed(addInput(input->get(), op.getMatchingBlockArgument(input), op.getMatchingIndexingMap(input))))
        return failure();
    // Scalars from outside that the body uses.
    SetVector<Value> outside;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (inner != op && operand.getParentBlock() != op.getBlock() && isa<FloatType>(operand.getType()))
          outside.insert(operand);
    });
    AffineMap none = AffineMap::get(op.getNumLoops(), 0, op.getContext());
    for (Value scalar : outside)
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
    Block &block = *op.getBlock();
    BlockArgument element = op.getMatchingBlockArgument(&init);
    AffineMap map = op.getMatchingIndexingMap(&init);
    Value yielded = block.getTerminator()->getOperand(element.getArgNumber() - op.getNumDpsInputs());
    if (!element.use_empty()) {
      auto sum = yielded.getDefiningOp<arith::AddFOp>();
      if (!sum || !element.hasOneUse() || !llvm::is_contained(sum->getOperands(), element))
        return gradients.emitError(op) << "no rule for '" << op->getName()
                                       << "' that combines its output in another way than by a sum";
      gradients.add(init.get(), gradient);
      yielded = sum.getLhs() == element ? sum.getRhs() : sum.getLhs();
    } else if (op.getNumReductionLoops() != 0) {
      return gradients.emitError(op) << "no rule for '" << op->getName() << "' with a reduction that overwrites";
    }
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
      cloneIndependent(nested, block, values);
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

  /// Copies the ops that do not depend on outputs.
  void cloneIndependent(OpBuilder &b, Block &block, IRMapping &values) {
    DenseSet<Value> ofOutputs;
    for (OpOperand &init : op.getDpsInitsMutable())
      ofOutputs.insert(op.getMatchingBlockArgument(&init));
    for (Operation &inner : block.without_terminator()) {
      if (llvm::any_of(inner.getOperands(), [&](Value operand) { return ofOutputs.contains(operand); }))
        ofOutputs.insert_range(inner.getResults());
      else
        b.clone(inner, values);
    }
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

} // namespace

LogicalResult saccade::attn::differentiateStructured(Operation *op, Gradients &gradients) {
  return StructuredRule(cast<linalg::LinalgOp>(op), gradients).apply();
}
