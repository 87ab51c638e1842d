//===- MicrosoftScores.h - Scores of com.microsoft's attention --*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_ONNX_MICROSOFTSCORES_H
#define SACCADE_LIB_IMPORT_ONNX_MICROSOFTSCORES_H

#include "AttentionOperands.h"
#include "saccade/Dialect/Attn/IR/Position.h"

namespace saccade::onnx {

/// What com.microsoft's Attention and MultiHeadAttention add to scores, and which keys they hide. A padded key is not
/// hidden: a constant is added to its score, so that a query whose keys are all padded still has finite weights.
class MicrosoftScores {
public:
  /// `scores` is their shape, [b,h,q,k]; `past` the number of cached keys.
  MicrosoftScores(llvm::ArrayRef<mlir::OpFoldResult> scores, mlir::OpFoldResult past)
      : extents(scores), pastLength(past) {}

  /// `given`, which may be null, tells the padded keys: [b] lengths, [2·b] ends and then starts, [3·b + 2] lengths and
  /// what is not read, or [b,k] or [b,q,k], where elements up to 0 are padding.
  mlir::LogicalResult readPadding(FrontendOp &op, mlir::Value given);
  /// `given`, which may be null, is added: [1 or b, 1 or h, q, k].
  mlir::LogicalResult readBias(FrontendOp &op, mlir::Value given);
  /// Reads the attribute `unidirectional`. With `seesAll` the last query sees keys behind it too.
  void readCausal(FrontendOp &op, bool seesAll);

  /// Fills the regions of `made`, whose captures are `getCaptures`.
  void fillRegions(FrontendOp &op, attn::AttentionOp made) const;
  /// scale · Q Kᵀ with all that is added, and the lowest number where a key is hidden.
  mlir::Value emit(FrontendOp &op, const AttentionOperand &query, const AttentionOperand &key, double scale) const;
  mlir::ValueRange getCaptures() const { return captures.getValues(); }

private:
  enum class Padding { None, Lengths, Ranges, Elements }; // `Ranges` may be lengths alone

  /// Whether keys behind the query are hidden by a number that is added, as padding is. Where the scores of all other
  /// keys may be as low, a query has equal weights for all keys, hidden ones too.
  bool addsCausal() const { return isCausal && (bias >= 0 || (mask >= 0 && padded <= -1e30)); }

  mlir::Value sum(mlir::OpBuilder &b, mlir::Location loc, mlir::Value score, const attn::Position &at,
                  mlir::ValueRange inside) const;
  mlir::Value isPadding(mlir::OpBuilder &b, mlir::Location loc, const attn::Position &at,
                        mlir::ValueRange inside) const;
  mlir::Value isVisible(mlir::OpBuilder &b, mlir::Location loc, const attn::Position &at,
                        mlir::ValueRange inside) const;

  llvm::SmallVector<mlir::OpFoldResult, 4> extents;
  mlir::OpFoldResult pastLength, maskLength;
  RegionCaptures captures;
  Padding padding = Padding::None;
  double padded = -10000;   ///< is added to the score of a padded key
  int mask = -1, bias = -1; ///< indices into captures, or -1
  bool isCausal = false, seesAllAtLast = false;
};

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_MICROSOFTSCORES_H
