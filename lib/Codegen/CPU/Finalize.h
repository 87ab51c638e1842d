//===- Finalize.h - From the state of rows to their results ------*- C++ -*-===//
//
// Rows are finished where their state is still in the first-level cache, if nobody else looks at it: in the last step
// over keys.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_FINALIZE_H
#define SACCADE_LIB_CODEGEN_CPU_FINALIZE_H

#include "Emitter.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::cpu {

/// Writes rows [begin, end) of all results of `op`.
void emitFinalizeRows(Emitter &e, attn::FinalizeOp op, mlir::Value begin, mlir::Value end);

/// A state that only one loop over tiles of keys works on: empty before, changed by one attn.accumulate, finished behind.
/// Then the first step need not read an accumulator, and the last one may finish rows.
class LoopState {
public:
  /// The state of `op`, if it is such a one. What attn.finalize writes to is then known before the loop.
  static std::optional<LoopState> find(attn::AccumulateOp op);

  mlir::Value isFirstStep(Emitter &e);
  mlir::Value isLastStep(Emitter &e);
  /// Asks for the memory that the rows [begin, end) will be written to. Stores keep their order: those behind one that waits
  /// for memory wait, too.
  void prefetchRows(Emitter &e, mlir::Value begin, mlir::Value end);
  /// Finishes the rows [begin, end) of the tile in the last step.
  void finalizeRows(Emitter &e, mlir::Value begin, mlir::Value end) { emitFinalizeRows(e, finalize, begin, end); }
  /// Takes away what the steps do themselves now, for all rows of `query`. Behind the loop other rows are left, or all of
  /// them where there was no step.
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
