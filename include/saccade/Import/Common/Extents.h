//===- Extents.h - Arithmetic on extents ------------------------*- C++ -*-===//
//
// Extents are constants, or polynomials of the sizes of arguments and of other values of type index. Equal polynomials
// become one SSA value, so that two extents that are equal in every call are equal in the IR.
//
// A frontend op may have the attribute `extents`, what the exporter knows about its results: one affine map a result,
// with an expression a dimension. Symbol k of the maps is the k-th different name in `attn.dim_names` of the arguments;
// the constant −1 stands for an unknown extent. The shape function compares what is declared with what was computed.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_EXTENTS_H
#define SACCADE_IMPORT_COMMON_EXTENTS_H

#include "saccade/Import/Common/Frontend.h"

namespace saccade::frontend {

/// Extents; static ones are index attributes.
using Extents = llvm::SmallVector<mlir::OpFoldResult>;

/// Arithmetic on extents; folds static ones.
mlir::OpFoldResult addExtents(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult x, mlir::OpFoldResult y);
mlir::OpFoldResult subtractExtents(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult x, mlir::OpFoldResult y);
mlir::OpFoldResult multiplyExtents(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> factors);
/// The quotient rounded down, or that by 1 if `y` is not positive.
mlir::OpFoldResult divideExtents(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult x, mlir::OpFoldResult y);
/// The quotient of two products; common factors cancel.
mlir::OpFoldResult divideProducts(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> numerator,
                                  llvm::ArrayRef<mlir::OpFoldResult> denominator);
/// An extent of a pure op, or the result of an earlier op that computes the same.
mlir::OpFoldResult reuseExtent(mlir::ImplicitLocOpBuilder &b, mlir::OpFoldResult extent);
/// Whether two products are equal as polynomials.
bool areEqualProducts(llvm::ArrayRef<mlir::OpFoldResult> x, llvm::ArrayRef<mlir::OpFoldResult> y);
/// The product of the extents if all are static and it fits in 64 bits.
std::optional<int64_t> countElements(llvm::ArrayRef<mlir::OpFoldResult> extents);

/// The extents that `op` declares for a result; null where it declares none.
Extents declaredExtents(FrontendOp &op, unsigned result);
/// Attaches the extents that `op` declares for a result to `value`, and makes its static extents part of the type.
mlir::Value declareExtents(FrontendOp &op, unsigned result, mlir::Value value);
/// The extent of a dimension that was attached to a tensor; null if there is none.
mlir::OpFoldResult attachedExtent(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t dim);
/// Removes what `declareExtents` attached, and expands arithmetic on extents to `arith`.
void finishExtents(mlir::func::FuncOp function);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_EXTENTS_H
