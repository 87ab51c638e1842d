//===- PlanSharedMemory.cpp - Assign buffers to shared memory -----------------===//
//
// Replaces every buffer of a kernel by a view of dynamic shared memory at a fixed offset. It runs after all lowerings
// of ops on buffers, which remove some of them.
//
//===----------------------------------------------------------------------===//
#include "SharedMemory.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/GPUTarget.h"
#include "saccade/Support/Kernels.h"
#include "llvm/Support/MathExtras.h"

namespace saccade {
#define GEN_PASS_DEF_PLANSHAREDMEMORY
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// In bytes, the widest vector access.
static constexpr int64_t alignment = 16;

namespace {

/// A buffer with its live range [first, last] in program order, from its first use on, and its offset.
struct Place {
  memref::AllocOp buffer;
  int64_t first, last, offset = 0, bytes = 0;

  bool overlaps(const Place &other) const { return first <= other.last && other.first <= last; }
};

/// Assigns each buffer the first free offset among the buffers with overlapping live ranges.
class SharedPlan {
public:
  explicit SharedPlan(func::FuncOp kernel) : layout(DataLayout::closest(kernel)) {
    kernel.walk<WalkOrder::PreOrder>([&](Operation *op) { order[op] = order.size(); });
    kernel.walk([&](memref::AllocOp buffer) { buffers.push_back(buffer); });
  }

  LogicalResult run(int64_t begin) {
    for (memref::AllocOp buffer : buffers) {
      MemRefType type = buffer.getType();
      if (!type.hasStaticShape() || !type.getLayout().isIdentity())
        return buffer.emitOpError("has type ") << type << ", expected a compact buffer of static size in a kernel";
      int64_t bytes = type.getNumElements() * static_cast<int64_t>(layout.getTypeSize(type.getElementType()));
      bytes = static_cast<int64_t>(llvm::alignTo(std::max<int64_t>(bytes, 1), alignment));
      auto [first, last] = liveRange(buffer);
      Place place{buffer, first, last, begin, bytes};
      // `places` is sorted by offset.
      for (const Place &other : places)
        if (place.overlaps(other) && other.offset < place.offset + place.bytes)
          place.offset = std::max(place.offset, other.offset + other.bytes);
      places.insert(
          llvm::upper_bound(places, place, [](const Place &a, const Place &b) { return a.offset < b.offset; }), place);
      end = std::max(end, place.offset + place.bytes);
    }
    return success();
  }

  ArrayRef<Place> getPlaces() const { return places; }
  int64_t getBytes() const { return end; }

private:
  /// All threads load an element, which a barrier after that orders before later stores: the next one, or the end of
  /// the block. Loops over elements have a barrier of their own.
  static Operation *endOfRead(Operation *load) {
    Operation *end = load;
    while (end->getNextNode() && !isa<NVVM::Barrier0Op>(end))
      end = end->getNextNode();
    return end;
  }

  /// The first and the last op that use the buffer or a view of it, in its block, or in one around that if a branch
  /// yields it. Bufferization creates buffers at the start of a block, long before their first use.
  std::pair<int64_t, int64_t> liveRange(memref::AllocOp buffer) {
    int64_t first = std::numeric_limits<int64_t>::max(), last = order[buffer];
    SmallVector<Value> views = {buffer.getResult()};
    while (!views.empty()) {
      for (Operation *user : views.pop_back_val().getUsers()) {
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
          if (isa<MemRefType>(result.getType()))
            views.push_back(result);
      }
    }
    return {std::min(first, last), last};
  }

  DataLayout layout;
  llvm::DenseMap<Operation *, int64_t> order;
  SmallVector<memref::AllocOp> buffers;
  SmallVector<Place> places;
  int64_t end = 0;
};

struct PlanSharedMemory : saccade::impl::PlanSharedMemoryBase<PlanSharedMemory> {
  using PlanSharedMemoryBase::PlanSharedMemoryBase;

  void runOnOperation() override {
    func::FuncOp kernel = getOperation();
    const GPUTarget *gpu = requireGPUTarget(kernel, target);
    if (!gpu)
      return signalPassFailure();
    // Shared memory that attention has claimed comes first.
    auto known = kernel->getAttrOfType<IntegerAttr>(sharedBytesAttr);
    SharedPlan plan(kernel);
    if (failed(plan.run(llvm::alignTo(known ? known.getInt() : 0, alignment))))
      return signalPassFailure();
    int64_t bytes = std::max(plan.getBytes(), known ? known.getInt() : 0) + getStaticSharedBytes(kernel);
    if (bytes > gpu->sharedBytes) {
      kernel.emitError("requires ") << bytes << " bytes of shared memory, expected at most " << gpu->sharedBytes
                                    << " on " << target;
      return signalPassFailure();
    }
    for (Place place : plan.getPlaces())
      replace(place, plan.getBytes());
  }

  /// The memref has a generic pointer; LLVM infers the shared address space.
  void replace(Place place, int64_t bytes) {
    OpBuilder b(place.buffer);
    Emitter e{b, place.buffer->getLoc(), b.getF32Type()};
    Value shared = e.advance(getDynamicShared(e, bytes), b.getI8Type(), static_cast<int32_t>(place.offset));
    Value pointer = LLVM::AddrSpaceCastOp::create(b, e.loc, LLVM::LLVMPointerType::get(b.getContext()), shared);
    LLVMTypeConverter converter(b.getContext());
    MemRefType type = place.buffer.getType();
    Value descriptor = MemRefDescriptor::fromStaticShape(b, e.loc, converter, type, pointer);
    Value buffer = UnrealizedConversionCastOp::create(b, e.loc, type, descriptor).getResult(0);
    place.buffer->replaceAllUsesWith(ValueRange{buffer});
    place.buffer->erase();
  }
};

} // namespace
