//===- WarpgroupShape.h - Tile sizes and shared memory of sm_90a --*- C++ -*-===//
//
// The roles of the warpgroups of an attention kernel, its tiles, and the places of its operands in shared memory.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_WARPGROUPSHAPE_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_WARPGROUPSHAPE_H

#include "../SM80/AttentionShape.h"

namespace saccade::device {

/// One warpgroup copies operands to shared memory, the others compute 64 rows each. A warp holds 16 rows, as fragments
/// of mma.sync, which have the same layout as those of wgmma.
struct WarpgroupShape : AttentionShape {
  /// Threads of a warpgroup, rows of its fragments, and warpgroups that compute.
  static constexpr int64_t groupThreads = 128, groupRows = 64, consumers = 2;
  static constexpr int64_t threads = groupThreads * (consumers + 1);
  /// Registers of a thread after setmaxnreg, of 168 at first. A producer that tests tiles needs more.
  int64_t producerRegisters() const { return testsTiles ? 40 : 24; }
  int64_t consumerRegisters() const { return 168 + (168 - producerRegisters()) / consumers; }
  /// Columns of a box of a bulk copy: as long as the 128-byte swizzle. Bytes of a row of a box.
  static constexpr int64_t boxColumns = 64, boxRowBytes = 128;
  /// The swizzle pattern repeats after eight rows.
  static constexpr int64_t tileAlignment = 8 * boxRowBytes;

  WarpgroupShape(const AttentionState &state, int64_t sharedBytes) : AttentionShape(state) {
    warps = consumers * groupThreads / 32;
    firstWarp = groupThreads / 32;
    for (attn::AccumulateOp step : state.steps)
      testsTiles |= !attn::KeyBounds(llvm::cast<attn::ScoringOpInterface>(step.getOperation())).isExact();
    for (stages = 4; stages > 1 && bytes() > sharedBytes; stages /= 2)
      ;
  }

  bool testsTiles = false; ///< if the mask is more than bounds of keys
  int64_t stages;          ///< of keys and values, a power of two; less than two if they do not fit

  /// Keys per step. Their scores take a register each in a thread that holds two rows of four lanes.
  int64_t keys() const { return 128; }
  int64_t keyTiles() const { return keys() / 8; }
  /// Words of packed weights of a thread.
  int64_t weightWords() const { return keyTiles() * 2; }

  /// Whether warpgroups take turns to start products: for deeper heads, products take most of the time anyway.
  bool takesTurns() const { return depth <= 128 && valueDepth <= 128; }

  static int64_t boxes(int64_t columns) { return llvm::divideCeil(SharedTile::paddedColumns(columns), boxColumns); }
  static int64_t boxBytes(int64_t rows) { return rows * boxRowBytes; }
  static int64_t tileBytes(int64_t rows, int64_t columns) { return boxes(columns) * boxBytes(rows); }

  //===--- Places in shared memory, in bytes ---===//
  int64_t queries() const { return 0; }
  int64_t keyStage(int64_t stage) const { return tileBytes(rows, depth) + stage * tileBytes(keys(), depth); }
  int64_t valueStage(int64_t stage) const { return keyStage(stages) + stage * tileBytes(keys(), valueDepth); }
  int64_t barriers() const { return valueStage(stages); }
  int64_t bytes() const { return barriers() + 8 * (1 + 4 * stages); }

  bool fits() const {
    return AttentionShape::fits() && rows == consumers * groupRows && valueDepth <= 128 && stages > 1 && !hasTallies;
  }
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_WARPGROUPSHAPE_H
