//===- QuantizedScores.h - Dot products of int8 -------------------*- C++ -*-===//
//
// Queries and keys of an attn.accumulate with `qk_type(i8)`, rounded as in SageAttention (Zhang et al. 2024): keys
// without their mean, with a scale for each row.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_QUANTIZEDSCORES_H
#define SACCADE_LIB_CODEGEN_CPU_QUANTIZEDSCORES_H

#include "Emitter.h"
#include "Product.h"

namespace saccade::cpu {

/// q · k = s_q s_k Σ q' k' + q · m for the mean m of the keys of a tile, the query q ≈ s_q q' and the key
/// k ≈ s_k k' + m. If the product has an unsigned RHS, keys are stored as k' + 128, and sums start from −128 Σ q';
/// otherwise they are stored as k', and sums start from 0.
class QuantizedScores {
public:
  /// Allocates scratch memory for at most these numbers of queries and keys, of `depth` elements. `product`: of int8.
  QuantizedScores(Emitter &e, const VectorProduct &product, int64_t maxQueries, int64_t maxKeys, int64_t depth);

  /// Rounds the rows of a tile: `keys` of `key`, then `queries` of `query` (memrefs of positions × depth, any strides
  /// and float type). XORs `signMask` (i32, or null) into the queries. Elements of a key that are not finite do not
  /// count for the mean.
  void pack(Emitter &e, mlir::Value query, mlir::Value queries, mlir::Value key, mlir::Value keys,
            mlir::Value signMask);

  /// The dot products, in f32, of `block.rows` queries from row `first` on and `block.vectors` registers of keys of a
  /// panel. NaN if an element of the query or of the key is not finite.
  llvm::SmallVector<mlir::Value> multiply(Emitter &e, RegisterBlock block, mlir::Value first, mlir::Value panel) const;

private:
  void loadRows(Emitter &e, mlir::Value src, mlir::Value first, mlir::Value count, mlir::Value signMask) const;
  void forColumns(Emitter &e, llvm::function_ref<void(mlir::Value column)> body) const;
  mlir::Value sumColumns(Emitter &e, llvm::function_ref<mlir::Value(mlir::Value column, mlir::Value sum)> add) const;
  mlir::Value combineRows(Emitter &e, llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine) const;
  void findMean(Emitter &e, mlir::Value src, mlir::Value keys) const;
  void findScales(Emitter &e, mlir::Value scales, mlir::Value first) const;
  mlir::Value round(Emitter &e, mlir::Value row, mlir::Value column, bool isUnsigned, mlir::Value dst,
                    mlir::Value to) const;
  llvm::SmallVector<mlir::Value> multiplyElements(Emitter &e, RegisterBlock block, mlir::Value first,
                                                  mlir::Value panel) const;
  void packKeys(Emitter &e, mlir::Value src, mlir::Value keys) const;
  void packQueries(Emitter &e, mlir::Value src, mlir::Value queries, mlir::Value signMask) const;

  const VectorProduct &product;
  int64_t depth, paddedDepth;                 ///< elements of a row; the rest of a row is 0
  mlir::Value queryRows, query, keyRows, key; ///< k-packs: rows, rows or their blocks, rows, panels
  mlir::Value queryScales, starts, offsets;   ///< of a query: s_q; −128 Σ q', the bits of an i32; q · m
  mlir::Value keyScales, mean;                ///< s_k, m
  mlir::Value rows;                           ///< as many rows as lanes, in f32
  mlir::Value laneValues, inverse;            ///< of these rows: a register; 1 / scale
};

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_QUANTIZEDSCORES_H
