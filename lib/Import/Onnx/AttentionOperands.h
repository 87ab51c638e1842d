//===- AttentionOperands.h - Operands of ONNX attention ops -----*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_ONNX_ATTENTIONOPERANDS_H
#define SACCADE_LIB_IMPORT_ONNX_ATTENTIONOPERANDS_H

#include "Onnx.h"
#include "saccade/Dialect/Attn/IR/AttentionFields.h"

namespace saccade::onnx {

/// An attention operand with named dimensions.
struct AttentionOperand {
  mlir::Value tensor;        // of rank 4
  attn::DimsAttr dims;       // [b,h,s,d] or [b,s,h,d]
  frontend::Extents extents; // of `tensor`

  mlir::OpFoldResult extent(attn::Dim dim) const { return extents[*dims.position(dim)]; }
};

attn::DimsAttr bhsdDims(mlir::MLIRContext *context); // [b,h,s,d]
attn::DimsAttr bshdDims(mlir::MLIRContext *context); // [b,s,h,d]

/// Returns a rank-4 tensor [b,h,s,d] unchanged and reshapes [b,s,h·d] to [b,s,h,d]. Emits an error that names `role`
/// for other tensors.
mlir::FailureOr<AttentionOperand> splitHeads(FrontendOp &op, mlir::Value tensor, int64_t heads, llvm::StringRef role);

/// Transposes the operand to [b,h,s,d] if necessary.
AttentionOperand toBHSD(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &operand);

/// Verifies the operand shapes as attn.attention would.
mlir::LogicalResult requireFit(FrontendOp &op, const AttentionOperand &query, const AttentionOperand &key,
                               const AttentionOperand &value);

/// An attn.attention of these operands; the output has the dimensions of the query.
attn::AttentionFields makeFields(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &query,
                                 const AttentionOperand &key, const AttentionOperand &value, double scale);

/// scale · Q Kᵀ as [b,h,q,k] in the score type; several query heads may share a KV head.
mlir::Value emitScores(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &query, const AttentionOperand &key,
                       double scale);

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_ATTENTIONOPERANDS_H
