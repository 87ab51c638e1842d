//===- Guarded.cpp - Calls on guarded memory ----------------------------------===//
//
// Tensors are aligned to their elements only, as those of a host can be, so that the guarded page follows the last
// byte.
//
//===----------------------------------------------------------------------===//
#include "Guarded.h"
#include "saccade/JIT/MemoryChecks.h"

using namespace saccade;
using namespace saccade::run;

static GuardedMemory &addBlock(std::vector<GuardedMemory> &blocks, const HostTensor &tensor, Guard guard,
                               const llvm::Twine &name) {
  return blocks.emplace_back(tensor.bytes(), elementBytes(tensor.type()), guard, name.str());
}

llvm::Error run::runGuarded(const Call &call, Guard guard, llvm::ArrayRef<HostTensor> inputs,
                            llvm::MutableArrayRef<HostTensor> results) {
  Call guarded = call;
  std::vector<GuardedMemory> blocks, resultBlocks;
  for (auto [type, tensor, buffer] : llvm::zip_equal(call.entry.arguments, inputs, guarded.inputs)) {
    if (!type.isTensor || type.updatedBy >= 0)
      continue;
    GuardedMemory &block = addBlock(blocks, tensor, guard, "argument '" + type.name + "'");
    std::memcpy(block.data(), tensor.data(), tensor.bytes());
    block.protect();
    buffer.data = block.data();
  }
  for (auto [place, tensor] : llvm::zip_equal(call.results, results)) {
    GuardedMemory &block = addBlock(resultBlocks, tensor, guard, "result '" + call.entry.value(place).name + "'");
    if (place < inputs.size())
      std::memcpy(block.data(), tensor.data(), tensor.bytes());
    guarded.buffer(place).data = block.data();
  }
  {
    ScopedMemoryChecks checks(guard);
    if (llvm::Error error = call.executable.call(call.entry, guarded.inputs, guarded.outputs))
      return error;
  }
  for (auto [place, block, tensor] : llvm::zip_equal(call.results, resultBlocks, results)) {
    if (!block.isRestIntact())
      return llvm::createStringError("compiled code writes outside of result '" + call.entry.value(place).name + "'");
    std::memcpy(tensor.data(), block.data(), tensor.bytes());
  }
  return llvm::Error::success();
}
