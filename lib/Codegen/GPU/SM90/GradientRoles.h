//===- GradientRoles.h - The warpgroups of a gradient on sm_90a ---*- C++ -*-===//
//
// The first warpgroup copies the rows once, and the columns of each tile to a stage. The others take tiles in turns, so
// that the elementwise op of one overlaps with the products of another one.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTROLES_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTROLES_H

#include "../SM80/PairFragment.h"
#include "GradientLayout.h"
#include "Ring.h"
#include "TensorMap.h"

namespace saccade::device {

/// A matrix that a tensor map (!llvm.ptr) describes.
struct MappedMatrix {
  MappedOperand operand;
  mlir::Value map;
};

/// Common to both roles. All functions emit code at the place of the builder.
class GradientRole {
public:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;
  /// `shared` (i32) is the address of the shared memory of the kernel; `steps` is private memory that counts the tiles
  /// of columns so far (i32).
  GradientRole(mlir::OpBuilder &b, GradientStep &step, const GradientLayout &layout, Value shared, Value steps)
      : e(b, step.pairs.getLoc(), b.getF32Type()), step(step), layout(layout), shared(shared), steps(steps) {}

protected:
  /// Emits `body` for the tile of the step, with its place in the ring and its extents (index), if it has rows: without
  /// any, positions would be before the first element of a tensor.
  void atTile(llvm::function_ref<void(const RingPlace &, Value rows, Value columns)> body);

  Mbarrier rowsFull() { return {e.add(shared, layout.rowBarrier())}; }
  Value rowTile(const PositionMatrix &matrix) {
    return e.add(shared, GradientLayout::tileOf(layout.rowTiles, matrix).offset);
  }
  Value columnTile(const PositionMatrix &matrix, Value stage) {
    Value first = e.add(shared, layout.firstStage() + GradientLayout::tileOf(layout.columnTiles, matrix).offset);
    return e.add(first, e.mul(stage, layout.columnBytes));
  }
  /// Element `column` (i32) of a vector, !llvm.ptr<3>.
  Value vectorElement(const GradientLayout::Vector &vector, Value stage, Value column);

  Emitter e;
  GradientStep &step;
  const GradientLayout &layout;
  Value shared, steps;
};

/// Copies operands. One warp runs it: one lane issues bulk copies, all lanes copy vectors.
class GradientProducer : GradientRole {
public:
  using GradientRole::GradientRole;

  /// The matrices are those of `layout.rowTiles`, and of `layout.columnTiles`.
  void copyRows(llvm::ArrayRef<MappedMatrix> matrices);
  void copyColumns(llvm::ArrayRef<MappedMatrix> matrices);

private:
  void copy(const MappedMatrix &matrix, const PositionMatrix &shape, Value target, const Mbarrier &full);
  void copyVectors(const RingPlace &at, Value columns);
};

/// Computes. Each warpgroup has sums of all rows in `sums`, private memory of f32 for each sum of the step.
class GradientConsumer : GradientRole {
public:
  GradientConsumer(mlir::OpBuilder &b, GradientStep &step, const GradientLayout &layout, Value shared, Value steps,
                   llvm::ArrayRef<Value> sums)
      : GradientRole(b, step, layout, shared, steps), sums(sums) {}

  /// Sets a result to zeros, before the steps.
  void fill(mlir::linalg::FillOp op);
  /// Clears the sums and waits for the rows.
  void start();
  void computeTile();
  /// Passes the sums of each warpgroup to the one that stores them.
  void exchangeSums();
  /// Adds sum `n` of the other warpgroups, and emits its elementwise ops in their places.
  void storeSum(unsigned n);

private:
  void computeColumns(const RingPlace &at, Value rows, Value columns);
  /// Sets the rows after the last column of a tile of columns to 0. They may be NaN, which a factor of 0 does not
  /// remove.
  void clearEnd(const RingPlace &at, Value columns);
  Values startProduct(GradientStep::Product &product, Value stage);
  Values startSum(GradientStep::Sum &sum, Value memory, Value stage, mlir::ValueRange words);

  FragmentPlace locate();
  /// The thread among those that compute, and in its warpgroup; the warpgroup, uniform in a warp.
  Value thread() { return e.add(e.thread(), -GradientLayout::groupThreads); }
  Value threadInGroup() { return e.rem(e.thread(), GradientLayout::groupThreads); }
  Value group() { return e.shuffleFrom(e.div(thread(), GradientLayout::groupThreads), e.i32(0)); }
  /// Whether this warpgroup stores sum `n`.
  Value isOwner(unsigned n) { return e.isEqual(group(), e.i32(n % GradientLayout::consumers)); }
  /// Where element 0 of sum `n` of this thread is exchanged, !llvm.ptr<3>; the others are `groupThreads` words apart.
  Value exchanged(unsigned n);

  llvm::ArrayRef<Value> sums;
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTROLES_H
