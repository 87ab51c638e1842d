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
  std::vector<Buffer> arguments = call.inputs, outputs = call.outputs;
  std::vector<GuardedMemory> blocks, resultBlocks;
  for (auto [type, tensor, buffer] : llvm::zip_equal(call.entry.arguments, inputs, arguments)) {
    if (!type.isTensor)
      continue;
    GuardedMemory &block = addBlock(blocks, tensor, guard, "argument '" + type.name + "'");
    std::memcpy(block.data(), tensor.data(), tensor.bytes());
    block.protect();
    buffer.data = block.data();
  }
  for (auto [type, tensor, buffer] : llvm::zip_equal(call.entry.results, results, outputs))
    if (type.isTensor)
      buffer.data = addBlock(resultBlocks, tensor, guard, "result '" + type.name + "'").data();
  {
    ScopedMemoryChecks checks(guard);
    if (llvm::Error error = call.executable.call(call.entry, arguments, outputs))
      return error;
  }
  auto *block = resultBlocks.data();
  for (auto [type, tensor] : llvm::zip_equal(call.entry.results, results)) {
    if (!type.isTensor)
      continue;
    if (!block->isRestIntact())
      return llvm::createStringError("compiled code writes outside of result '" + type.name + "'");
    std::memcpy(tensor.data(), block->data(), tensor.bytes());
    ++block;
  }
  return llvm::Error::success();
}
