//===- Differentiated.cpp - A function that is differentiated -----------------===//
#include "Differentiated.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"
#include "saccade/Dialect/Attn/IR/AttentionFields.h"

using namespace mlir;
using namespace saccade::attn;

SmallVector<Value> saccade::attn::getUsedValues(Operation *op) {
  SmallVector<Value> used;
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (inner == op || !op->isAncestor(operand.getParentBlock()->getParentOp()))
        used.push_back(operand);
  });
  return used;
}

AttentionOp saccade::attn::addLse(AttentionOp op) {
  op.removeQkTypeAttr();
  if (op.getLseLow() || !op.hasSoftmax())
    return op;
  OpBuilder b(op);
  SmallVector<int64_t> shape;
  for (Dim dim : getRowDims(op.getOutputDims()))
    shape.push_back(getStaticDimSize(op.getOutput(), op.getOutputDims(), dim));
  auto ofRows = RankedTensorType::get(shape, op.getScoreType());
  SmallVector<Type> types(op->getResultTypes());
  AttentionFields fields(op, types);
  fields.lseLow = ofRows;
  if (!fields.lse)
    fields.lse = ofRows;
  AttentionOp made = fields.create(b, op.getLoc());
  for (auto [from, to] : llvm::zip_equal(op->getRegions(), made->getRegions()))
    to.takeBody(from);
  made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  SmallVector<Value> results = {made.getOutput()};
  if (op.getLse())
    results.push_back(made.getLse());
  llvm::append_range(results, made->getResults().drop_front(3));
  op->replaceAllUsesWith(results);
  op.erase();
  return made;
}

LogicalResult saccade::attn::checkBlocks(func::FuncOp function) {
  if (function.getBody().hasOneBlock())
    return success();
  return function.emitError() << "'" << function.getName() << "' cannot be differentiated: it has "
                              << function.getBody().getBlocks().size() << " blocks, expected one";
}

void saccade::attn::finishFunction(func::FuncOp function, ArrayRef<std::string> resultNames) {
  Builder b(function.getContext());
  Block &body = function.getBody().front();
  SmallVector<DictionaryAttr> argumentAttributes, resultAttributes;
  function.getAllArgAttrs(argumentAttributes);
  argumentAttributes.resize(body.getNumArguments(), b.getDictionaryAttr({}));
  for (DictionaryAttr &attributes : argumentAttributes) {
    NamedAttrList kept(attributes);
    kept.erase(updatedByAttr); // derivatives only read the arguments
    attributes = kept.getDictionary(b.getContext());
  }
  for (const std::string &name : resultNames)
    resultAttributes.push_back(b.getDictionaryAttr(b.getNamedAttr(resultNameAttr, b.getStringAttr(name))));
  function.removeResAttrsAttr();
  function.setType(b.getFunctionType(body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
  function.setAllArgAttrs(argumentAttributes);
  function.setAllResultAttrs(resultAttributes);
  SmallVector<Operation *> ops = llvm::map_to_vector(body, [](Operation &op) { return &op; });
  for (Operation *op : llvm::reverse(ops))
    if (isOpTriviallyDead(op))
      op->erase();
}
