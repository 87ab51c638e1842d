//===- Onnx.h - Translators of ONNX operators by family ---------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_ONNX_ONNX_H
#define SACCADE_LIB_IMPORT_ONNX_ONNX_H

#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

namespace saccade::onnx {

using frontend::append;
using frontend::elementOf;
using frontend::FrontendOp;
using frontend::rankOf;
using frontend::requireBroadcast;
using frontend::requireEqual;
using frontend::resolveAxes;
using frontend::resolveAxis;
using Values = llvm::SmallVectorImpl<mlir::Value>;

/// The opset version of modules without the attribute `onnx.opset`.
inline constexpr int64_t newestOpset = 28;
/// The opset version of the module, or of the model function that the node was inlined from.
int64_t opsetOf(FrontendOp &op);

// Each function adds the operators of one family to the frontend.
void addAttention(frontend::Frontend &frontend);
void addCausalConvolution(frontend::Frontend &frontend);
void addControl(frontend::Frontend &frontend);
void addElementwise(frontend::Frontend &frontend);
void addFlexAttention(frontend::Frontend &frontend);
void addGathers(frontend::Frontend &frontend);
void addGroupQueryAttention(frontend::Frontend &frontend);
void addLinearAttention(frontend::Frontend &frontend);
void addMatmuls(frontend::Frontend &frontend);
void addMicrosoftAttention(frontend::Frontend &frontend);
void addMicrosoftNorms(frontend::Frontend &frontend);
void addMicrosoftQuantized(frontend::Frontend &frontend);
void addReductions(frontend::Frontend &frontend);
void addRotaryEmbedding(frontend::Frontend &frontend);
void addScatters(frontend::Frontend &frontend);
void addShapes(frontend::Frontend &frontend);
void addSlices(frontend::Frontend &frontend);

/// Emits an error unless the op has `minCount` to `maxCount` operands, without trailing missing ones, and none of the
/// first `minCount` is missing.
mlir::LogicalResult requireOperands(FrontendOp &op, unsigned minCount, unsigned maxCount);
/// The elements of integer operand `i` as extents; emits an error if they are not computable from shapes.
mlir::FailureOr<frontend::Extents> requireExtents(FrontendOp &op, unsigned i, llvm::StringRef role);
/// The only element of operand `i` as an extent.
mlir::FailureOr<mlir::OpFoldResult> requireExtent(FrontendOp &op, unsigned i, llvm::StringRef role);
/// The shape in operand `i`; emits an error for negative extents or more than `maxTensorElements` elements.
mlir::FailureOr<frontend::Extents> requireShape(FrontendOp &op, unsigned i, llvm::StringRef role);
/// The integers of operand `i`, or of the attribute `name` used by older opsets; nullopt if both are missing.
mlir::FailureOr<std::optional<llvm::SmallVector<int64_t>>> integersOf(FrontendOp &op, unsigned i, llvm::StringRef name);
/// The element type for a TensorProto.DataType; null if unsupported.
mlir::Type elementType(mlir::MLIRContext *context, int64_t dataType);

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_ONNX_H
