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
    if (!llvm::is_contained(used, sum.result))
      used.push_back(sum.result);
  }
  AffineExpr column = getAffineDimExpr(step.columnLoop(), step.pairs.getContext());
  for (OpOperand *operand : step.pairs.getDpsInputOperands()) {
    auto type = dyn_cast<MemRefType>(operand->get().getType());
    AffineMap map = step.pairs.getMatchingIndexingMap(operand);
    if (type && type.getRank() == 1 && type.getElementType().isF32() && map.getResult(0) == column) {
      vectors.push_back({operand->get(), vectorBytes});
      vectorBytes += columns * 4;
    }
  }
  for (stages = 4; stages > 1 && bytes(stages) > sharedBytes; stages /= 2)
    ;
}
