//===- GradientLayout.h - Shared memory of a gradient on sm_90a ---*- C++ -*-===//
//
// The warpgroups of a gradient kernel, and the places of its operands in shared memory.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTLAYOUT_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTLAYOUT_H

#include "../SM80/GradientStep.h"
#include "WarpgroupShape.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace saccade::device {

/// One warpgroup copies, two compute. Tiles are those of `GradientStep`, of at most 64 rows × 64 columns: all
/// warpgroups have the same rows, and take tiles of columns in turns. Their sums are added at the end.
struct GradientLayout {
  static constexpr int64_t rows = 64, columns = 64, consumers = 2;
  static constexpr int64_t groupThreads = WarpgroupShape::groupThreads;
  static constexpr int64_t threads = groupThreads * (consumers + 1), computingThreads = groupThreads * consumers;

  /// A matrix, at a multiple of 1024 bytes from the start of shared memory, or of a stage.
  struct Tile {
    PositionMatrix matrix;
    int64_t offset;
  };
  /// An input of the elementwise op that is a vector of f32 along the columns, at an offset in the vectors of a stage.
  struct Vector {
    mlir::Value memref;
    int64_t offset;
  };

  GradientLayout(GradientStep &step, int64_t sharedBytes);

  llvm::SmallVector<mlir::scf::ForOp> loops; ///< around the step, outermost first
  llvm::SmallVector<Tile> rowTiles, columnTiles;
  llvm::SmallVector<Vector> vectors;
  llvm::SmallVector<unsigned> used;                       ///< the results of the elementwise op that sums use
  int64_t rowBytes = 0, columnBytes = 0, vectorBytes = 0; ///< of all rows, and of the columns and vectors of a stage
  int64_t sumBytes = 0;                                   ///< of all sums of a warpgroup
  /// The columns of a tile that are multiplied at once: half of them if the elementwise op needs registers of its own
  /// beside sums of 128 registers and the products of a whole tile.
  int64_t partColumns = columns;
  bool hasTests = false; ///< of tiles, between the loops
  int64_t stages;        ///< a power of two; less than two if they do not fit

  static const Tile &tileOf(llvm::ArrayRef<Tile> tiles, const PositionMatrix &matrix) {
    return *llvm::find_if(tiles, [&](const Tile &each) { return each.matrix == matrix; });
  }
  static int64_t tileBytes(const PositionMatrix &matrix) { return WarpgroupShape::tileBytes(rows, matrix.columns); }

  //===--- Places in shared memory, in bytes. Sums are exchanged where the stages were. ---===//
  int64_t firstStage() const { return rowBytes; }
  int64_t firstVectors() const { return firstStage() + stages * columnBytes; }
  /// The counters of `loops` at the tile of a stage, 64 bits each, then whether there is a tile, i32.
  int64_t firstCounters() const { return firstVectors() + stages * vectorBytes; }
  int64_t counterBytes() const { return 8 * static_cast<int64_t>(loops.size() + 1); }
  int64_t rowBarrier() const { return firstCounters() + stages * counterBytes(); }
  int64_t barriers() const { return rowBarrier() + 8; }
  int64_t bytes() const { return bytes(stages); }

  /// Threads that arrive when a stage is full: one for the bulk copies, and a warp that copies vectors.
  int64_t writers() const { return vectors.empty() ? 1 : 1 + 32; }
  static constexpr int64_t launchRegisters =
      WarpgroupShape::allRegisters / threads / WarpgroupShape::registerUnit * WarpgroupShape::registerUnit;
  /// After setmaxnreg. Sums of 128 registers leave the producer fewer, except for its tests which tiles a mask leaves
  /// (ptxas 13.5).
  int64_t producerRegisters() const {
    if (sumRegisters() <= 64)
      return 72;
    return partColumns == columns ? 56 : hasTests ? 72 : 40;
  }
  int64_t sumRegisters() const { return sumBytes / (groupThreads * 4); }
  int64_t consumerRegisters() const { return launchRegisters + (launchRegisters - producerRegisters()) / consumers; }

  bool fits() const { return stages > 1 && sumBytes <= stages * columnBytes; }

private:
  int64_t bytes(int64_t ofStages) const {
    return rowBytes + ofStages * (columnBytes + vectorBytes + counterBytes()) + 8 + 2 * 8 * ofStages;
  }
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTLAYOUT_H
