//===- Structured.h - Structured ops on tensors -----------------*- C++ -*-===//
//
// Builds elementwise ops, reductions, contractions and gathers as `linalg` ops. Broadcasting uses indexing maps, never
// copies. Dynamic extents that must match are assumed equal, which the shape function of the entry point checks; an
// extent that is 1 only at run time does not broadcast.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_STRUCTURED_H
#define SACCADE_IMPORT_COMMON_STRUCTURED_H

#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "saccade/Import/Common/Extents.h"
#include "saccade/Import/Common/Scalars.h"

namespace saccade::frontend {

/// The extents of a ranked tensor.
Extents extentsOf(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor);

/// The type of a tensor with these extents.
mlir::RankedTensorType typeOf(llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::Type element);

/// A tensor filled with `value`: a scalar, or a constant of type `element`.
mlir::Value splat(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::Value value);
mlir::Value splat(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::Type element,
                  double value);

/// The shape to which NumPy's rules broadcast `shapes`: aligned at the last dimension, extent 1 broadcasts. Fails if
/// two static extents differ.
mlir::FailureOr<Extents> broadcastExtents(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<Extents> shapes);

/// Applies `body` to the elements of `inputs`, which must broadcast by NumPy's rules; `body` returns a scalar of type
/// `element`. If all elements of the inputs are known, the elements of the result are known, too.
mlir::Value elementwise(mlir::ImplicitLocOpBuilder &b, mlir::ValueRange inputs, mlir::Type element, ScalarBuilder body);

/// Like `elementwise` over explicit extents. `body` takes one index per dimension, then one element of each input.
mlir::Value generate(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::ValueRange inputs,
                     mlir::Type element, ScalarBuilder body);

/// Casts elements to `element`, see `convert`.
mlir::Value castElements(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, mlir::Type element);

/// Reduces `dims` by `combine`, (element, accumulator) -> accumulator, starting from `start`. Reduced dimensions are
/// dropped, or kept with extent 1 if `keepDims` is set.
mlir::Value reduce(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims, bool keepDims,
                   mlir::TypedAttr start, ScalarBuilder combine);

/// Σ lhs · rhs accumulated in `element` over a loop nest with `extents`. The maps lead from the loops to the dimensions
/// of lhs, rhs and the result; loops absent from the result are reduced. Operand dimensions of extent 1 may map to the
/// constant 0. Emits a named `linalg` op if one matches.
mlir::Value contract(mlir::ImplicitLocOpBuilder &b, mlir::Value lhs, mlir::Value rhs, mlir::AffineMap lhsMap,
                     mlir::AffineMap rhsMap, mlir::AffineMap resultMap, llvm::ArrayRef<mlir::OpFoldResult> extents,
                     mlir::Type element);

/// Matmul by NumPy's rules: leading dimensions are batches and broadcast; a 1-D operand is a row (lhs) or column (rhs).
/// 16-bit floats are accumulated in f32. The caller must check the shapes.
mlir::Value matmul(mlir::ImplicitLocOpBuilder &b, mlir::Value lhs, mlir::Value rhs);

/// The softmax along dimension `dim`.
mlir::Value softmax(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t dim);

/// Normalizes an index: negative values count from the end of `extent`. Out-of-range values stay out of range.
mlir::Value normalizeIndex(mlir::OpBuilder &b, mlir::Location loc, mlir::Value index, mlir::Value extent);
/// Normalizes an index and clamps it to [0, extent − 1].
mlir::Value clampIndexToExtent(mlir::OpBuilder &b, mlir::Location loc, mlir::Value index, mlir::Value extent);

/// table[..., indices[...], ...]: replaces dimension `axis` of the table by the dimensions of `indices`. Indices are
/// normalized with `clampIndexToExtent`.
mlir::Value gather(mlir::ImplicitLocOpBuilder &b, mlir::Value table, mlir::Value indices, int64_t axis);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_STRUCTURED_H
