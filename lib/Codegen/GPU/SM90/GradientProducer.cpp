//===- GradientProducer.cpp - The warpgroup of a gradient that copies ---------===//
#include "../GlobalMatrix.h"
#include "GradientRoles.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

using Shape = WarpgroupShape;

GradientRole::Extents GradientRole::extents() {
  Values sizes;
  for (Range range : linalg::LinalgOp(step.pairs).createLoopRanges(e.b, e.loc))
    sizes.push_back(getValueOrCreateConstantIndexOp(e.b, e.loc, range.size));
  return {sizes[step.rowLoop], sizes[step.columnLoop()]};
}

Value GradientRole::vectorElement(const GradientLayout::Vector &vector, Value stage, Value column) {
  Value first = e.add(shared, layout.firstVectors() + vector.offset);
  return e.sharedPointer(e.add(e.add(first, e.mul(stage, layout.vectorBytes)), e.mul(column, 4)));
}

void GradientProducer::copy(const MappedMatrix &matrix, const PositionMatrix &shape, Value target,
                            const Mbarrier &full) {
  for (int64_t box = 0; box < Shape::boxes(shape.columns); ++box)
    copyBox(e, matrix.map, matrix.operand.coordinates(e, e.i32(0), box * Shape::boxColumns),
            e.add(target, box * Shape::boxBytes(GradientLayout::rows)), full);
}

void GradientProducer::copyRows(ArrayRef<MappedMatrix> matrices) {
  e.ifElse(e.isFirstLane(), [&] {
    rowsFull().expect(e, layout.rowBytes);
    for (auto [tile, matrix] : llvm::zip_equal(layout.rowTiles, matrices))
      copy(matrix, tile.matrix, rowTile(tile.matrix), rowsFull());
  });
}

void GradientProducer::copyColumns(ArrayRef<MappedMatrix> matrices) {
  auto [rows, columns] = extents();
  // Without rows, positions would be before the first element of a tensor.
  e.ifElse(e.isLess(e.index(0), rows), [&, columns = columns] {
    Value number = e.load(steps, 0);
    RingPlace at = placeOf(number);
    at.waitUntilEmpty(e);
    e.ifElse(e.isFirstLane(), [&] {
      for (auto [n, loop] : llvm::enumerate(layout.loops)) {
        Value count = arith::IndexCastOp::create(e.b, e.loc, e.b.getI64Type(), scf::ForOp(loop).getInductionVar());
        LLVM::StoreOp::create(e.b, e.loc, count, counter(at.stage, n));
      }
      LLVM::StoreOp::create(e.b, e.loc, e.i32(1), counter(at.stage, layout.loops.size()));
      at.full.expect(e, layout.columnBytes);
      for (auto [tile, matrix] : llvm::zip_equal(layout.columnTiles, matrices))
        copy(matrix, tile.matrix, columnTile(tile.matrix, at.stage), at.full);
    });
    if (!layout.vectors.empty())
      copyVectors(at, columns);
    e.store(e.add(number, 1), steps, 0);
  });
}

void GradientProducer::endTiles() {
  for (int64_t group = 0; group < GradientLayout::consumers; ++group) {
    RingPlace at = placeOf(e.add(e.load(steps, 0), group));
    at.waitUntilEmpty(e);
    e.ifElse(e.isFirstLane(), [&] {
      LLVM::StoreOp::create(e.b, e.loc, e.i32(0), counter(at.stage, layout.loops.size()));
      at.full.expect(e, 0);
    });
    if (!layout.vectors.empty())
      at.full.arriveAfterCopies(e);
  }
}

void GradientProducer::copyVectors(const RingPlace &at, Value columns) {
  Value lane = e.rem(e.thread(), 32);
  for (const GradientLayout::Vector &vector : layout.vectors) {
    GlobalMatrix global(e, vector.memref);
    for (int64_t first = 0; first < GradientLayout::columns; first += 32) {
      Value column = e.add(lane, first), place = e.toIndex(column);
      Value bytes = e.select(e.isLess(place, columns), e.i32(4), e.i32(0));
      NVVM::CpAsyncOp::create(e.b, e.loc, vectorElement(vector, at.stage, column), global.address(e, place, e.index(0)),
                              4, NVVM::LoadCacheModifierKind::CA, bytes);
    }
  }
  at.full.arriveAfterCopies(e);
}
