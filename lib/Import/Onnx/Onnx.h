//===- Onnx.h - Translators of ONNX's operators, by family --------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_ONNX_ONNX_H
#define SACCADE_LIB_IMPORT_ONNX_ONNX_H

#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

namespace saccade::onnx {

using frontend::FrontendOp;
using frontend::elementOf;
using frontend::rankOf;
using frontend::requireBroadcast;
using frontend::requireEqual;
using frontend::resolveAxes;
using frontend::resolveAxis;
using Values = llvm::SmallVectorImpl<mlir::Value>;

/// The version of the default operator set where a module does not say.
inline constexpr int64_t newestOpset = 28;
/// The version of the default operator set that the program is written in, or the function of the model that the node
/// comes from.
int64_t opsetOf(FrontendOp &op);

// Each adds the operators of a family to the frontend.
void addAttention(frontend::Frontend &frontend);
void addControl(frontend::Frontend &frontend);
void addElementwise(frontend::Frontend &frontend);
void addFlexAttention(frontend::Frontend &frontend);
void addGathers(frontend::Frontend &frontend);
void addLinearAttention(frontend::Frontend &frontend);
void addMatmuls(frontend::Frontend &frontend);
void addReductions(frontend::Frontend &frontend);
void addRotaryEmbedding(frontend::Frontend &frontend);
void addScatters(frontend::Frontend &frontend);
void addShapes(frontend::Frontend &frontend);
void addSlices(frontend::Frontend &frontend);

/// Refuses an op with fewer or more operands, missing ones at the end not counted, or with a missing one among the
/// first `least`.
mlir::LogicalResult requireOperands(FrontendOp &op, unsigned least, unsigned most);
/// The elements of operand `i`, integers that a shape is made of; refuses a tensor that only the run time knows.
mlir::FailureOr<frontend::Extents> requireExtents(FrontendOp &op, unsigned i, llvm::StringRef role);
/// The same where there must be one.
mlir::FailureOr<mlir::OpFoldResult> requireExtent(FrontendOp &op, unsigned i, llvm::StringRef role);
/// The extents of a new tensor out of operand `i`; refuses negative ones, and more elements than any memory holds.
mlir::FailureOr<frontend::Extents> requireShape(FrontendOp &op, unsigned i, llvm::StringRef role);
/// The integers of operand `i`, or of the attribute `name`, where older versions have them; nothing where both are
/// missing.
mlir::FailureOr<std::optional<llvm::SmallVector<int64_t>>> integersOf(FrontendOp &op, unsigned i, llvm::StringRef name);
/// The element type that ONNX's number stands for (TensorProto.DataType); null for one that is not supported.
mlir::Type elementType(mlir::MLIRContext *context, int64_t dataType);

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_ONNX_H
