//===- WarpgroupShape.h - Tile sizes and shared memory of sm_90a --*- C++ -*-===//
//
// The roles of the warpgroups of an attention kernel, its tiles, and the places of its operands in shared memory.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM90_WARPGROUPSHAPE_H
#define SACCADE_LIB_CODEGEN_GPU_SM90_WARPGROUPSHAPE_H

#include "../GlobalMatrix.h"
#include "../SM80/AttentionShape.h"
#include "ItemScheduler.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace saccade::device {

/// One warpgroup copies operands to shared memory, two or three compute 64 rows each. A warp holds 16 rows, as
/// fragments of mma.sync, which have the same layout as those of wgmma. The tiles are those of FlashAttention-3
/// (hopper/tile_size.h) for head sizes 64, 192 and 256: 192 × 128, 128 × 112 and 128 × 80; those of 128 are 128 × 128
/// with and without a mask.
struct WarpgroupShape : AttentionShape {
  /// Threads of a warpgroup, and rows of its fragments.
  static constexpr int64_t groupThreads = 128, groupRows = 64;
  static constexpr int64_t warpRows = groupRows / 4;
  /// Registers of a multiprocessor, which has one CTA; setmaxnreg and the launch count them in units of eight.
  static constexpr int64_t allRegisters = 64 * 1024, registerUnit = 8;
  /// Columns of a box of a bulk copy: as long as the 128-byte swizzle. Bytes of a row of a box.
  static constexpr int64_t boxColumns = 64, boxRowBytes = 128;
  /// The swizzle pattern repeats after eight rows.
  static constexpr int64_t tileAlignment = 8 * boxRowBytes;

  WarpgroupShape(const AttentionState &state, int64_t sharedBytes)
      : AttentionShape(state), consumers(std::max<int64_t>(rows / groupRows, 1)) {
    warps = consumers * groupThreads / 32;
    firstWarp = groupThreads / 32;
    llvm::for_each(state.steps, [&](attn::AccumulateOp step) { addStep(step); });
    int64_t most = consumerRegisters() - accElements() - otherRegisters();
    while (tileKeys > 64 && (keyRegisters() > most || bytes(/*ofStages=*/2) > sharedBytes))
      tileKeys -= 16;
    chooseStages(sharedBytes);
  }

  /// The shape of a split-KV step, whose state is in memory: one warpgroup computes all rows, and the warp after it
  /// copies. Items have few steps, so that two CTAs of a multiprocessor hide the start and end of each other's items,
  /// if shared memory and registers suffice.
  WarpgroupShape(attn::AccumulateOp step, int64_t sharedBytes)
      : AttentionShape(step), consumers(1), isPartial(true), tileKeys(64) {
    rows = groupRows;
    warpsShareRows = false;
    addStep(step);
    int64_t ofPair = sharedBytesOf(/*ctas=*/2, sharedBytes);
    constexpr int64_t registersOfPair = 168; // of a thread, if each quarter of a multiprocessor has three warps
    if (accElements() + keyRegisters() + otherRegisters() <= registersOfPair && bytes(/*ofStages=*/2) <= ofPair)
      ctas = 2;
    chooseStages(ctas == 2 ? ofPair : sharedBytes);
  }

  int64_t consumers;            ///< warpgroups that compute
  bool isPartial = false;       ///< if the results are a state in memory
  int64_t ctas = 1;             ///< of a multiprocessor
  bool isInPages = false;       ///< if keys or values are
  bool testsTiles = false;      ///< if the mask is more than bounds of keys
  bool scoresPositions = false; ///< if the score region reads the position of the key
  bool readsPairs = false;      ///< if it reads a tensor at the key, such as a bias
  int64_t tileKeys = 128;
  int64_t stages; ///< of keys and values, a power of two; less than two if they do not fit

  /// Of the warps that copy: a warpgroup gives its registers to the others.
  int64_t producerThreads() const { return isPartial ? 32 : groupThreads; }
  int64_t threads() const { return groupThreads * consumers + producerThreads(); }
  /// Registers of a thread at the launch, and after setmaxnreg. A producer that tests tiles or computes places of
  /// pages needs more.
  int64_t launchRegisters() const { return allRegisters / threads() / registerUnit * registerUnit; }
  int64_t producerRegisters() const { return consumers == 3 ? 32 : 24 + 16 * (testsTiles + isInPages); }
  int64_t consumerRegisters() const {
    return launchRegisters() + (launchRegisters() - producerRegisters()) / consumers;
  }

