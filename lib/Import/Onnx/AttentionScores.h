//===- AttentionScores.h - What ONNX's Attention does to a score --*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_ONNX_ATTENTIONSCORES_H
#define SACCADE_LIB_IMPORT_ONNX_ATTENTIONSCORES_H

#include "Onnx.h"

namespace saccade::onnx {

/// Which keys a query sees, and what becomes of a score. The same code fills the regions of attn.attention and a
/// product beside it, where scores are asked for as a result: `at` is (b, h, q, k), `captures` are values of
/// `getCaptures`.
class AttentionScores {
public:
  /// Reads the inputs and attributes of `op`. `queryLength` is the extent of queries, `pastLength` that of past keys.
  mlir::LogicalResult init(FrontendOp &op, mlir::OpFoldResult queryLength, mlir::OpFoldResult pastLength);

  mlir::ValueRange getCaptures() const { return captures; }
  bool hasMask() const { return mask >= 0 || isCausal || left >= 0 || right >= 0; }
  bool changesScores() const { return softcap > 0 || isBias; }

  /// Whether query q sees key k. Lengths are not asked.
  mlir::Value isVisible(mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange at, mlir::ValueRange captures) const;
  mlir::Value softcapped(mlir::OpBuilder &b, mlir::Location loc, mlir::Value score) const;
  /// The bias of the mask added, where it is one of numbers.
  mlir::Value biased(mlir::OpBuilder &b, mlir::Location loc, mlir::Value score, mlir::ValueRange at,
                     mlir::ValueRange captures) const;

private:
  mlir::Value element(mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange at, mlir::ValueRange captures) const;
  /// The position of a query among the keys, without its own: what the causal mask and windows are aligned by.
  mlir::Value offset(mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange at, mlir::ValueRange captures) const;
  mlir::Value extent(mlir::OpBuilder &b, mlir::Location loc, mlir::OpFoldResult size, mlir::ValueRange captures) const;
  /// A dynamic size becomes a capture; its number stands for it.
  void capture(mlir::OpFoldResult size);

  mlir::SmallVector<mlir::Value> captures;
  int mask = -1, lengths = -1; // numbers of captures
  bool isBias = false;         // the mask has numbers, else conditions
  mlir::OpFoldResult queryLength, pastLength, maskLength;
  bool isCausal = false;
  int64_t left = -1, right = -1;
  double softcap = 0;
};

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_ATTENTIONSCORES_H
