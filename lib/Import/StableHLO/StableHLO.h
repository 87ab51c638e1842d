//===- StableHLO.h - Translators of StableHLO's ops, by family -----*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H
#define SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H

#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/OpaqueText.h"
#include "saccade/Import/Common/Shapes.h"

namespace saccade::stablehlo {

using frontend::FrontendOp;
using Values = llvm::SmallVectorImpl<mlir::Value>;

// Each adds the ops of a family to the frontend.
void addControl(frontend::Frontend &frontend);
void addElementwise(frontend::Frontend &frontend);
void addGathers(frontend::Frontend &frontend);
void addMatmuls(frontend::Frontend &frontend);
void addReductions(frontend::Frontend &frontend);
void addShapes(frontend::Frontend &frontend);
void addSlices(frontend::Frontend &frontend);

/// Puts the bodies of the functions that `function` calls in place of the calls, and those of the decompositions of
/// composite ops in theirs. Refuses functions that call each other in circles.
mlir::LogicalResult inlineCalls(mlir::func::FuncOp function, mlir::SymbolTable &symbols);

/// A value of the common form is a ranked tensor.
mlir::RankedTensorType typeOf(mlir::Value tensor);
/// The element type that result `i` is declared with; null where it is declared as something else than a tensor.
mlir::Type declaredElement(FrontendOp &op, unsigned i = 0);

/// Refuses an op with another number of operands.
mlir::LogicalResult requireOperands(FrontendOp &op, unsigned count);
/// The integers of an attribute, `count` of them; refuses an op that lacks it.
mlir::FailureOr<llvm::SmallVector<int64_t>> requireIntegers(FrontendOp &op, llvm::StringRef attribute,
                                                            std::optional<size_t> count = std::nullopt);
/// Refuses dimensions that a tensor of `rank` does not have, and those that come twice.
mlir::LogicalResult requireDims(FrontendOp &op, llvm::ArrayRef<int64_t> dims, int64_t rank, llvm::StringRef what);
/// The lists of numbers of an attribute that MLIR keeps as text, of the kind `kind`.
mlir::FailureOr<frontend::OpaqueText> requireOpaque(FrontendOp &op, llvm::StringRef attribute, llvm::StringRef kind);
/// The elements of operand `i` as extents; refuses what only the run time knows.
mlir::FailureOr<frontend::Extents> requireExtents(FrontendOp &op, unsigned i, llvm::StringRef role);
/// Refuses extents that an operand cannot have together with others: tensors of one shape, or single numbers.
mlir::LogicalResult requireSameShape(FrontendOp &op, mlir::ValueRange tensors);

/// Refuses a region that is not made of ops on elements, and one of another number of arguments or results.
mlir::LogicalResult requireScalarRegion(FrontendOp &op, mlir::Region &region, unsigned arguments, unsigned results);
/// What such a region makes of scalars.
llvm::SmallVector<mlir::Value> computeRegion(mlir::Region &region, mlir::OpBuilder &b, mlir::Location loc,
                                             mlir::ValueRange arguments);

} // namespace saccade::stablehlo

#endif // SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H