  /// Keys per step, a multiple of 16.
  int64_t keys() const { return tileKeys; }
  int64_t keyTiles() const { return keys() / 8; }
  /// Scores take a register each in a thread that holds two rows of four lanes, packed weights half a register.
  int64_t keyRegisters() const { return keys() / 2 + weightWords(); }
  /// What a step should have beside scores, weights and the accumulator, so that it spills none, as ptxas 13.0 reports.
  int64_t otherRegisters() const {
    return (consumers == 3 ? 32 : 48) + (testsTiles ? 8 : 0) + (scoresPositions ? 16 : 0);
  }
  /// Words of packed weights of a thread.
  int64_t weightWords() const { return keyTiles() * 2; }

  /// Whether warpgroups take turns to start products: for deeper heads, products take most of the time anyway.
  bool takesTurns() const { return consumers > 1 && depth <= 128 && valueDepth <= 128; }

  static int64_t boxes(int64_t columns) { return llvm::divideCeil(SharedTile::paddedColumns(columns), boxColumns); }
  static int64_t boxBytes(int64_t rows) { return rows * boxRowBytes; }
  static int64_t tileBytes(int64_t rows, int64_t columns) { return boxes(columns) * boxBytes(rows); }

  //===--- Places in shared memory, in bytes ---===//
  int64_t queries() const { return 0; }
  int64_t keyStage(int64_t stage) const { return tileBytes(rows, depth) + stage * tileBytes(keys(), depth); }
  int64_t valueStage(int64_t stage) const { return keyStage(stages) + stage * tileBytes(keys(), valueDepth); }
  /// Barriers of the queries, the keys and the values, and the items.
  int64_t queryBarriers() const { return valueStage(stages); }
  int64_t keyBarriers() const { return queryBarriers() + Ring::bytes(1); }
  int64_t valueBarriers() const { return keyBarriers() + Ring::bytes(stages); }
  int64_t items() const { return valueBarriers() + Ring::bytes(stages); }
  int64_t bytes() const { return bytes(stages); }

  bool fits() const {
    return rows == consumers * groupRows && (isPartial || consumers == 2 || consumers == 3) && AttentionShape::fits() &&
           stages > 1 && !hasTallies;
  }

  /// The shared memory of each of `ctas` CTAs of a multiprocessor, if one alone has `sharedBytes`. CUDA reserves 1 KiB
  /// for each (CUDA C++ Programming Guide, compute capability 9.0).
  static constexpr int64_t sharedBytesOf(int64_t ctas, int64_t sharedBytes) {
    constexpr int64_t reservedBytes = 1024;
    return (sharedBytes + reservedBytes) / ctas - reservedBytes;
  }

private:
  void addStep(attn::AccumulateOp step) {
    isInPages |= findPages(step.getKey()) || findPages(step.getValue());
    testsTiles |= !attn::KeyBounds(llvm::cast<attn::ScoringOpInterface>(step.getOperation())).isExact();
    if (step.getScore().empty())
      return;
    mlir::Value key = attn::getRegionArguments(step.getScore(), /*numbers=*/1).key;
    scoresPositions |= !key.use_empty();
    readsPairs |= llvm::any_of(key.getUsers(), llvm::IsaPred<mlir::tensor::ExtractOp>);
  }

  void chooseStages(int64_t sharedBytes) {
    for (stages = 4; stages > 1 && bytes(stages) > sharedBytes; stages /= 2)
      ;
  }

  int64_t bytes(int64_t ofStages) const {
    return tileBytes(rows, depth) + ofStages * (tileBytes(keys(), depth) + tileBytes(keys(), valueDepth)) +
           Ring::bytes(1) + 2 * Ring::bytes(ofStages) + ItemScheduler::bytes();
  }
};

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM90_WARPGROUPSHAPE_H
