//===- ItemScheduler.h - The work items of a CTA on sm_90a --------*- C++ -*-===//
//
// A CTA takes one work item after the other, until none is left. The first one is that of its index; the producer takes
// the others from a counter that all CTAs of a launch share, and hands their numbers to the consumers. So a CTA that
// has short items takes more of them (the dynamic persistent scheduler of FlashAttention-3, hopper/tile_scheduler.hpp).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_ITEMSCHEDULER_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_ITEMSCHEDULER_H

#include "Ring.h"

namespace saccade::device {

/// Hands items from the producer to the consumers of a CTA. Numbers alternate between two slots in shared memory, each
/// with an mbarrier. The producer may write a slot when all consumers have finished the item that it had before.
class ItemScheduler {
public:
  /// `shared` (i32) is the address of `bytes()` bytes of shared memory, a multiple of 8. `count` (i32) is the number of
  /// items of the launch, `counter` (!llvm.ptr of global memory) the 32-bit counter, which is 0 at the start of the
  /// launch. It is not read if there is a CTA for each item.
  ItemScheduler(mlir::Value shared, mlir::Value count, mlir::Value counter)
      : shared(shared), count(count), counter(counter) {}

  static int64_t bytes() { return slots * (8 + 4); }
  /// Initialises the barriers, by one thread.
  void init(Emitter &e) const;

  /// A loop over the items of a role.
  struct Loop {
    mlir::Block *body;
    mlir::Value item;  ///< i32
    mlir::Value place; ///< the number of items of the CTA before it, i32
  };
  using Body = llvm::function_ref<void(const Loop &)>;
  /// Emits the loop of the producer, which a warp executes. At its end, it takes the next item and hands it to the
  /// consumers.
  void produce(Emitter &e, Body body) const;
  /// Emits the loop of the consumers, which wait for the next item at its end.
  void consume(Emitter &e, Body body) const;

private:
  static constexpr int64_t slots = 2;

  /// The slot of the item after that at `place`.
  struct Slot {
    mlir::Value parity, number; ///< of its mbarrier; the address of the number; i32
    Mbarrier full;
  };
  Slot slotAt(Emitter &e, mlir::Value place) const;
  Loop emitLoop(Emitter &e, Body body) const;
  mlir::Value takeItem(Emitter &e) const;
  void end(Emitter &e, const Loop &loop, mlir::Value next) const;

  mlir::Value shared, count, counter;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_ITEMSCHEDULER_H
