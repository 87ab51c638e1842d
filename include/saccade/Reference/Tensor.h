//===- Tensor.h - Values of the reference interpreter ----------------*- C++ -*-===//
//
// A tensor is a shape, a declared element type and a row-major array of f64 or i64 values.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_TENSOR_H
#define SACCADE_REFERENCE_TENSOR_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Types.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <vector>

namespace saccade::reference {

/// One element: `real` for float types; `integer` for index and for integers, sign-extended (i1 is 0 or 1).
union Scalar {
  double real;
  int64_t integer;
};

/// A hyperrectangular part of a tensor.
struct Box {
  llvm::SmallVector<int64_t> offsets, sizes;

  static Box whole(llvm::ArrayRef<int64_t> shape);
  int64_t rank() const { return sizes.size(); }
  /// Number of elements; 1 for rank 0.
  int64_t size() const;
};

/// A dense row-major tensor; a scalar has rank 0.
struct Tensor {
  mlir::Type elementType;
  llvm::SmallVector<int64_t> shape;
  std::vector<Scalar> values;

  Tensor() = default;
  /// All elements 0.
  Tensor(mlir::Type elementType, llvm::ArrayRef<int64_t> shape);
  /// From `reals`, one per element, without rounding. `elementType` is a float type.
  static Tensor ofReals(mlir::Type elementType, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<double> reals);
  /// From `integers`, one per element. `elementType` is an integer type or index.
  static Tensor ofIntegers(mlir::Type elementType, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> integers);

  bool isReal() const { return llvm::isa<mlir::FloatType>(elementType); }
  int64_t size() const { return values.size(); }
};

/// The elements of `boxes` of `tensor`, concatenated as a tensor of rank 1.
Tensor gather(const Tensor &tensor, llvm::ArrayRef<Box> boxes);

/// Index, in the source tensor, of element `position` of the result of `gather`.
llvm::SmallVector<int64_t> positionInTensor(llvm::ArrayRef<Box> boxes, int64_t position);

/// Rounds `value` to `type`, to nearest with ties to even; f64 is unchanged.
double roundTo(mlir::Type type, double value);

/// Machine epsilon of `type`: the distance from 1 to the next larger value.
double epsilonOf(mlir::Type type);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_TENSOR_H
