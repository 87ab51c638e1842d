//===- Onnx.h - Translators of ONNX's operators, by family --------*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_ONNX_ONNX_H
#define SACCADE_LIB_IMPORT_ONNX_ONNX_H

#include "saccade/Import/Common/Door.h"
#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/Requirements.h"
#include "saccade/Import/Common/Shapes.h"

namespace saccade::onnx {

using door::DoorOp;
using door::elementOf;
using door::rankOf;
using door::requireBroadcast;
using door::requireEqual;
using door::resolveAxes;
using door::resolveAxis;
using Values = llvm::SmallVectorImpl<mlir::Value>;

/// The version of the default operator set where a module does not say.
inline constexpr int64_t newestOpset = 28;
/// The version of the default operator set that the program is written in, or the function of the model that the node
/// comes from.
int64_t opsetOf(DoorOp &op);

// Each adds the operators of a family to the door.
void addAttention(door::Door &door);
void addControl(door::Door &door);
void addElementwise(door::Door &door);
void addFlexAttention(door::Door &door);
void addGathers(door::Door &door);
void addLinearAttention(door::Door &door);
void addProducts(door::Door &door);
void addReductions(door::Door &door);
void addRotaryEmbedding(door::Door &door);
void addScatters(door::Door &door);
void addShapes(door::Door &door);
void addSlices(door::Door &door);

/// Refuses an op with fewer or more operands, missing ones at the end not counted, or with a missing one among the
/// first `least`.
mlir::LogicalResult requireOperands(DoorOp &op, unsigned least, unsigned most);
/// The elements of operand `i`, integers that a shape is made of; refuses a tensor that only the run time knows.
mlir::FailureOr<door::Extents> requireExtents(DoorOp &op, unsigned i, llvm::StringRef role);
/// The same where there must be one.
mlir::FailureOr<mlir::OpFoldResult> requireExtent(DoorOp &op, unsigned i, llvm::StringRef role);
/// The extents of a new tensor out of operand `i`; refuses negative ones, and more elements than any memory holds.
mlir::FailureOr<door::Extents> requireShape(DoorOp &op, unsigned i, llvm::StringRef role);
/// The integers of operand `i`, or of the attribute `name`, where older versions have them; nothing where both are
/// missing.
mlir::FailureOr<std::optional<llvm::SmallVector<int64_t>>> integersOf(DoorOp &op, unsigned i, llvm::StringRef name);
/// The element type that ONNX's number stands for (TensorProto.DataType); null for one that is not supported.
mlir::Type elementType(mlir::MLIRContext *context, int64_t dataType);

} // namespace saccade::onnx

#endif // SACCADE_LIB_IMPORT_ONNX_ONNX_H
