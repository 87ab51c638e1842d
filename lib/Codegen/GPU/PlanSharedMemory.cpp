//===- PlanSharedMemory.cpp - Assign buffers to shared memory -----------------===//
//
// Replaces every buffer of a kernel by a view of dynamic shared memory at a fixed offset. It runs after all lowerings
// of ops on buffers, which remove some of them.
//
//===----------------------------------------------------------------------===//
#include "SharedMemory.h"
#include "SharedPlan.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/GPUTarget.h"
#include "saccade/Support/Kernels.h"

namespace saccade {
#define GEN_PASS_DEF_PLANSHAREDMEMORY
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

namespace {

struct PlanSharedMemory : saccade::impl::PlanSharedMemoryBase<PlanSharedMemory> {
  using PlanSharedMemoryBase::PlanSharedMemoryBase;

  void runOnOperation() override {
    func::FuncOp kernel = getOperation();
    const GPUTarget *gpu = requireGPUTarget(kernel, target);
    if (!gpu)
      return signalPassFailure();
    // Shared memory that attention has claimed comes first.
    auto known = kernel->getAttrOfType<IntegerAttr>(sharedBytesAttr);
    WalkResult dynamic = kernel.walk([](memref::AllocOp buffer) {
      MemRefType type = buffer.getType();
      if (type.hasStaticShape() && type.getLayout().isIdentity())
        return WalkResult::advance();
      buffer.emitOpError("has type ") << type << ", expected a compact buffer of static size in a kernel";
      return WalkResult::interrupt();
    });
    if (dynamic.wasInterrupted())
      return signalPassFailure();
    SharedPlan plan(kernel, known ? known.getInt() : 0);
    int64_t bytes = std::max(plan.getBytes(), known ? known.getInt() : 0) + getStaticSharedBytes(kernel);
    if (bytes > gpu->sharedBytes) {
      kernel.emitError("requires ") << bytes << " bytes of shared memory, expected at most " << gpu->sharedBytes
                                    << " on " << target;
      return signalPassFailure();
    }
    for (SharedPlace place : plan.getPlaces())
      replace(place, plan.getBytes());
  }

  /// The memref has a generic pointer; LLVM infers the shared address space.
  void replace(SharedPlace place, int64_t bytes) {
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
