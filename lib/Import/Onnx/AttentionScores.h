//===- AttentionScores.h - Score and mask code of ONNX Attention -*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_ONNX_ATTENTIONSCORES_H
#define SACCADE_LIB_IMPORT_ONNX_ATTENTIONSCORES_H

#include "AttentionOperands.h"
#include "saccade/Dialect/Attn/IR/Position.h"

namespace saccade::onnx {

/// Scalar code for the mask and for modifications of the score. It is used in the regions of attn.attention and, if the
/// scores are a result, after a separate matmul. `inside` are the values of `getCaptures` in the region.
class AttentionScores {
public:
  /// Reads the inputs and attributes of `op`. `scores` is the shape of the scores, [b,h,q,k]; `past` the number of
  /// cached keys.
  mlir::LogicalResult init(FrontendOp &op, mlir::ArrayRef<mlir::OpFoldResult> scores, mlir::OpFoldResult past);

  mlir::ValueRange getCaptures() const { return captures.getValues(); }
  bool hasMask() const { return mask >= 0 || isCausal || leftWindow >= 0 || rightWindow >= 0; }
  bool changesScores() const { return softcap > 0 || isBias; }

  /// Whether query q attends to key k. Does not check nonpad_kv_seqlen.
  mlir::Value isVisible(mlir::OpBuilder &b, mlir::Location loc, const attn::Position &at,
                        mlir::ValueRange inside) const;
  mlir::Value softcapped(mlir::OpBuilder &b, mlir::Location loc, mlir::Value score) const;
  /// Adds the mask to the score if it is a floating-point bias.
  mlir::Value biased(mlir::OpBuilder &b, mlir::Location loc, mlir::Value score, const attn::Position &at,
                     mlir::ValueRange inside) const;

private:
  mlir::Value hasColumn(mlir::OpBuilder &b, mlir::Location loc, mlir::Value k, mlir::ValueRange inside) const;
  mlir::Value element(mlir::OpBuilder &b, mlir::Location loc, const attn::Position &at, mlir::ValueRange inside) const;
  /// The offset from query positions to key positions, to which the causal mask and windows are aligned.
  mlir::Value offset(mlir::OpBuilder &b, mlir::Location loc, const attn::Position &at, mlir::ValueRange inside) const;

  RegionCaptures captures;
  int mask = -1, lengths = -1; // indices into captures, or -1
  bool isBias = false;         // whether the mask is floating point
  bool broadcastsOneColumn = false;
  mlir::OpFoldResult queryLength, keyLength, pastLength, maskLength;
  bool isCausal = false;
  int64_t leftWindow = -1, rightWindow = -1;
  double softcap = 0;
};

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_ATTENTIONSCORES_H
