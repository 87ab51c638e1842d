//===- LaunchOp.cpp - attn.launch ---------------------------------------------===//
//
// Verifies that the task function has the arguments of its launch.
//
//===----------------------------------------------------------------------===//
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade::attn;

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto task = symbolTable.lookupNearestSymbolFrom<FunctionOpInterface>(*this, getTaskAttr());
  if (!task)
    return emitOpError() << "task '" << getTask() << "' is not a function of this module";
  SmallVector<Type> expectedTypes(getCaptures().getTypes());
  Type index = IndexType::get(getContext());
  expectedTypes.append({index, index, MemRefType::get({ShapedType::kDynamic}, IntegerType::get(getContext(), 8))});
  if (task.getNumResults() != 0)
    return emitOpError() << "task '" << getTask() << "' has " << task.getNumResults() << " results, expected none";
  if (task.getNumArguments() != expectedTypes.size())
    return emitOpError() << "task '" << getTask() << "' has " << task.getNumArguments() << " arguments, expected "
                         << expectedTypes.size() << ": (captures..., begin, end, scratch)";
  for (auto [i, found, expected] : llvm::enumerate(task.getArgumentTypes(), expectedTypes))
    if (found != expected)
      return emitOpError() << "task '" << getTask() << "' has argument " << i << " of type " << found << ", expected "
                           << expected;
  return success();
}
