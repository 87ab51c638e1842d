//===- InlineCalls.cpp - Inline helper functions of JAX -------------------===//
//
// JAX outlines `where`, `tril` and similar helpers and passes extents to them as tensors. Their shapes are only known
// after inlining.
//
//===----------------------------------------------------------------------===//
#include "StableHLO.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace saccade;

/// Limit on inlining, which stops recursion and exponential growth.
static constexpr unsigned maxOps = 200'000;

/// The callee of a call, or the decomposition of a composite op.
static FlatSymbolRefAttr calleeOf(Operation *op) {
  if (auto call = dyn_cast<func::CallOp>(op))
    return call.getCalleeAttr();
  if (!op->isRegistered() && op->getName().getStringRef() == "stablehlo.composite")
    return op->getAttrOfType<FlatSymbolRefAttr>("decomposition");
  return nullptr;
}

LogicalResult stablehlo::inlineCalls(func::FuncOp function, SymbolTable &symbols) {
  SmallVector<Operation *> calls;
  auto collect = [&](Operation *op) {
    if (calleeOf(op))
      calls.push_back(op);
  };
  function.walk(collect);
  for (unsigned count = 0; !calls.empty();) {
    Operation *call = calls.pop_back_val();
    auto callee = symbols.lookup<func::FuncOp>(calleeOf(call).getValue());
    if (!callee || callee.isExternal() || !callee.getBody().hasOneBlock())
      return call->emitError() << "the function '" << calleeOf(call).getValue()
                               << "' has no body or more than one block";
    if (callee == function || count > maxOps)
      return call->emitError() << "'" << callee.getName() << "' is recursive, or inlining exceeds " << maxOps << " ops";
    Block &body = callee.getBody().front();
    if (callee.getArgumentTypes() != call->getOperandTypes() || callee.getResultTypes() != call->getResultTypes())
      return call->emitError() << "found " << callee.getFunctionType() << " for a call of "
                               << FunctionType::get(call->getContext(), call->getOperandTypes(),
                                                    call->getResultTypes());
    OpBuilder b(call);
    IRMapping mapping;
    mapping.map(body.getArguments(), call->getOperands());
    for (Operation &each : body.without_terminator())
      b.clone(each, mapping)->walk([&](Operation *op) {
        collect(op);
        ++count;
      });
    for (auto [result, value] : llvm::zip(call->getResults(), body.getTerminator()->getOperands()))
      result.replaceAllUsesWith(mapping.lookupOrDefault(value));
    call->erase();
  }
  return success();
}
