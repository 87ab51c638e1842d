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

/// The captures of regions: tensors, and extents that are not static.
class RegionCaptures {
public:
  /// Captures `value` unless it is captured. Returns its place.
  int add(mlir::Value value);
  void addExtent(mlir::OpFoldResult extent);
  /// The value of an extent that was added. `inside` are the captures where it is used.
  mlir::Value extent(mlir::OpBuilder &b, mlir::Location loc, mlir::OpFoldResult extent, mlir::ValueRange inside) const;
  mlir::ValueRange getValues() const { return values; }

private:
  llvm::SmallVector<mlir::Value> values;
};

/// cap · tanh(score / cap); `score` itself if `cap` is not positive.
mlir::Value softcapped(mlir::OpBuilder &b, mlir::Location loc, mlir::Value score, double cap);

/// Returns a rank-4 tensor [b,h,s,d] unchanged and reshapes [b,s,h·d] to [b,s,h,d]. Emits an error that names `role`
/// for other tensors.
mlir::FailureOr<AttentionOperand> splitHeads(FrontendOp &op, mlir::Value tensor, int64_t heads, llvm::StringRef role);

/// Transposes the operand to [b,h,s,d] if necessary.
AttentionOperand toBHSD(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &operand);

/// Verifies the operand shapes as attn.attention would.
mlir::LogicalResult requireFit(FrontendOp &op, const AttentionOperand &query, const AttentionOperand &key,
                               const AttentionOperand &value);

/// Emits an error unless `given`, which is added to scores of `extents` [b,h,q,k], is [1 or b, 1 or h, q, k].
mlir::LogicalResult requireScoreBias(FrontendOp &op, mlir::Value given, mlir::ArrayRef<mlir::OpFoldResult> extents);
/// `score` + the element of such a bias at `position`.
mlir::Value addScoreBias(mlir::OpBuilder &b, mlir::Location loc, mlir::Value score, mlir::Value bias,
                         llvm::SmallVector<mlir::Value, 4> position);
/// The attribute `scale`, or 1 / √(head size) if it is 0 or missing.
double scaleOf(FrontendOp &op, const AttentionOperand &query);
/// Emits an error for an input that is given and not supported.
mlir::LogicalResult refuseInputs(FrontendOp &op, mlir::ArrayRef<std::pair<unsigned, llvm::StringRef>> inputs);

/// An attn.attention of these operands; the output has the dimensions of the query.
attn::AttentionFields makeFields(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &query,
                                 const AttentionOperand &key, const AttentionOperand &value, double scale);

/// scale · Q Kᵀ as [b,h,q,k] in the score type; several query heads may share a KV head.
mlir::Value emitScores(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &query, const AttentionOperand &key,
                       double scale);

/// Fills `region` with a block of arguments of `types` and of the captures, which yields the result of `body`.
void fillRegion(mlir::ImplicitLocOpBuilder &b, mlir::Region &region, mlir::ArrayRef<mlir::Type> types,
                mlir::ValueRange captures,
                llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::Block &)> body);

/// [b,s,h,d] as [b,s,h·d]
mlir::Value joinHeads(mlir::ImplicitLocOpBuilder &b, mlir::Value output);

/// `past`, [b,h,s,d], and then `operand` along the sequence, as [b,h,s,d]; a null `past` has no positions.
mlir::FailureOr<AttentionOperand> appendToCache(FrontendOp &op, mlir::Value past, const AttentionOperand &operand,
                                                llvm::StringRef role);

/// `input` with the first 2 · `half` elements of each head rotated: pairs (i, i + half), or (2i, 2i + 1) if
/// `isInterleaved`. `cosines` and `sines` have rows of `half` for each position, and broadcast to `input`.
mlir::Value rotateHeads(mlir::ImplicitLocOpBuilder &b, const AttentionOperand &input, mlir::Value cosines,
                        mlir::Value sines, int64_t half, bool isInterleaved);

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_ATTENTIONOPERANDS_H
