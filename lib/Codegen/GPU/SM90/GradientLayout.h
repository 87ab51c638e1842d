//===- GradientLayout.h - Shared memory of a gradient on sm_90a ---*- C++ -*-===//
//
// The warpgroups of a gradient kernel, and the places of its operands in shared memory.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTLAYOUT_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTLAYOUT_H

#include "../SM80/GradientStep.h"
#include "WarpgroupShape.h"

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

  llvm::SmallVector<Tile> rowTiles, columnTiles;
  llvm::SmallVector<Vector> vectors;
  llvm::SmallVector<unsigned> used;                       ///< the results of the elementwise op that sums use
  int64_t rowBytes = 0, columnBytes = 0, vectorBytes = 0; ///< of all rows, and of the columns and vectors of a stage
  int64_t sumBytes = 0;                                   ///< of all sums of a warpgroup
  int64_t stages;                                         ///< a power of two; less than two if they do not fit

  static const Tile &tileOf(llvm::ArrayRef<Tile> tiles, const PositionMatrix &matrix) {
    return *llvm::find_if(tiles, [&](const Tile &each) { return each.matrix == matrix; });
  }
  static int64_t tileBytes(const PositionMatrix &matrix) { return WarpgroupShape::tileBytes(rows, matrix.columns); }

  //===--- Places in shared memory, in bytes. Sums are exchanged where the stages were. ---===//
  int64_t firstStage() const { return rowBytes; }
  int64_t firstVectors() const { return firstStage() + stages * columnBytes; }
  int64_t rowBarrier() const { return firstVectors() + stages * vectorBytes; }
  int64_t barriers() const { return rowBarrier() + 8; }
  int64_t bytes() const { return bytes(stages); }

  /// Threads that arrive when a stage is full: one for the bulk copies, and a warp that copies vectors.
  int64_t writers() const { return vectors.empty() ? 1 : 1 + 32; }
  static constexpr int64_t launchRegisters =
      WarpgroupShape::allRegisters / threads / WarpgroupShape::registerUnit * WarpgroupShape::registerUnit;
  /// After setmaxnreg. The producer also tests which tiles a mask leaves; sums of 128 registers leave it fewer
  /// (ptxas 13.0).
  int64_t producerRegisters() const { return sumBytes / (groupThreads * 4) <= 64 ? 72 : 56; }
  int64_t consumerRegisters() const { return launchRegisters + (launchRegisters - producerRegisters()) / consumers; }

  bool fits() const { return stages > 1 && sumBytes <= stages * columnBytes; }

private:
  int64_t bytes(int64_t ofStages) const {
    return rowBytes + ofStages * (columnBytes + vectorBytes) + 8 + 2 * 8 * ofStages;
  }
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_GRADIENTLAYOUT_H
