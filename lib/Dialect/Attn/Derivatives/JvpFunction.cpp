//===- JvpFunction.cpp - The tangent function of a function -------------------===//
//
// The function has a copy of the body, with the tangents of the results of an op behind the op.
//
//===----------------------------------------------------------------------===//
#include "Tangents.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"
#include "saccade/Dialect/Attn/Derivatives/GradientFunction.h"

using namespace mlir;
using namespace saccade::attn;

void Tangents::set(Value value, Value tangent) {
  bool isTensor = isa<RankedTensorType>(value.getType());
  TensorEmitter e{b, value.getLoc()};
  tangents[value] = isTensor ? e.converted(tangent, value)
                             : TensorEmitter::convertedScalar(b, value.getLoc(), tangent, value.getType());
}

namespace {

class JvpBuilder {
public:
  JvpBuilder(func::FuncOp function) : function(function), b(function.getContext()), tangents(b, name(function)) {}

  FailureOr<func::FuncOp> run() {
    if (failed(checkBlocks(function)))
      return failure();
    SmallVector<std::string> names = nameValues(function);
    b.setInsertionPointAfter(function);
    made = cast<func::FuncOp>(b.clone(*function));
    made.setName((function.getName() + "_jvp").str());
    made->removeAttr(jvpAttr);
    made->removeAttr(gradientAttr);
    Block &body = made.getBody().front();
    for (AttentionOp op : llvm::to_vector(body.getOps<AttentionOp>()))
      addLse(op);
    findNeeded(body);
    addArguments(body, names);
    for (Operation &op : llvm::make_early_inc_range(body.without_terminator()))
      if (failed(push(op))) {
        made.erase();
        return failure();
      }
    finish(body, ArrayRef(names).drop_front(function.getNumArguments()));
    return made;
  }

private:
  static StringRef name(func::FuncOp function) { return function.getName(); }

  void findNeeded(Block &body) {
    for (Value returned : body.getTerminator()->getOperands())
      if (isFloat(returned))
        tangents.setNeeded(returned);
    for (Operation &op : llvm::reverse(body.without_terminator()))
      if (llvm::any_of(op.getResults(), [&](Value result) { return tangents.isNeeded(result); }))
        for (Value used : getUsedValues(&op))
          tangents.setNeeded(used);
  }

  /// Adds a tangent for each float argument, with its names of dimensions.
  void addArguments(Block &body, ArrayRef<std::string> names) {
    SmallVector<DictionaryAttr> attributes;
    made.getAllArgAttrs(attributes);
    attributes.resize(body.getNumArguments(), b.getDictionaryAttr({}));
    for (unsigned i = 0, count = body.getNumArguments(); i < count; ++i) {
      BlockArgument argument = body.getArgument(i);
      if (!isFloat(argument) || function.getArgAttr(i, noGradientAttr))
        continue;
      Location loc = NameLoc::get(b.getStringAttr(names[i] + "_tangent"), argument.getLoc());
      tangents.set(argument, body.addArgument(argument.getType(), loc));
      Attribute dims = function.getArgAttr(i, dimNamesAttr);
      attributes.push_back(b.getDictionaryAttr(dims ? b.getNamedAttr(dimNamesAttr, dims) : ArrayRef<NamedAttribute>()));
    }
    made.setType(b.getFunctionType(body.getArgumentTypes(), made.getResultTypes()));
    made.setAllArgAttrs(attributes);
  }

  LogicalResult push(Operation &op) {
    bool isNeeded =
        llvm::any_of(op.getResults(), [&](Value result) { return isFloat(result) && tangents.isNeeded(result); });
    if (!isNeeded || llvm::none_of(getUsedValues(&op), [&](Value used) { return bool(tangents.of(used)); }))
      return success();
    b.setInsertionPointAfter(&op);
    if (TangentRule rule = findTangentRule(&op))
      return rule(&op, tangents);
    return tangents.emitError(&op) << "no rule for '" << op.getName() << "'";
  }

  /// Returns the results and their tangents.
  void finish(Block &body, ArrayRef<std::string> names) {
    auto terminator = cast<func::ReturnOp>(body.getTerminator());
    SmallVector<Value> results(terminator.getOperands());
    SmallVector<std::string> resultNames(names);
    b.setInsertionPoint(terminator);
    for (auto [result, text] : llvm::zip_equal(terminator.getOperands(), names)) {
      if (!isFloat(result))
        continue;
      resultNames.push_back(text + "_tangent");
      Value tangent = tangents.of(result);
      results.push_back(tangent ? tangent : zero(result));
    }
    terminator.getOperandsMutable().assign(results);
    finishFunction(made, resultNames);
  }

  Value zero(Value like) {
    if (isa<RankedTensorType>(like.getType()))
      return TensorEmitter{b, like.getLoc()}.zeros(like, getElementTypeOrSelf(like));
    return arith::ConstantOp::create(b, like.getLoc(), b.getFloatAttr(like.getType(), 0));
  }

  func::FuncOp function, made;
  OpBuilder b;
  Tangents tangents;
};

} // namespace

FailureOr<func::FuncOp> saccade::attn::createJvpFunction(func::FuncOp function) { return JvpBuilder(function).run(); }
