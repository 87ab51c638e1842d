//===- PadSharedBuffers.cpp - Rows of buffers in different banks --------------===//
//
// The threads of a warp hold elements of eight rows of a product. If a row is a multiple of 128 bytes, the elements of
// a column are in one of the 32 banks of shared memory, and stores of a fragment take eight times as long.
//
//===----------------------------------------------------------------------===//
#include "Emitter.h"
#include "SharedPlan.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Support/GPUTarget.h"

namespace saccade {
#define GEN_PASS_DEF_PADSHAREDBUFFERS
#include "saccade/Codegen/GPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Bytes of all banks, and of the padding of a row: the widest vector access.
static constexpr int64_t bankBytes = 128, padBytes = 16;

/// Shared memory for what the lowerings of ops allocate, such as the tiles of a matmul.
static constexpr int64_t otherBytes = 48 << 10;

/// The padding of a row in elements, 0 if it needs none.
static int64_t paddingOf(MemRefType type) {
  if (type.getRank() != 2 || !type.hasStaticShape() || !type.getLayout().isIdentity() ||
      !type.getElementType().isIntOrFloat())
    return 0;
  int64_t bits = type.getElementTypeBitWidth(), rowBits = type.getDimSize(1) * bits;
  return rowBits % (8 * bankBytes) == 0 && bits >= 8 ? padBytes * 8 / bits : 0;
}

/// Whether all users of a buffer, also through views, accept any strides. Appends the views to `views`.
static bool acceptsStrides(Value buffer, SmallVectorImpl<memref::SubViewOp> &views) {
  return llvm::all_of(buffer.getUsers(), [&](Operation *user) {
    auto view = dyn_cast<memref::SubViewOp>(user);
    if (!view)
      return isa<linalg::LinalgOp, memref::LoadOp, memref::StoreOp, memref::DimOp>(user);
    views.push_back(view);
    return acceptsStrides(view, views);
  });
}

namespace {

struct PadSharedBuffers : saccade::impl::PadSharedBuffersBase<PadSharedBuffers> {
  using PadSharedBuffersBase::PadSharedBuffersBase;

  void runOnOperation() override {
    const GPUTarget *gpu = requireGPUTarget(getOperation(), target);
    if (!gpu)
      return signalPassFailure();
    SmallVector<memref::AllocOp> buffers;
    getOperation().walk([&](memref::AllocOp buffer) { buffers.push_back(buffer); });
    auto bytesOf = [](memref::AllocOp buffer) -> int64_t {
      MemRefType type = buffer.getType();
      int64_t padding = paddingOf(type), rows = padding ? type.getDimSize(0) : 0;
      if (!type.hasStaticShape() || !type.getElementType().isIntOrFloat())
        return 0;
      return (type.getNumElements() + rows * padding) * type.getElementTypeBitWidth() / 8;
    };
    if (device::SharedPlan(getOperation(), 0, bytesOf).getBytes() >
        std::max(gpu->sharedBytes / 2, gpu->sharedBytes - otherBytes))
      return;
    for (memref::AllocOp buffer : buffers)
      if (int64_t padding = paddingOf(buffer.getType()))
        pad(buffer, padding);
  }

  static void pad(memref::AllocOp buffer, int64_t padding) {
    SmallVector<memref::SubViewOp> views;
    if (!acceptsStrides(buffer, views))
      return;
    OpBuilder b(buffer);
    MemRefType type = buffer.getType();
    ArrayRef<int64_t> shape = type.getShape();
    auto padded = memref::AllocOp::create(b, buffer.getLoc(),
                                          MemRefType::get({shape[0], shape[1] + padding}, type.getElementType()),
                                          buffer.getAlignmentAttr());
    SmallVector<OpFoldResult> zeros(2, b.getIndexAttr(0)), ones(2, b.getIndexAttr(1));
    auto view = memref::SubViewOp::create(b, buffer.getLoc(), padded, zeros,
                                          {b.getIndexAttr(shape[0]), b.getIndexAttr(shape[1])}, ones);
    buffer.replaceAllUsesWith(view.getResult());
    buffer.erase();
    // A view comes before the views of it.
    for (memref::SubViewOp inner : views)
      inner.getResult().setType(memref::SubViewOp::inferRankReducedResultType(
          inner.getType().getShape(), inner.getSourceType(), inner.getMixedOffsets(), inner.getMixedSizes(),
          inner.getMixedStrides()));
  }
};

} // namespace
