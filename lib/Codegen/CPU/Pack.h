//===- Pack.h - Packing operands for the microkernels ------------*- C++ -*-===//
//
// Packing groups elements into k-packs, makes strides static, and transposes the RHS of a matmul into panels, so that
// microkernels do not depend on the layout of the operands.
//
// A k-pack is `ProductTraits::kPackElements` consecutive elements along K that one lane multiplies at once: one element
// in the compute type, or two bf16 in the bits of an f32 (VNNI layout). Elements beyond the end of K are 0.
//
// Two f16 in a k-pack are split: x = upper + lower, where `upper` is x rounded to bf16. Both parts are bf16, and the
// sum is exact: f16 has 11 bits, and rounding to 8 leaves a difference of 3. In place of k-pack w are one of upper and
// one of lower parts, in steps of tile registers (TileProduct.h): 16 k-packs of upper parts, then 16 of lower ones
// (`emitPlaceOfPart`). The last step is filled with zeros.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_CODEGEN_CPU_PACK_H
#define SACCADE_LIB_CODEGEN_CPU_PACK_H

#include "Emitter.h"
#include "saccade/Dialect/Attn/Analysis/ProductForm.h"

namespace saccade::cpu {

/// The extent of a k-pack in a matrix: `elements` of a row or of a column.
struct KPackShape {
  unsigned elements;
  bool isColumn = false;

  int64_t rows() const { return isColumn ? elements : 1; }
  int64_t columns() const { return isColumn ? 1 : elements; }
};

/// Reads k-packs of a matrix (memref<?x?>).
struct KPackReader {
  Emitter &e;
  mlir::Value src;
  KPackShape shape;

  /// A vector of adjacent k-packs from element (row, column) on; the inner stride must be 1. If not `isWhole`, the
  /// second element of each k-pack is out of bounds.
  mlir::Value vector(mlir::Value row, mlir::Value column, bool isWhole = true);
  /// The k-pack whose first element is (row, column).
  mlir::Value scalar(mlir::Value row, mlir::Value column);
};

/// The place of part `part` of k-pack `w` among split k-packs.
mlir::Value emitPlaceOfPart(Emitter &e, mlir::Value w, int64_t part);

/// The units of `depth` elements along K.
mlir::Value emitUnits(Emitter &e, const ProductTraits &product, mlir::Value depth);

/// Two registers of f32 as registers of bf16 pairs (see `emitRoundToPairs`): the rounded elements, and the rounded
/// differences from these. Their sum has an error of at most 2⁻¹⁸.
std::pair<mlir::Value, mlir::Value> emitSplitToPairs(Emitter &e, mlir::Value first, mlir::Value second);

/// XORs `signMask` (null for none) into a k-pack.
mlir::Value applySignMask(Emitter &e, mlir::Value kPack, mlir::Value signMask);

/// dst[r][w] = k-pack w of row min(r, rows − 1) of `src` (memref<?xD>, any strides, f16, bf16, f32 or f64), for
/// r < paddedRows. `dst` is memref<RxW>. `signMask` (an integer as wide as a k-pack, or null) is XORed into every
/// k-pack.
void emitPackRows(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value paddedRows, mlir::Value dst,
                  const ProductTraits &product, mlir::Value signMask = nullptr);

/// dst[w][c] = k-pack w of column c of `src`. `dst` is memref<WxC>; columns that `src` does not have become 0.
void emitPackColumns(Emitter &e, mlir::Value src, mlir::Value dst, const ProductTraits &product);

/// The k-packs of all columns of a matrix with contiguous columns that are packed as panels before later ones.
inline constexpr int64_t packedTogether = 16;

/// dst[r / L][w][r % L] = k-pack w of row min(r, rows − 1) of `src`, for the panels (memref<PxWxL>) that hold the rows
/// [0, rows).
void emitPackPanels(Emitter &e, mlir::Value src, mlir::Value rows, mlir::Value dst, const ProductTraits &product);

/// dst[r][c] = src[r][c] for all of `dst` (memref<?x?>, any strides, any float type).
void emitUnpackRows(Emitter &e, mlir::Value src, mlir::Value dst);

/// Transposes a square of registers, as many as a register has lanes.
void emitTranspose(Emitter &e, llvm::SmallVectorImpl<mlir::Value> &vectors);

/// The elements of the lower halves of two vectors in turn, and those of the upper halves.
std::pair<mlir::Value, mlir::Value> emitInterleave(Emitter &e, mlir::Value first, mlir::Value second);

/// Two registers of f32 as a register of bf16 pairs: the elements of `first`, then those of `second`, rounded.
mlir::Value emitRoundToPairs(Emitter &e, mlir::Value first, mlir::Value second);

/// A transposed view of a 2-D memref.
mlir::Value emitTransposed(Emitter &e, mlir::Value memref);

/// A view of a 2-D operand with dimensions `dims` (s and d in any order) as positions × depth.
mlir::Value emitPositions(Emitter &e, mlir::Value operand, attn::DimsAttr dims);

/// Converts `value` (scalar or vector) to the compute type.
mlir::Value emitToCompute(Emitter &e, mlir::Value value);
/// Converts `value` (scalar or vector) from the compute type to `elementType`.
mlir::Value emitFromCompute(Emitter &e, mlir::Value value, mlir::Type elementType);

/// Emits a run-time test of the inner stride of `memref` (omitted if static): `contiguous` receives a view with static
/// inner stride 1, `strided` is emitted for other strides.
void emitByInnerStride(Emitter &e, mlir::Value memref, llvm::function_ref<void(mlir::Value)> contiguous,
                       llvm::function_ref<void()> strided);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_PACK_H
