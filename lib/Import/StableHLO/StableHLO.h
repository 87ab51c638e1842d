//===- StableHLO.h - Translators of StableHLO ops by family -----*- C++ -*-===//
#ifndef SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H
#define SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H

#include "saccade/Import/Common/Elements.h"
#include "saccade/Import/Common/Frontend.h"
#include "saccade/Import/Common/OpaqueText.h"
#include "saccade/Import/Common/Shapes.h"

namespace saccade::stablehlo {

using frontend::FrontendOp;
using Values = llvm::SmallVectorImpl<mlir::Value>;

// Each function adds the ops of one family to the frontend.
void addControl(frontend::Frontend &frontend);
void addElementwise(frontend::Frontend &frontend);
void addGathers(frontend::Frontend &frontend);
void addMatmuls(frontend::Frontend &frontend);
void addReductions(frontend::Frontend &frontend);
void addShapes(frontend::Frontend &frontend);
void addSlices(frontend::Frontend &frontend);

/// Inlines all calls in `function` and the decompositions of composite ops. Emits an error for recursion.
mlir::LogicalResult inlineCalls(mlir::func::FuncOp function, mlir::SymbolTable &symbols);

/// The type of a value in linalg-on-tensors form, which is a ranked tensor.
mlir::RankedTensorType typeOf(mlir::Value tensor);
/// The declared element type of result `i`; null if it is not declared as a tensor.
mlir::Type declaredElement(FrontendOp &op, unsigned i = 0);

/// Emits an error unless the op has `count` operands and a result.
mlir::LogicalResult requireOperands(FrontendOp &op, unsigned count);
/// The integers of an attribute; emits an error if it is missing or does not have `count` elements.
mlir::FailureOr<llvm::SmallVector<int64_t>> requireIntegers(FrontendOp &op, llvm::StringRef attribute,
                                                            std::optional<size_t> count = std::nullopt);
/// Emits an error if a dimension is out of range for `rank` or occurs twice.
mlir::LogicalResult requireDims(FrontendOp &op, llvm::ArrayRef<int64_t> dims, int64_t rank, llvm::StringRef what);
/// Parses an attribute of kind `kind` that MLIR keeps as text.
mlir::FailureOr<frontend::OpaqueText> requireOpaque(FrontendOp &op, llvm::StringRef attribute, llvm::StringRef kind);
/// The elements of operand `i` as extents; emits an error if they are not computable from shapes.
mlir::FailureOr<frontend::Extents> requireExtents(FrontendOp &op, unsigned i, llvm::StringRef role);
/// Emits an error unless the tensors have one shape or are scalars.
mlir::LogicalResult requireSameShape(FrontendOp &op, mlir::ValueRange tensors);

/// Emits an error unless the region consists of supported scalar ops and has the given number of arguments and results.
mlir::LogicalResult requireScalarRegion(FrontendOp &op, mlir::Region &region, unsigned arguments, unsigned results);
/// Emits the ops of such a region on scalars.
llvm::SmallVector<mlir::Value> computeRegion(mlir::Region &region, mlir::OpBuilder &b, mlir::Location loc,
                                             mlir::ValueRange arguments);

} // namespace saccade::stablehlo

#endif // SACCADE_LIB_IMPORT_STABLEHLO_STABLEHLO_H
