//===- DequantizedMatmul.h - Matmuls with quantized weights -------*- C++ -*-===//
#ifndef SACCADE_LIB_CODEGEN_CPU_DEQUANTIZEDMATMUL_H
#define SACCADE_LIB_CODEGEN_CPU_DEQUANTIZEDMATMUL_H

#include "Product.h"
#include "QuantizedRows.h"

namespace saccade::cpu {

/// The most rows of an LHS whose products with weights are computed without packing: with more, packing costs less than
/// dequantizing the weights again for every eight rows. Products in tile registers cost less still.
inline constexpr int64_t maxDotRows = 16, maxDotRowsBeforeTiles = 8;

/// The rows of weights that have their scales in scratch memory.
inline constexpr int64_t dequantizedSlots = 4;

/// result[m][n] += Σ_k lhs[m][k] · weights[n][k] for at most `maxDotRows` rows, with sums in f32 and one rounding of a
/// result (memref of up to `maxColumns` columns). Weights exist in registers only. `lhs` and `result` have any strides.
/// `inInt8`: products of integers, for an LHS of attn.fake_quantize, if `multipliesInInt8`.
void emitDequantizedDot(Emitter &e, QuantizedRows &weights, mlir::Value lhs, mlir::Value result, int64_t maxColumns,
                        bool inInt8);
bool multipliesInInt8(const CPUTarget &target, attn::LoadDequantizedOp weights);

/// Packs weights as panels of a matmul, dequantized in parts that fit in L1.
class DequantizedPacking {
public:
  /// `element`: the type to which elements are rounded before they are packed.
  DequantizedPacking(Emitter &e, QuantizedRows &weights, const Product &product, mlir::Type element);

  /// Packs the columns [column, column + columns) and the elements [begin, begin + depth) along K. `begin` is a
  /// multiple of `part`.
  void pack(mlir::Value column, mlir::Value columns, mlir::Value begin, mlir::Value depth, mlir::Value panels);

  /// The elements of a row of the scratch memory: whole blocks of every format.
  static constexpr int64_t part = 256;
  /// What rows of the scratch memory are apart beyond that, so that they do not share sets of the L1 cache.
  static constexpr int64_t padding = 32;

private:
  Emitter &e;
  QuantizedRows &weights;
  const Product &product;
  mlir::Value tile; ///< scratch memory
};

/// Lowers an attn.load_dequantized that no matmul has taken over.
void emitLoadDequantized(Emitter &e, attn::LoadDequantizedOp op);

} // namespace saccade::cpu

#endif // SACCADE_LIB_CODEGEN_CPU_DEQUANTIZEDMATMUL_H
