//===- GradientLayout.cpp - Shared memory of a gradient on sm_90a -------------===//
#include "GradientLayout.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

GradientLayout::GradientLayout(GradientStep &step, int64_t sharedBytes) {
  auto place = [](SmallVectorImpl<Tile> &tiles, int64_t &bytes, const PositionMatrix &matrix) {
    if (llvm::any_of(tiles, [&](const Tile &each) { return each.matrix == matrix; }))
      return;
    tiles.push_back({matrix, bytes});
    bytes += tileBytes(matrix);
  };
  for (std::optional<GradientStep::Product> &input : step.inputs)
    if (input) {
      place(rowTiles, rowBytes, input->row);
      place(columnTiles, columnBytes, input->column);
    }
  for (GradientStep::Sum &sum : step.sums) {
    place(columnTiles, columnBytes, sum.column);
    sumBytes += rows * sum.column.columns * 4;
  }
  used = step.usedResults();
  for (Value vector : step.columnVectors()) {
    vectors.push_back({vector, vectorBytes});
    vectorBytes += columns * 4;
  }
  for (Operation *op = step.pairs; op != step.outermost; op = op->getParentOp()) {
    hasTests |= isa<scf::IfOp>(op->getParentOp());
    if (auto loop = dyn_cast<scf::ForOp>(op->getParentOp()))
      loops.insert(loops.begin(), loop);
  }
  if (step.needsRegisters())
    partColumns = columns / 2;
  for (stages = 4; stages > 1 && bytes(stages) > sharedBytes; stages /= 2)
    ;
}
