//===- PlanScratch.cpp - Offsets of task buffers in scratch memory ------------===//
//
// Every buffer of a task becomes a view of the task's scratch memory at a fixed offset, so tasks do not allocate. The
// pass runs directly before the conversion to LLVM, because earlier passes add buffers.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/Support/MathExtras.h"

namespace saccade {
#define GEN_PASS_DEF_PLANSCRATCH
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;

namespace {

/// A cache line, and the widest vector.
constexpr int64_t alignment = 64;
/// Maximum bytes of one memref.alloca in a task.
constexpr int64_t stackLimit = 16384;

/// Assigns offsets as a stack of regions: buffers of sibling loops share memory, buffers of a loop follow those of the
/// enclosing region.
class ScratchPlan {
public:
  explicit ScratchPlan(func::FuncOp task) : task(task), layout(DataLayout::closest(task)) {}

  LogicalResult run() { return placeRegion(task.getBody(), 0); }

  void rewrite() {
    Value scratch = task.getArguments().back();
    for (auto [alloc, offset] : places) {
      OpBuilder builder(alloc);
      Value shift = arith::ConstantIndexOp::create(builder, alloc.getLoc(), offset);
      Value view = memref::ViewOp::create(builder, alloc.getLoc(), alloc.getType(), scratch, shift, ValueRange());
      for (Operation *user : llvm::make_early_inc_range(alloc->getUsers()))
        if (isa<memref::DeallocOp>(user))
          user->erase();
      alloc.replaceAllUsesWith(view);
      alloc.erase();
    }
  }

  /// Total bytes of scratch memory.
  int64_t getBytes() const { return bytes; }

private:
  FailureOr<int64_t> getBufferBytes(Operation *op, MemRefType type) {
    if (!type.hasStaticShape())
      return op->emitOpError("has a dynamic size, expected buffers of a task to be static");
    if (!type.getLayout().isIdentity())
      return op->emitOpError("has type ") << type << ", expected a compact buffer in a task";
    return type.getNumElements() * static_cast<int64_t>(layout.getTypeSize(type.getElementType()));
  }

  /// Assigns offsets from `begin` on to the buffers of `region`.
  LogicalResult placeRegion(Region &region, int64_t begin) {
    // Ops in `nested` start at the same offset, since their buffers do not outlive them.
    SmallVector<Operation *> nested;
    int64_t end = begin;
    for (Block &block : region)
      if (failed(placeBlock(block, end, nested)))
        return failure();
    bytes = std::max(bytes, end);
    for (Operation *op : nested)
      for (Region &inner : op->getRegions())
        if (failed(placeRegion(inner, end)))
          return failure();
    return success();
  }

  /// Assigns offsets from `end` on to the buffers of `block`, advances `end`, and collects the ops whose inner buffers
  /// are placed later.
  LogicalResult placeBlock(Block &block, int64_t &end, SmallVectorImpl<Operation *> &nested) {
    for (Operation &op : block) {
      if (auto alloca = dyn_cast<memref::AllocaOp>(op)) {
        FailureOr<int64_t> size = getBufferBytes(&op, alloca.getType());
        if (failed(size))
          return failure();
        if (*size > stackLimit)
          return op.emitOpError("takes ") << *size << " bytes of stack, expected " << stackLimit << " or less";
      }
      if (auto alloc = dyn_cast<memref::AllocOp>(op)) {
        FailureOr<int64_t> size = getBufferBytes(&op, alloc.getType());
        if (failed(size))
          return failure();
        places.push_back({alloc, end});
        end = llvm::alignTo(end + *size, alignment);
      }
      if (op.getNumRegions() == 0)
        continue;
      // A buffer forwarded as a result outlives the op, so it is placed like those of the enclosing block.
      if (!forwardsBuffers(&op)) {
        nested.push_back(&op);
        continue;
      }
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          if (failed(placeBlock(inner, end, nested)))
            return failure();
    }
    return success();
  }

  static bool forwardsBuffers(Operation *op) {
    return llvm::any_of(op->getResultTypes(), [](Type type) { return isa<BaseMemRefType>(type); });
  }

  func::FuncOp task;
  DataLayout layout;
  SmallVector<std::pair<memref::AllocOp, int64_t>> places;
  int64_t bytes = 0;
};

struct PlanScratch : saccade::impl::PlanScratchBase<PlanScratch> {
  void runOnOperation() override {
    llvm::StringMap<int64_t> bytes;
    for (auto task : getOperation().getOps<func::FuncOp>()) {
      if (!task->hasAttr("attn.task"))
        continue;
      ScratchPlan plan(task);
      if (failed(plan.run()))
        return signalPassFailure();
      plan.rewrite();
      bytes[task.getName()] = plan.getBytes();
    }
    getOperation().walk(
        [&](saccade::attn::LaunchOp launch) { launch.setScratchBytes(bytes.lookup(launch.getTask())); });
  }
};

} // namespace
