//===- GradientFunction.cpp - The gradient function of a function -------------===//
//
// The gradient function has a copy of the body, in which results that a caller passes in need not be computed, and
// behind it the gradients in reverse order.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Derivatives/GradientFunction.h"
#include "Gradients.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"

using namespace mlir;
using namespace saccade::attn;

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Value Gradients::of(Value value) {
  auto known = parts.find(source.lookup_or(value, value));
  if (known == parts.end())
    return {};
  Value sum = TensorEmitter{b, value.getLoc()}.sum(known->second);
  known->second = {sum};
  return sum;
}

void Gradients::add(Value value, Value gradient) {
  if (isActive(value))
    parts[source.lookup_or(value, value)].push_back(TensorEmitter{b, gradient.getLoc()}.converted(gradient, value));
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

namespace {

/// Makes the log-sum-exp of each attention with a softmax, and its low part, results.
void returnLse(func::FuncOp function) {
  auto terminator = cast<func::ReturnOp>(function.getBody().front().getTerminator());
  for (AttentionOp op : llvm::to_vector(function.getOps<AttentionOp>())) {
    op = addLse(op);
    for (Value result : {Value(op.getLse()), Value(op.getLseLow())}) {
      if (!result || llvm::is_contained(terminator.getOperands(), result))
        continue;
      (void)function.insertResult(function.getNumResults(), result.getType(), /*resultAttrs=*/{});
      terminator.getOperandsMutable().append(result);
    }
  }
}

class Differentiator {
public:
  Differentiator(func::FuncOp function) : function(function), b(function.getContext()), gradients(b, name(function)) {}

  FailureOr<func::FuncOp> run() {
    if (failed(checkBlocks(function)))
      return failure();
    SmallVector<std::string> names = nameValues(function);
    unsigned originalResults = function.getNumResults();
    returnLse(function);
    names = nameValues(function);
    createFunction();
    addArguments(names, originalResults);
    findActive();
    for (auto [returned, argument] : llvm::zip(returnedValues, gradientArguments))
      if (argument)
        gradients.add(returned, argument);
    for (Operation *op : llvm::reverse(forwardOps))
      if (failed(propagate(op))) {
        gradientFunction.erase();
        return failure();
      }
    finish(names);
    return gradientFunction;
  }

private:
  static StringRef name(func::FuncOp function) { return function.getName(); }
  Location named(StringRef text) { return NameLoc::get(b.getStringAttr(text), function.getLoc()); }

  /// Copies the function and removes the terminator of the copy.
  void createFunction() {
    b.setInsertionPointAfter(function);
    gradientFunction = cast<func::FuncOp>(b.clone(*function));
    gradientFunction.setName((function.getName() + "_gradient").str());
    gradientFunction->removeAttr(gradientAttr);
    Block &body = gradientFunction.getBody().front();
    auto terminator = cast<func::ReturnOp>(body.getTerminator());
    llvm::append_range(returnedValues, terminator.getOperands());
    terminator.erase();
    for (Operation &op : body)
      forwardOps.push_back(&op);
    b.setInsertionPointToEnd(&body);
    llvm::append_range(inputs, body.getArguments());
  }

  /// Adds arguments for results, which replace the values in the body, and for gradients of results.
  void addArguments(ArrayRef<std::string> names, unsigned originalResults) {
    Block &body = gradientFunction.getBody().front();
    ArrayRef<std::string> resultNames = names.drop_front(inputs.size());
    for (auto [value, text] : llvm::zip_equal(returnedValues, resultNames)) {
      BlockArgument argument = body.addArgument(value.getType(), named(text));
      if (value.getDefiningOp())
        save(value, argument);
    }
    for (auto [value, text] : llvm::zip(ArrayRef(returnedValues).take_front(originalResults), resultNames))
      gradientArguments.push_back(isFloat(value) ? body.addArgument(value.getType(), named(text + "_gradient"))
                                                 : Value());
  }

  /// Replaces a value by `known`, which equals it. If it is a view, the viewed value need not be computed either.
  void save(Value value, Value known) {
    if (gradients.primal(value) != value)
      return;
    value.replaceAllUsesWith(known);
    gradients.setSaved(value, known);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(forwardOps.front());
    Operation *view = value.getDefiningOp();
    Value viewed = view->getNumOperands() ? view->getOperand(0) : Value();
    if (viewed && viewed.getDefiningOp())
      if (Value inverse = invertView(view, known))
        save(viewed, inverse);
  }

  /// The first operand of `op`, given its result; null if it is not known.
  Value invertView(Operation *op, Value result) {
    Location loc = op->getLoc();
    Type type = op->getNumOperands() ? op->getOperand(0).getType() : Type();
    if (isa<tensor::CastOp>(op))
      return tensor::CastOp::create(b, loc, type, result);
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
      return tensor::CollapseShapeOp::create(b, loc, type, result, expand.getReassociationIndices());
    if (auto transpose = dyn_cast<linalg::TransposeOp>(op)) {
      SmallVector<int64_t> inverse = invertPermutationVector(transpose.getPermutation());
      SmallVector<OpFoldResult> extents = tensor::getMixedSizes(b, loc, result);
      applyPermutationToVector(extents, inverse);
      Value empty = tensor::EmptyOp::create(b, loc, extents, getElementTypeOrSelf(type));
      return linalg::TransposeOp::create(b, loc, result, empty, inverse)->getResult(0);
    }
    auto collapse = dyn_cast<tensor::CollapseShapeOp>(op);
    if (!collapse)
      return {};
    auto extents = tensor::ExpandShapeOp::inferOutputShape(
        b, loc, collapse.getSrcType(), collapse.getReassociationIndices(), tensor::getMixedSizes(b, loc, result));
    if (failed(extents))
      return {};
    return tensor::ExpandShapeOp::create(b, loc, type, result, collapse.getReassociationIndices(), *extents);
  }

  /// Finds the values that depend on arguments whose gradients are returned.
  void findActive() {
    for (auto [i, argument] : llvm::enumerate(inputs))
      if (isFloat(argument) && !function.getArgAttr(i, noGradientAttr))
        gradients.setActive(argument);
    for (Operation *op : forwardOps) {
      bool isActive = llvm::any_of(getUsedValues(op), [&](Value used) { return gradients.isActive(used); });
      for (Value result : op->getResults())
        if (isActive && isFloat(result))
          gradients.setActive(result);
    }
  }

  LogicalResult propagate(Operation *op) {
    if (llvm::none_of(op->getResults(),
                      [&](Value result) { return gradients.isActive(result) && gradients.of(result); }))
      return success();
    if (GradientRule rule = findGradientRule(op))
      return rule(op, gradients);
    return gradients.emitError(op) << "no rule for '" << op->getName() << "'";
  }

  /// Returns the gradients, and removes what is not needed to compute them.
  void finish(ArrayRef<std::string> names) {
    SmallVector<Value> results;
    SmallVector<std::string> resultNames;
    for (auto [argument, text] : llvm::zip(inputs, names)) {
      if (!gradients.isActive(argument))
        continue;
      Value gradient = gradients.of(argument);
      if (!gradient)
        gradient = TensorEmitter{b, argument.getLoc()}.zeros(argument, getElementTypeOrSelf(argument.getType()));
      results.push_back(gradient);
      resultNames.push_back(text + "_gradient");
    }
    func::ReturnOp::create(b, function.getLoc(), results);
    finishFunction(gradientFunction, resultNames);
  }

  func::FuncOp function, gradientFunction;
  OpBuilder b;
  Gradients gradients;
  SmallVector<Value> inputs; ///< the arguments of the function
  SmallVector<Value> returnedValues, gradientArguments;
  SmallVector<Operation *> forwardOps;
};

} // namespace

FailureOr<func::FuncOp> saccade::attn::createGradientFunction(func::FuncOp function) {
  return Differentiator(function).run();
}
