//===- GradientProducer.cpp - The warpgroup of a gradient that copies ---------===//
#include "../GlobalMatrix.h"
#include "GradientRoles.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

using Shape = WarpgroupShape;

void GradientRole::atTile(function_ref<void(const RingPlace &, Value rows, Value columns)> body) {
  Values sizes;
  for (Range range : linalg::LinalgOp(step.pairs).createLoopRanges(e.b, e.loc))
    sizes.push_back(getValueOrCreateConstantIndexOp(e.b, e.loc, range.size));
  e.ifElse(e.isLess(e.index(0), sizes[step.rowLoop]), [&] {
    Value number = e.load(steps, 0);
    RingPlace at = Ring(e.add(shared, layout.barriers()), layout.stages).at(e, number);
    body(at, sizes[step.rowLoop], sizes[step.columnLoop()]);
    e.store(e.add(number, 1), steps, 0);
  });
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
  atTile([&](const RingPlace &at, Value, Value columns) {
    at.waitUntilEmpty(e);
    e.ifElse(e.isFirstLane(), [&] {
      at.full.expect(e, layout.columnBytes);
      for (auto [tile, matrix] : llvm::zip_equal(layout.columnTiles, matrices))
        copy(matrix, tile.matrix, columnTile(tile.matrix, at.stage), at.full);
    });
    if (!layout.vectors.empty())
      copyVectors(at, columns);
  });
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
