//===- BulkCopy.h - cp.async.bulk -----------------------------------*- C++ -*-===//
#ifndef SACCADE_LIB_PTXSIM_BULKCOPY_H
#define SACCADE_LIB_PTXSIM_BULKCOPY_H

#include "Atomic.h"
#include "TensorBox.h"
#include "Warp.h"

namespace saccade::ptxsim {

/// A bulk copy between global and shared memory. Loads complete at an mbarrier, stores in a bulk group of their thread.
struct BulkCopy {
  /// Bytes begin to end of `to` are copied from `from`, the others of `size` become 0.
  struct Piece {
    Place to, from;
    uint32_t size, begin, end;
  };
  Warp *warp;
  const Op *op;
  unsigned lane;
  std::vector<Piece> pieces;
  std::optional<std::pair<AtomicOperation, Type>> reduction; ///< of a store
  uint32_t barrier = 0, bytes = 0;                           ///< of a load: offset in shared memory, bytes that arrive
  uint32_t group = 0;                                        ///< of a store
  bool isDone = false;

  /// Moves the bytes, or reduces to global memory.
  void move();
};

/// The bulk groups of one thread.
struct BulkStream {
  uint32_t agent, committed = 0;
};

/// The bulk copies of a block.
struct BulkCopies {
  std::vector<BulkCopy> loads;                                 ///< under way
  std::vector<BulkCopy> stores;                                ///< not waited for
  std::map<std::pair<uint32_t, unsigned>, BulkStream> streams; ///< by warp and lane

  /// Completes the load that was issued last. Returns false if there is none.
  bool completeOne();
};

} // namespace saccade::ptxsim

#endif // SACCADE_LIB_PTXSIM_BULKCOPY_H
