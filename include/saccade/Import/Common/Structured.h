//===- Structured.h - Structured ops on tensors, built in the common form -*- C++ -*-===//
//
// Elementwise ops, reductions, contractions and gathers as `linalg` ops. Broadcasting is by indexing maps, never by
// copies. Extents may be dynamic; two dynamic ones that meet are taken to be equal, which the shape function of the
// entry checks, and one that is 1 only at run time does not broadcast.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_IMPORT_COMMON_STRUCTURED_H
#define SACCADE_IMPORT_COMMON_STRUCTURED_H

#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "saccade/Import/Common/Scalars.h"

namespace saccade::frontend {

/// An extent is an index attribute where it is static.
using Extents = llvm::SmallVector<mlir::OpFoldResult>;

/// The extents of a ranked tensor.
Extents extentsOf(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor);

/// The type of a tensor with these extents.
mlir::RankedTensorType typeOf(llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::Type element);

/// A tensor of one number; `value` a scalar, or a constant of `element`.
mlir::Value splat(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::Value value);
mlir::Value splat(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::Type element,
                  double value);

/// The extents that NumPy's rules broadcast shapes to: aligned at the last dimension, 1 stretches. Fails where two
/// static extents do not fit.
mlir::FailureOr<Extents> broadcastExtents(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<Extents> shapes);

/// Applies `body` to the elements of `inputs`, broadcast by NumPy's rules (which must have been checked); `body` gives
/// a scalar of `element`. Where all elements of inputs are known one by one, so are those of the result.
mlir::Value elementwise(mlir::ImplicitLocOpBuilder &b, mlir::ValueRange inputs, mlir::Type element, ScalarBuilder body);

/// The same over given extents, with the positions in front of the elements: `body` gets one index for each dimension,
/// then one element of each input.
mlir::Value generate(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<mlir::OpFoldResult> extents, mlir::ValueRange inputs,
                     mlir::Type element, ScalarBuilder body);

/// Elements converted to `element`, see `convert`.
mlir::Value castElements(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, mlir::Type element);

/// Reduces `dims` by `combine`, (element, sum so far) -> sum, from `start`. Reduced dimensions are dropped, or stay
/// with extent 1 where `keep`.
mlir::Value reduce(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, llvm::ArrayRef<int64_t> dims, bool keepDims,
                   mlir::TypedAttr start, ScalarBuilder combine);

/// Σ lhs · rhs, in `element`, over `extents` of a loop nest. Each map leads from the loops to the dimensions of lhs,
/// rhs and the result; loops that the result does not have are summed. Operands may have dimensions of extent 1 at
/// constant 0 in the map. Becomes a named op of `linalg` where there is one.
mlir::Value contract(mlir::ImplicitLocOpBuilder &b, mlir::Value lhs, mlir::Value rhs, mlir::AffineMap lhsMap,
                     mlir::AffineMap rhsMap, mlir::AffineMap resultMap, llvm::ArrayRef<mlir::OpFoldResult> extents,
                     mlir::Type element);

/// The product of matrices by NumPy's rules: dimensions in front of the last two are batches and broadcast, an operand
/// of one dimension is a row (lhs) or a column (rhs). Sums of 16-bit numbers are in f32. Shapes must have been checked.
mlir::Value matmul(mlir::ImplicitLocOpBuilder &b, mlir::Value lhs, mlir::Value rhs);

/// The softmax along dimension `dim`.
mlir::Value softmax(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, int64_t dim);

/// An integer as an index from the front of a dimension of `extent`: a negative one counts from the end. What is
/// outside stays outside.
mlir::Value normalizeIndex(mlir::OpBuilder &b, mlir::Location loc, mlir::Value index, mlir::Value extent);
/// Where in a dimension of `extent` an integer points to: a negative one counts from the end, and what is still outside
/// is the nearest end.
mlir::Value clampIndexToExtent(mlir::OpBuilder &b, mlir::Location loc, mlir::Value index, mlir::Value extent);

/// table[..., indices[...], ...]: the dimension `axis` of the table is replaced by those of `indices`, see
/// `clampIndexToExtent`.
mlir::Value gather(mlir::ImplicitLocOpBuilder &b, mlir::Value table, mlir::Value indices, int64_t axis);

} // namespace saccade::frontend

#endif // SACCADE_IMPORT_COMMON_STRUCTURED_H
