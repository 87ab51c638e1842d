//===- Ring.h - Stages of operands in shared memory ---------------*- C++ -*-===//
//
// The producer fills the stages of a ring in turn and the consumers read them. Each stage has two mbarriers: full,
// which counts the bytes of copies, and empty, which counts the warps that have read it.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_RING_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_RING_H

#include "../Emitter.h"

namespace saccade::device {

/// An mbarrier in shared memory, by its address (i32).
struct Mbarrier {
  mlir::Value address;

  void init(Emitter &e, int64_t count) const;
  /// One arrival, by each thread for which `condition` holds, without a branch.
  void arriveIf(Emitter &e, mlir::Value condition) const;
  /// One arrival of this thread when its cp.async copies so far are complete.
  void arriveAfterCopies(Emitter &e) const;
  /// One arrival and `bytes` of copies that are still to come, by one thread.
  void expect(Emitter &e, int64_t bytes) const;
  /// Waits until the phase of `parity` (i32) is complete.
  void wait(Emitter &e, mlir::Value parity) const;
};

/// A named barrier of `threads` threads, by its number (i32), which is uniform in a warp. Whole warps execute it.
struct NamedBarrier {
  mlir::Value id;
  int64_t threads;

  void wait(Emitter &e) const;
  /// An arrival without a wait.
  void arrive(Emitter &e) const;
};

/// The place of a step in a ring.
struct RingPlace {
  mlir::Value stage, parity; ///< i32
  Mbarrier full, empty;

  /// Waits until the stage may be filled. Stages are empty at first, as if they had been read in an earlier phase.
  void waitUntilEmpty(Emitter &e) const { empty.wait(e, e.sub(e.i32(1), parity)); }
};

/// A ring of stages, whose steps a thread counts in private memory, which becomes a register.
class Ring {
public:
  /// The barriers of all stages are at `barriers` (i32): full ones first.
  Ring(mlir::Value barriers, int64_t stages) : barriers(barriers), stages(stages) {}

  static int64_t bytes(int64_t stages) { return 2 * 8 * stages; }
  /// Initialises the barriers, by one thread. `readers` warps read a stage; `writers` threads arrive when it is full.
  void init(Emitter &e, int64_t readers, int64_t writers = 1) const;
  RingPlace at(Emitter &e, mlir::Value step) const;

private:
  mlir::Value barriers;
  int64_t stages;
};

/// Orders accesses of shared memory by this thread before those of bulk copies and of wgmma.
void fenceAsyncProxy(Emitter &e);

/// Copies a box to shared memory at `target` (i32) by a tensor map (!llvm.ptr), by one thread; `full` counts its bytes.
void copyBox(Emitter &e, mlir::Value map, mlir::ValueRange coordinates, mlir::Value target, const Mbarrier &full);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_RING_H
