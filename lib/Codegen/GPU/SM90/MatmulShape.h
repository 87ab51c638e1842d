//===- MatmulShape.h - Tile sizes of matmuls on sm_90a ------------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_MATMULSHAPE_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_MATMULSHAPE_H

#include "WarpgroupShape.h"

namespace saccade::device {

/// A CTA computes a tile of a matmul: one warp copies parts of both operands, `depth` elements of k at a time, to a
/// ring of stages in shared memory; one or two warpgroups compute 64 rows each. The sums are in registers, and pass
/// through shared memory, where the stages were, to the epilogue.
struct MatmulShape {
  using Group = WarpgroupShape;
  static constexpr int64_t maxRows = 2 * Group::groupRows;
  /// Elements of k of a stage: a row of a box.
  static constexpr int64_t depth = Group::boxColumns;
  /// Columns of the epilogue that a thread computes at a time: 16 bytes of a 16-bit result.
  static constexpr int64_t vectorColumns = 8;

  /// For tiles of at most `rows` × `columns`. `hasWideResults`: results have more bits than the operands.
  MatmulShape(int64_t rows, int64_t columns, bool isLhsTransposed, bool isRhsTransposed, bool hasWideResults,
              int64_t sharedBytes)
      : rows(llvm::alignTo(rows, Group::groupRows)), columns(llvm::alignTo(columns, 16)),
        isLhsTransposed(isLhsTransposed), isRhsTransposed(isRhsTransposed), addsApart(hasWideResults),
        // Two CTAs, so that one computes its epilogue while the other one multiplies, if their sums fit in registers.
        ctas(sumRegisters() <= 64 ? 2 : 1) {
    while (stages > 2 && bytes() > WarpgroupShape::sharedBytesOf(ctas, sharedBytes))
      --stages;
  }

  int64_t rows, columns;                 ///< of a tile, multiples of 64 and 16
  bool isLhsTransposed, isRhsTransposed; ///< whether m and n are contiguous in memory, instead of k
  /// Whether stages are accumulated apart, `stagesApart` at a time, since tensor cores truncate the sums: the error of
  /// one chain would grow with its length. The error is small beside that of rounding to 16 bits.
  bool addsApart;
  static constexpr int64_t stagesApart = 2;
  int64_t ctas; ///< of a multiprocessor
  int64_t stages = 4;

  int64_t consumers() const { return rows / Group::groupRows; }
  int64_t consumerWarps() const { return consumers() * Group::groupThreads / 32; }
  /// The last warp copies. A warpgroup would need setmaxnreg, with which ptxas still limits a thread to the registers
  /// of the launch of two CTAs, too few for the sums.
  int64_t threads() const { return Group::groupThreads * consumers() + 32; }
  /// Sums of a thread.
  int64_t sums() const { return columns / 2; }
  int64_t sumRegisters() const { return (addsApart ? 2 : 1) * sums(); }
  bool fits() const { return rows <= maxRows && sumRegisters() <= 128; }

  //===--- Places in shared memory, in bytes ---===//
  /// Boxes of an operand: one of all rows if k is contiguous, else one for each 64 of its rows.
  static int64_t boxes(int64_t extent, bool isTransposed) {
    return isTransposed ? llvm::divideCeil(extent, Group::boxColumns) : 1;
  }
  static int64_t boxRows(int64_t extent, bool isTransposed) { return isTransposed ? depth : extent; }
  static int64_t tileBytes(int64_t extent, bool isTransposed) {
    return boxes(extent, isTransposed) * Group::boxBytes(boxRows(extent, isTransposed));
  }
  int64_t lhsBytes() const { return tileBytes(rows, isLhsTransposed); }
  int64_t stageBytes() const { return lhsBytes() + tileBytes(columns, isRhsTransposed); }
  /// Sums of a row, padded so that the rows of four lanes are in different banks.
  int64_t sumRowBytes() const { return columns * 4 + 32; }
  int64_t barriers() const { return std::max(stages * stageBytes(), rows * sumRowBytes()); }
  int64_t bytes() const { return barriers() + 2 * 8 * stages; }
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_MATMULSHAPE_H
