//===- AttentionFields.h - What an attn.attention consists of -----*- C++ -*-===//
#ifndef SACCADE_DIALECT_ATTN_IR_ATTENTIONFIELDS_H
#define SACCADE_DIALECT_ATTN_IR_ATTENTIONFIELDS_H

#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::attn {

/// The operands, attributes and result types of an attn.attention. What is null or empty is absent.
struct AttentionFields {
  AttentionFields() = default;
  /// Those of `op`, with results of `types`.
  AttentionFields(AttentionOp op, llvm::ArrayRef<mlir::Type> types);

  mlir::Value query, key, value;
  mlir::ValueRange captures;
  mlir::Value qLen, kvLen, cuSeqlensQ, cuSeqlensK, scaleValue;
  llvm::SmallVector<mlir::Value, 4> at;
  mlir::Value sink;
  DimsAttr queryDims, keyDims, valueDims, outputDims;
  mlir::FloatAttr scale;
  mlir::TypeAttr qkType;
  bool isPointwise = false; ///< the weight region is a normalizer
  bool isStickBreaking = false;
  ScheduleAttr schedule;
  SplitKVAttr splitKV;
  mlir::Type output, lse, lseLow, rowMax, argmax;
  llvm::ArrayRef<mlir::Type> tallies;

  /// Creates the op, with empty regions.
  AttentionOp create(mlir::OpBuilder &b, mlir::Location loc) const;
};

} // namespace saccade::attn

#endif // SACCADE_DIALECT_ATTN_IR_ATTENTIONFIELDS_H
