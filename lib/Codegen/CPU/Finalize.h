//===- Finalize.h - Lowering of attn.finalize --------------------*- C++ -*-===//
//
// If a state has no other readers, the last step over keys finalizes each group of rows while the state is in the L1
// cache.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_FINALIZE_H
#define SACCADE_LIB_CODEGEN_CPU_FINALIZE_H

#include "Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::cpu {

/// Emits the stores of rows [begin, end) of all results of `op`.
void emitFinalizeRows(Emitter &e, attn::FinalizeOp op, mlir::Value begin, mlir::Value end);

/// A softmax state that is local to one loop over tiles of keys: filled before the loop, updated by one
/// attn.accumulate, finalized after it. The first step then need not read the accumulator, and the last one may
/// finalize rows.
class LoopState {
public:
  /// Returns the state of `op` if it is local to a loop, and moves the destinations of attn.finalize before the loop.
  static std::optional<LoopState> find(attn::AccumulateOp op);

  mlir::Value isFirstStep(Emitter &e);
  mlir::Value isLastStep(Emitter &e);
  /// Prefetches the output rows [begin, end) for writing. Stores retire in order, so a cache miss delays later stores.
  void prefetchRows(Emitter &e, mlir::Value begin, mlir::Value end);
  /// Finalizes the rows [begin, end) of the tile; called in the last step.
  void finalizeRows(Emitter &e, mlir::Value begin, mlir::Value end) { emitFinalizeRows(e, finalize, begin, end); }
  /// Removes the fill and the finalize of the rows of `query`, which the steps handle. The code after the loop
  /// finalizes the remaining rows, or all rows if the loop has no iterations.
  void removeFinalized(const Emitter &e, mlir::Value query, unsigned rowsOfQuery);

private:
  LoopState(mlir::scf::ForOp tiles, mlir::linalg::FillOp fill, attn::FinalizeOp finalize)
      : tiles(tiles), fill(fill), finalize(finalize) {}

  mlir::scf::ForOp tiles;
  mlir::linalg::FillOp fill; ///< of the accumulator
  attn::FinalizeOp finalize;
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_FINALIZE_H
