//===- LaneChoice.h - Choice of the vectorized loop ---------------*- C++ -*-===//
//
// Analysis of a structured op before LowerLinalg vectorizes it: its element width, its reductions, and the loops along
// which memory is contiguous.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_LANECHOICE_H
#define SACCADE_LIB_CODEGEN_CPU_LANECHOICE_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace saccade::cpu {

/// The associative and commutative op that updates an accumulator.
struct Combiner {
  mlir::Operation *op;
  mlir::BlockArgument running;
};

/// The vector combining kind of `op`, or nullopt if `op` is not a combiner.
std::optional<mlir::vector::CombiningKind> combiningKind(mlir::Operation *op);

/// The combiners of all results of `op`, or nullopt if a result is not a plain combination.
std::optional<llvm::SmallVector<Combiner>> matchCombiners(mlir::linalg::LinalgOp op);

/// Bits of the widest element that is read, written or computed; determines the number of lanes.
unsigned widestBits(mlir::linalg::LinalgOp op);

/// The increment of `expr` per iteration of loop `loop`, or nullopt if it is not constant.
std::optional<int64_t> stepAlong(mlir::AffineExpr expr, unsigned loop, unsigned numLoops);

/// The stride in elements of buffer operand `operand` along loop `loop`. A dynamic inner stride is assumed to be 1, any
/// other dynamic stride to be large. Returns nullopt if the stride varies.
std::optional<int64_t> strideAlong(mlir::linalg::LinalgOp op, unsigned operand, unsigned loop);

/// The loop of `op` to vectorize with `lanes` lanes: the one with the fewest strided accesses, of those the innermost.
/// A reduction qualifies only if all results are plain combinations. Returns nullopt if no loop qualifies.
std::optional<unsigned> chooseLaneLoop(mlir::linalg::LinalgOp op, unsigned lanes);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_LANECHOICE_H
