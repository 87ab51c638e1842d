//===- StableHLO.h - Translators of StableHLO's ops, by family -----*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H
#define SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H

#include "saccade/Import/Common/Door.h"
#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/OpaqueText.h"
#include "saccade/Import/Common/Shapes.h"

namespace saccade::stablehlo {

using door::DoorOp;
using Values = llvm::SmallVectorImpl<mlir::Value>;

// Each adds the ops of a family to the door.
void addControl(door::Door &door);
void addElementwise(door::Door &door);
void addGathers(door::Door &door);
void addProducts(door::Door &door);
void addReductions(door::Door &door);
void addShapes(door::Door &door);
void addSlices(door::Door &door);

/// Puts the bodies of the functions that `function` calls in place of the calls, and those of the decompositions of
/// composite ops in theirs. Refuses functions that call each other in circles.
mlir::LogicalResult inlineCalls(mlir::func::FuncOp function, mlir::SymbolTable &symbols);

/// A value of the common form is a ranked tensor.
mlir::RankedTensorType typeOf(mlir::Value tensor);
/// The element type that result `i` is declared with; null where it is declared as something else than a tensor.
mlir::Type declaredElement(DoorOp &op, unsigned i = 0);

/// Refuses an op with another number of operands.
mlir::LogicalResult requireOperands(DoorOp &op, unsigned count);
/// The integers of an attribute, `count` of them; refuses an op that lacks it.
mlir::FailureOr<llvm::SmallVector<int64_t>> requireIntegers(DoorOp &op, llvm::StringRef attribute,
                                                            std::optional<size_t> count = std::nullopt);
/// Refuses dimensions that a tensor of `rank` does not have, and those that come twice.
mlir::LogicalResult requireDims(DoorOp &op, llvm::ArrayRef<int64_t> dims, int64_t rank, llvm::StringRef what);
/// The lists of numbers of an attribute that MLIR keeps as text, of the kind `kind`.
mlir::FailureOr<door::OpaqueText> requireOpaque(DoorOp &op, llvm::StringRef attribute, llvm::StringRef kind);
/// The elements of operand `i` as extents; refuses what only the run time knows.
mlir::FailureOr<door::Extents> requireExtents(DoorOp &op, unsigned i, llvm::StringRef role);
/// Refuses extents that an operand cannot have together with others: tensors of one shape, or single numbers.
mlir::LogicalResult requireSameShape(DoorOp &op, mlir::ValueRange tensors);

/// Refuses a region that is not made of ops on elements, and one of another number of arguments or results.
mlir::LogicalResult requireScalarRegion(DoorOp &op, mlir::Region &region, unsigned arguments, unsigned results);
/// What such a region makes of scalars.
llvm::SmallVector<mlir::Value> computeRegion(mlir::Region &region, mlir::OpBuilder &b, mlir::Location loc,
                                             mlir::ValueRange arguments);

} // namespace saccade::stablehlo

#endif // SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H
