//===- Memory.cpp - Which buffers ops view and write --------------------------===//
#include "saccade/Dialect/Attn/Analysis/Memory.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

Value saccade::getBaseMemory(Value memory) {
  while (auto view = memory.getDefiningOp<ViewLikeOpInterface>())
    memory = view.getViewSource();
  return memory;
}

bool saccade::mayWrite(Operation *op, Value base) {
  auto effects = getEffectsRecursively(op);
  return !effects || llvm::any_of(*effects, [&](const MemoryEffects::EffectInstance &effect) {
    return isa<MemoryEffects::Write>(effect.getEffect()) &&
           (!effect.getValue() || getBaseMemory(effect.getValue()) == base);
  });
}
