//===- PairFragment.h - The pairs of a gradient that a thread has -*- C++ -*-===//
//
// Accumulators of mma.sync and of wgmma have the same layout in a warp, which is that of LHS operands as well. So one
// code evaluates the elementwise op of a gradient, and stores sums, for both.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_GPU_SM80_PAIRFRAGMENT_H
#define SACCADE_LIB_CODEGEN_GPU_SM80_PAIRFRAGMENT_H

#include "../Emitter.h"
#include "GradientStep.h"

namespace saccade::device {

/// The row and column (i32) of the first accumulator of this thread: the others are in the next column, and eight rows
/// and multiples of eight columns further on.
struct FragmentPlace {
  mlir::Value row, column;
};

/// Accumulators of 16 rows of a warp × `columns` columns of a tile of pairs.
struct PairFragment {
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;

  FragmentPlace place; ///< column without `firstColumn`
  int64_t firstColumn, columns;
  Value lastRow, lastColumn; ///< of the tile, i32

  /// The results `used` of the elementwise op of `step`, as words of two elements in the layout of LHS fragments: four
  /// words for 16 columns. `products` are the accumulators of each input, empty for others. Columns after the last one
  /// have 0 unless `isWhole`. `loadVector` loads an input that is a vector along the columns, at column `place.column`
  /// + `offset`; it returns null for inputs that are read from their memory, at positions that are clamped to the tile.
  llvm::SmallVector<Values> evaluate(Emitter &e, GradientStep &step, llvm::ArrayRef<unsigned> used,
                                     llvm::ArrayRef<Values> products, bool isWhole,
                                     llvm::function_ref<Value(mlir::OpOperand &, int64_t offset)> loadVector) const;
};

/// Emits the elementwise op `store` on a sum, whose elements of this thread are in private memory, `registers`.
void storeFragment(Emitter &e, mlir::linalg::GenericOp store, mlir::Value registers, FragmentPlace place);

} // namespace saccade::device

#endif // SACCADE_LIB_CODEGEN_GPU_SM80_PAIRFRAGMENT_H
