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
  /// `shared` (i32) is the address of the shared memory of the kernel.
  GradientRole(mlir::OpBuilder &b, GradientStep &step, const GradientLayout &layout, Value shared)
      : e(b, step.pairs.getLoc(), b.getF32Type()), step(step), layout(layout), shared(shared) {}

protected:
  /// The extents of the tile of the step, index.
  struct Extents {
    Value rows, columns;
  };
  Extents extents();
  RingPlace placeOf(Value number) { return Ring(e.add(shared, layout.barriers()), layout.stages).at(e, number); }
  /// Counter `n` of a stage, !llvm.ptr<3>; the last one is whether there is a tile.
  Value counter(Value stage, size_t n) {
    Value first = e.add(shared, layout.firstCounters() + 8 * static_cast<int64_t>(n));
    return e.sharedPointer(e.add(first, e.mul(stage, layout.counterBytes())));
  }

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
  Value shared;
};

/// Copies operands. One warp runs it: one lane issues bulk copies, all lanes copy vectors. It alone executes the loops
/// around the step and their tests of tiles, and passes the counters of the loops to the others with each tile.
class GradientProducer : GradientRole {
public:
  /// `steps` is private memory that counts the tiles of columns so far (i32).
  GradientProducer(mlir::OpBuilder &b, GradientStep &step, const GradientLayout &layout, Value shared, Value steps)
      : GradientRole(b, step, layout, shared), steps(steps) {}

  /// The matrices are those of `layout.rowTiles`, and of `layout.columnTiles`.
  void copyRows(llvm::ArrayRef<MappedMatrix> matrices);
  void copyColumns(llvm::ArrayRef<MappedMatrix> matrices);
  /// Tells each warpgroup that there are no more tiles, after the loops.
  void endTiles();

private:
  void copy(const MappedMatrix &matrix, const PositionMatrix &shape, Value target, const Mbarrier &full);
  void copyVectors(const RingPlace &at, Value columns);

  Value steps;
};

/// Computes. Each warpgroup has sums of all rows in `sums`, private memory of f32 for each sum of the step.
class GradientConsumer : GradientRole {
public:
  GradientConsumer(mlir::OpBuilder &b, GradientStep &step, const GradientLayout &layout, Value shared,
                   llvm::ArrayRef<Value> sums)
      : GradientRole(b, step, layout, shared), sums(sums) {}

  /// Sets a result to zeros, before the steps.
  void fill(mlir::linalg::FillOp op);
  /// Clears the sums and waits for the rows.
  void start();
  /// Computes the tiles of this warpgroup. Moves the step out of its loops, which are erased.
  void computeTiles();
  /// Passes the sums of each warpgroup to the one that stores them.
  void exchangeSums();
  /// Adds sum `n` of the other warpgroups, and emits its elementwise ops in their places.
  void storeSum(unsigned n);

private:
  void computeTile(const RingPlace &at);
  /// Computes `layout.partColumns` columns of a tile from column `first` on. `rows` and `columns` are its extents.
  void computePart(const RingPlace &at, int64_t first, Value rows, Value columns);
  /// Moves the step and the ops that it needs from its loops to the place of the builder.
  void moveStep(mlir::ValueRange counters);
  /// Sets the rows after the last column of a tile of columns to 0. They may be NaN, which a factor of 0 does not
  /// remove.
  void clearEnd(const RingPlace &at, Value columns);
  Values startProduct(GradientStep::Product &product, Value stage, int64_t first);
  Values startSum(GradientStep::Sum &sum, Value memory, Value stage, int64_t first, mlir::ValueRange words);

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
