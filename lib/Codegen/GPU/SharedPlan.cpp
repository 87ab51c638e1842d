//===- SharedPlan.cpp - Places of buffers in shared memory --------------------===//
//
// Buffers whose live ranges are disjoint share memory. Large buffers come first, so that small ones fill the gaps.
//
//===----------------------------------------------------------------------===//
#include "SharedPlan.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// In bytes, the widest vector access.
static constexpr int64_t alignment = 16;

int64_t SharedPlan::sizeInBytes(memref::AllocOp buffer) {
  MemRefType type = buffer.getType();
  DataLayout layout = DataLayout::closest(buffer);
  return type.getNumElements() * static_cast<int64_t>(layout.getTypeSize(type.getElementType()));
}

SharedPlan::SharedPlan(func::FuncOp kernel, int64_t begin, Bytes bytesOf) : end(llvm::alignTo(begin, alignment)) {
  begin = end;
  SmallVector<SharedPlace> requested;
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) { order[op] = order.size(); });
  kernel.walk([&](memref::AllocOp buffer) {
    auto [first, last] = liveRange(buffer);
    int64_t bytes = static_cast<int64_t>(llvm::alignTo(std::max<int64_t>(bytesOf(buffer), 1), alignment));
    requested.push_back({buffer, first, last, begin, bytes});
  });
  llvm::sort(requested, [&](const SharedPlace &a, const SharedPlace &b) {
    return std::pair(-a.bytes, order[a.buffer]) < std::pair(-b.bytes, order[b.buffer]);
  });
  for (SharedPlace place : requested) {
    for (const SharedPlace &other : places)
      if (place.overlaps(other) && other.offset < place.offset + place.bytes)
        place.offset = std::max(place.offset, other.offset + other.bytes);
    auto isBefore = [](const SharedPlace &a, const SharedPlace &b) { return a.offset < b.offset; };
    places.insert(llvm::upper_bound(places, place, isBefore), place);
    end = std::max(end, place.offset + place.bytes);
  }
}

/// All threads load an element, which a barrier after that orders before later stores: the next one, or the end of the
/// block. Loops over elements have a barrier of their own.
static Operation *endOfRead(Operation *load) {
  Operation *end = load;
  while (end->getNextNode() && !isa<NVVM::Barrier0Op>(end))
    end = end->getNextNode();
  return end;
}

/// The first and the last op that use the buffer or a view of it, in its block, or in one around that if a branch
/// yields it. Bufferization creates buffers at the start of a block, long before their first use. What is computed from
/// the address of a buffer, such as the fragments of a matmul, is a use of it until it is stored.
std::pair<int64_t, int64_t> SharedPlan::liveRange(memref::AllocOp buffer) {
  int64_t first = std::numeric_limits<int64_t>::max(), last = order[buffer];
  llvm::SetVector<Value> derived;
  derived.insert(buffer.getResult());
  for (unsigned i = 0; i < derived.size(); ++i) {
    bool isMemory = isa<MemRefType>(derived[i].getType());
    for (Operation *user : derived[i].getUsers()) {
      Block *block = buffer->getBlock();
      Operation *ancestor = nullptr;
      while (!(ancestor = block->findAncestorOpInBlock(*user)))
        block = block->getParentOp()->getBlock();
      if (ancestor == user && isa<memref::LoadOp>(user))
        ancestor = endOfRead(user);
      else if (block == buffer->getBlock() && !isa<ViewLikeOpInterface>(user))
        first = std::min(first, order[ancestor]);
      ancestor->walk([&](Operation *inner) { last = std::max(last, order[inner]); });
      Operation *source = user->hasTrait<OpTrait::IsTerminator>() ? user->getParentOp() : user;
      for (Value result : source->getResults())
        if (!isMemory || isa<MemRefType>(result.getType()) || isa<memref::ExtractAlignedPointerAsIndexOp>(user))
          derived.insert(result);
    }
  }
  return {std::min(first, last), last};
}
