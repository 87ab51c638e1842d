//===- UnpackedLowering.h - Attention step without packing --------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_UNPACKEDLOWERING_H
#define SACCADE_LIB_CODEGEN_CPU_UNPACKEDLOWERING_H

#include "Microkernel.h"
#include "Prefetch.h"
#include "RowSource.h"
#include "ScoreTile.h"
#include "TileProduct.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

namespace saccade::cpu {

/// K-packs of keys whose rows stay in L1.
inline constexpr int64_t cachedKPacks = 16;
/// Streams of memory in which scores read keys.
inline constexpr int64_t keyStreams = 2;
/// How far ahead keys and values are prefetched, in all streams together: computing a few kilobytes takes longer
/// than memory takes to answer.
inline constexpr int64_t prefetchedBytes = 4096;

/// Rewrites one attn.accumulate.
class UnpackedLowering {
public:
  UnpackedLowering(const Emitter &e, attn::AccumulateOp op) : e(e), op(op) {}
  mlir::LogicalResult run();

private:
  Emitter e;
  attn::AccumulateOp op;

  mlir::Value heads, queries, rows, paddedRows, keys; ///< rows = queries · heads
  int64_t depth, valueDepth;
  const Product *product = nullptr; ///< of the kernel that is emitted
  RowSource key, value;
  mlir::Value query, scores; ///< scratch: k-packs of queries, scores
  mlir::Value sums;          ///< scratch: weights · values of the tile

  // In tile registers (UnpackedTiles.cpp): the most rows, and the k-packs of queries, one query a column.
  bool usesTiles() const { return product->traits.inTiles; }
  int64_t groupRows = rowGroup;
  void forTileRows(llvm::function_ref<void(mlir::Value row, int64_t count)> body);
  mlir::Value queryColumns;
  void transposeQueries();
  void packKeys(mlir::Value packed, mlir::Value first, mlir::Value factors);
  void storeScores(mlir::Value keysByQueries, mlir::Value factors, mlir::Value first);
  void computeScoresInTiles(attn::KeyRange visible);
  void roundWeights(attn::KeyRange visible);
  void packValues(mlir::Value packed, attn::KeyRange visible, mlir::Value firstKPack);
  void addValuesInTiles(attn::KeyRange visible);

  mlir::LogicalResult check();
  unsigned kPackElements() const { return product->traits.kPackElements; }
  mlir::LogicalResult emitKernel(mlir::Operation *keyWriter, mlir::Operation *valueWriter, bool permitsTiles);
  mlir::Value sizeOf(mlir::Value operand, attn::DimsAttr dims, attn::Dim dim) {
    return mlir::getValueOrCreateConstantIndexOp(e.b, e.loc, attn::getDimSize(e.b, e.loc, operand, dims, dim));
  }
  mlir::Value subview(mlir::Value memref, llvm::ArrayRef<mlir::OpFoldResult> offsets,
                      llvm::ArrayRef<mlir::OpFoldResult> sizes, llvm::ArrayRef<mlir::OpFoldResult> strides) {
    return mlir::memref::SubViewOp::create(e.b, e.loc, memref, offsets, sizes, strides);
  }
  /// The op that writes the tile for this op only; null if there is none.
  mlir::Operation *writerOf(mlir::Value operand, attn::DimsAttr dims) {
    return *dims.position(attn::Dim::Seq) < *dims.position(attn::Dim::Depth) ? findWriterOf(operand, op) : nullptr;
  }
  RowSource rowsOf(mlir::Value operand, attn::DimsAttr dims, mlir::Operation *writer) {
    return emitRows(e, emitPositions(e, operand, dims), writer, op.getScheduleAttr().getCols());
  }
  mlir::Value queriesOfHead(mlir::Value head);
  void packQueries(mlir::Value signMask);
  attn::KeyRange visibleKeys(ScoreTile tile);
  llvm::SmallVector<mlir::Value> loadKeyKPacks(const RowSource::Row &row, mlir::Value column, int64_t present);
  llvm::SmallVector<mlir::Value> loadValueKPacks(mlir::Value kPack, mlir::Value column, int64_t present,
                                                 unsigned vectors);
  llvm::SmallVector<mlir::Value> toKPacks(mlir::Value elements);
  mlir::Value toBF16(mlir::Value elements);
  bool arePairedInLanes(int64_t column) const;
  llvm::SmallVector<mlir::Value> addScoreKPacks(llvm::ArrayRef<mlir::Value> sums, mlir::Value row,
                                                llvm::ArrayRef<RowSource::Row> keyRows, mlir::Value column,
                                                int64_t present);
  mlir::Value computeScoreBlock(mlir::Value row, llvm::ArrayRef<mlir::Value> positions, bool prefetches);
  /// The keys whose rows stay in L1 for all rows and columns. The rows that elements are computed from are short.
  int64_t cachedKeys(const RowSource &rows) const { return cachedKPacks * (rows.isComputed() ? 2 : kPackElements()); }
  /// How many rows of `columns` elements fit into the bytes that are prefetched.
  int64_t prefetchedRows(const RowSource &rows, int64_t columns) const {
    return std::max<int64_t>(2, prefetchedBytes / llvm::divideCeil(columns * cacheLine, rows.elementsPerLine()));
  }
  mlir::Value emitFactors(llvm::ArrayRef<RowSource::Row> rows);
  void computeScores(attn::KeyRange visible);
  mlir::LogicalResult computeWeights(mlir::Value scale, attn::KeyRange &visible, const GroupState &state);
  void scaleWeights(attn::KeyRange visible);
  void addToState(const GroupState &state);
  void addValues(attn::KeyRange visible);
  void addValueBlock(mlir::Value row, RegisterBlock block, mlir::Value column, int64_t present, mlir::Value begin,
                     mlir::Value end);
  void prefetchValues(mlir::Value first, int64_t count);
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_UNPACKEDLOWERING_H
