//===- BlockFormat.h - Blocks of quantized weights ----------------*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_IR_BLOCKFORMAT_H
#define SACCADE_DIALECT_ATTN_IR_BLOCKFORMAT_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// The sizes of the blocks of a matrix of quantized weights.
struct BlockTraits {
  int64_t elements;      ///< of a block
  int64_t bytes;         ///< of a block
  int64_t groupElements; ///< elements that share a scale
  bool hasScales;        ///< whether scales are an operand
};

/// The elements of a block of attn.fake_quantize. A block whose largest magnitude is below `fakeQuantizedLeast`
/// becomes 0.
inline constexpr int64_t fakeQuantizedBlock = 32;
inline constexpr double fakeQuantizedLeast = 0x1p-100;

/// The blocks of `format` with `bytes` bytes each. A format of GGUF has a fixed number of them.
BlockTraits blockTraits(BlockFormat format, int64_t bytes);

/// The operands of attn.dequantize and attn.load_dequantized.
struct QuantizedWeights {
  mlir::Value codes, scales, zeros; ///< null if there are none
  BlockFormat format;

  template <typename OpTy> static QuantizedWeights of(OpTy op) {
    return {op.getCodes(), op.getScales(), op.getZeros(), op.getFormat()};
  }
  BlockTraits traits() const {
    return blockTraits(format, mlir::cast<mlir::ShapedType>(codes.getType()).getDimSize(2));
  }
  int64_t blocks() const { return mlir::cast<mlir::ShapedType>(codes.getType()).getDimSize(1); }
  /// Whether zeros are packed like codes.
  bool hasPackedZeros() const { return zeros && mlir::getElementTypeOrSelf(zeros).isInteger(8); }
};

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_IR_BLOCKFORMAT_H
