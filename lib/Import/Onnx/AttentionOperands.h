//===- AttentionOperands.h - Queries, keys and values of ONNX's ops -*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_ONNX_ATTENTIONOPERANDS_H
#define SACCADE_LIB_IMPORT_ONNX_ATTENTIONOPERANDS_H

#include "Onnx.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade::onnx {

/// One operand with its dimensions named.
struct AttentionOperand {
  mlir::Value tensor;    // of four dimensions
  attn::DimsAttr dims;   // [b,h,s,d] or [b,s,h,d]
  frontend::Extents extents; // as the tensor has them

  mlir::OpFoldResult extent(attn::Dim dim) const { return extents[*dims.position(dim)]; }
};

attn::DimsAttr bhsdDims(mlir::MLIRContext *context);  // [b,h,s,d]
attn::DimsAttr bshdDims(mlir::MLIRContext *context); // [b,s,h,d]

/// A tensor [b,h,s,d] as it is, or [b,s,h·d] cut into `heads`. Refuses others, naming `role`.
mlir::FailureOr<AttentionOperand> splitHeads(FrontendOp &op, mlir::Value tensor, int64_t heads, llvm::StringRef role);

/// The same as [b,h,s,d].
AttentionOperand toBHSD(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &operand);

/// Refuses operands that attn.attention would.
mlir::LogicalResult requireFit(FrontendOp &op, const AttentionOperand &query, const AttentionOperand &key, const AttentionOperand &value);

/// scale · Q Kᵀ as [b,h,q,k] in the type of scores; key heads are shared by as many query heads as there are more.
mlir::Value emitScores(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &query, const AttentionOperand &key, double scale);

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_ATTENTIONOPERANDS_H
