//===- LaneChoice.h - Which loop runs along the lanes -------------*- C++ -*-===//
//
// What must be known of a structured op before it becomes vector code: how wide it computes, what its reductions
// are, and along which of its loops memory is contiguous.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_LANECHOICE_H
#define SACCADE_LIB_CODEGEN_CPU_LANECHOICE_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace saccade::cpu {

/// What an op does to its running value, where that is one associative and commutative op.
struct Combiner {
  mlir::Operation *op;
  mlir::BlockArgument running;
};

/// How lanes are joined that `op` combines, or nothing where it combines nothing.
std::optional<mlir::vector::CombiningKind> combiningKind(mlir::Operation *op);

/// The combiners of all results of `op`, or nothing where one of them is more than that.
std::optional<llvm::SmallVector<Combiner>> matchCombiners(mlir::linalg::LinalgOp op);

/// The bits of the widest element that is read, written or computed, which decides how many fit a register.
unsigned widestBits(mlir::linalg::LinalgOp op);

/// By how much `expr` grows when loop `loop` advances by one, where that is a constant.
std::optional<int64_t> stepAlong(mlir::AffineExpr expr, unsigned loop, unsigned numLoops);

/// The distance in elements between two iterations of loop `loop` in operand `operand`, a buffer. A run-time inner
/// stride is taken for 1 and any other for a big one. Nothing where the distance varies.
std::optional<int64_t> strideAlong(mlir::linalg::LinalgOp op, unsigned operand, unsigned loop);

/// The loop of `op` to put along `lanes` lanes: the one with the fewest strided accesses, of those the innermost. A
/// reduction only where all results are plain combinations. Nothing where there is none.
std::optional<unsigned> chooseLaneLoop(mlir::linalg::LinalgOp op, unsigned lanes);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_LANECHOICE_H
