//===- DequantizedElement.h - An element of quantized weights -----*- C++ -*-===//
#ifndef SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_DEQUANTIZEDELEMENT_H
#define SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_DEQUANTIZEDELEMENT_H

#include "mlir/IR/Builders.h"
#include "saccade/Dialect/Attn/IR/BlockFormat.h"

namespace saccade::attn {

/// The scalar at (`row`, `column`) of the weights, computed in f32 and rounded to `type`.
mlir::Value emitDequantizedElement(mlir::OpBuilder &b, mlir::Location loc, const QuantizedWeights &weights,
                                   mlir::Value row, mlir::Value column, mlir::Type type);

} // namespace saccade::attn

#endif // SACCADE_LIB_DIALECT_ATTN_TRANSFORMS_DEQUANTIZEDELEMENT_H
