//===- OutputEpilogue.cpp - Elementwise ops on the output of attention --------===//
//
// Each element is computed by the thread that has it, so kernels with any number of warps need no barrier for it.
//
//===----------------------------------------------------------------------===//
#include "OutputEpilogue.h"
#include "ElementOp.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

linalg::GenericOp device::findEpilogue(Value output) {
  for (Operation *user : output.getUsers())
    if (auto op = dyn_cast<linalg::GenericOp>(user); op && op.getDpsInits()[0] == output &&
                                                     op.payloadUsesValueFromOperand(op.getDpsInitOperand(0)) &&
                                                     op.getNumParallelLoops() == op.getNumLoops())
      return op;
  return {};
}

void OutputEpilogue::join(FinalizeOp end) {
  if (linalg::GenericOp op = findEpilogue(end.getOutput()))
    end->moveBefore(op);
}

OutputEpilogue::OutputEpilogue(FinalizeOp end)
    : op(findEpilogue(end.getOutput())), isTransposed(*end.getOutputDims().position(Dim::Seq) == 1) {}

Value OutputEpilogue::apply(Emitter &e, Value row, Value column, Value x) {
  if (!op)
    return x;
  SmallVector<Value> positions = {row, column};
  if (isTransposed)
    std::swap(positions[0], positions[1]);
  IRMapping values;
  OpOperand *output = op.getDpsInitOperand(0);
  values.map(op.getMatchingBlockArgument(output), e.truncate(x, getElementTypeOrSelf(output->get())));
  for (OpOperand *input : op.getDpsInputOperands()) {
    bool isTensor = isa<MemRefType>(input->get().getType());
    if (BlockArgument argument = op.getMatchingBlockArgument(input); !argument.use_empty())
      values.map(argument, isTensor ? e.load(input->get(), subscriptsOf(e, op, *input, positions)) : input->get());
  }
  for (Operation &inner : op.getBody()->without_terminator())
    cloneAt(e, inner, values, positions);
  return e.extend(values.lookupOrDefault(op.getBody()->getTerminator()->getOperand(0)));
}

void OutputEpilogue::erase() {
  if (op)
    op->erase();
}
