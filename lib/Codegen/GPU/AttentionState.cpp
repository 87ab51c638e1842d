//===- AttentionState.cpp - The states of a kernel's attention ----------------===//
//
// On buffers a state is memory that some ops read and write; on a GPU each thread keeps the part that it works on in
// registers. They are written as memory with constant indices, which LLVM turns into values.
//
//===----------------------------------------------------------------------===//
#include "AttentionState.h"
#include "saccade/Support/Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

Type AttentionState::element() const { return getElementTypeOrSelf(AccumulateOp(steps.front()).getQuery()); }
FloatType AttentionState::number() const { return attn::getScoreType(element()); }
int64_t AttentionState::depth() const {
  AccumulateOp step = steps.front();
  return getStaticDimSize(step.getKey(), step.getKeyDims(), Dim::Depth);
}
int64_t AttentionState::valueDepth() const {
  AccumulateOp step = steps.front();
  return getStaticDimSize(step.getValue(), step.getValueDims(), Dim::Depth);
}
int64_t AttentionState::rows() const { return cast<MemRefType>(memref::AllocOp(acc).getType()).getDimSize(0); }

/// Gathers the users of one buffer; anything but what a state is made of is an error.
static LogicalResult collect(memref::AllocOp buffer, AttentionState &state) {
  for (Operation *user : buffer->getUsers()) {
    if (auto fill = dyn_cast<linalg::FillOp>(user)) {
      state.fills.push_back(fill);
    } else if (isa<memref::SubViewOp>(user)) {
      return user->emitOpError("begins a state with a sink, which GPU kernels do not support yet");
    } else if (auto finalize = dyn_cast<FinalizeOp>(user)) {
      if ((state.finalize && state.finalize != finalize) || !finalize.getOthers().empty())
        return user->emitOpError("gives a tally, max or argmax, which GPU kernels do not support yet");
      state.finalize = finalize;
    } else if (auto step = dyn_cast<AccumulateOp>(user)) {
      if (!step.getTallyRegions().empty() || step.getRowMax() || step.getFinal())
        return user->emitOpError("has a tally, max or argmax, or a weight region that is not proportional to the weight, "
                                 "which GPU kernels do not support yet");
      if (!llvm::is_contained(state.steps, step))
        state.steps.push_back(step);
    } else {
      return user->emitOpError("works on a state of attention, which GPU kernels do not support");
    }
  }
  return success();
}

FailureOr<SmallVector<AttentionState>> device::findStates(func::FuncOp kernel,
                                                          function_ref<bool(const AttentionState &)> fits) {
  SmallVector<FinalizeOp> ends;
  kernel.walk([&](FinalizeOp op) { ends.push_back(op); });
  SmallVector<AttentionState> states;
  for (FinalizeOp end : ends) {
    AttentionState state;
    state.acc = end.getAcc().getDefiningOp<memref::AllocOp>();
    state.max = end.getMax().getDefiningOp<memref::AllocOp>();
    state.sum = end.getSum().getDefiningOp<memref::AllocOp>();
    if (!state.acc || !state.max || !state.sum)
      return end.emitOpError("finishes a state that is not its kernel's own, which GPU kernels do not support");
    for (memref::AllocOp buffer : {state.acc, state.max, state.sum})
      if (failed(collect(buffer, state)))
        return failure();
    if (state.steps.empty())
      return end.emitOpError("finishes a state that nothing is folded into");
    if (fits(state))
      states.push_back(std::move(state));
  }
  return states;
}

PrivateState AttentionState::privatize(StringRef family, int64_t accElements, int64_t rows) {
  auto kernel = acc->getParentOfType<func::FuncOp>();
  kernel->setAttr(familyAttr, StringAttr::get(kernel.getContext(), family));
  OpBuilder b = OpBuilder::atBlockBegin(&kernel.getBody().front());
  auto allocate = [&](int64_t count) -> Value {
    return memref::AllocaOp::create(b, acc.getLoc(), MemRefType::get({count}, number()));
  };
  PrivateState result{allocate(accElements), allocate(rows), allocate(rows)};
  for (linalg::FillOp fill : fills) {
    b.setInsertionPoint(fill);
    Emitter e{b, fill.getLoc(), number()};
    Value buffer = fill.getOutputs()[0];
    Value to = buffer == acc ? result.acc : buffer == max ? result.max : result.sum;
    for (int64_t i = 0, n = cast<MemRefType>(to.getType()).getDimSize(0); i < n; ++i)
      e.store(fill.getInputs()[0], to, i);
  }
  return result;
}

void AttentionState::erase() {
  for (linalg::FillOp fill : fills)
    fill.erase();
  for (AccumulateOp step : steps)
    step.erase();
  finalize.erase();
  for (memref::AllocOp buffer : {acc, max, sum})
    buffer.erase();
}
