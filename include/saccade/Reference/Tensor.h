//===- Tensor.h - The values that the reference interpreter computes -*- C++ -*-===//
//
// A tensor is a shape and a row-major array of wide numbers: what its elements mean is given by the
// declared element type, what they hold is never narrower than f64 or i64.
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

/// One number. The element type says which member holds it: `real` for float types, `integer` for integers,
/// sign-extended (i1 is 0 or 1), and for index.
union Scalar {
  double real;
  int64_t integer;
};

/// A part of a tensor: for every dimension where it starts and how far it reaches.
struct Box {
  llvm::SmallVector<int64_t> offsets, sizes;

  static Box whole(llvm::ArrayRef<int64_t> shape);
  int64_t rank() const { return sizes.size(); }
  /// How many elements it has; 1 for rank 0.
  int64_t size() const;
};

/// A dense tensor, row-major; a scalar is a tensor of rank 0.
struct Tensor {
  mlir::Type elementType;
  llvm::SmallVector<int64_t> shape;
  std::vector<Scalar> values;

  Tensor() = default;
  /// All elements 0.
  Tensor(mlir::Type elementType, llvm::ArrayRef<int64_t> shape);
  /// `reals` must hold as many elements as `shape`; `elementType` is a float type. The numbers are taken as they are.
  static Tensor ofReals(mlir::Type elementType, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<double> reals);
  /// The same for integers and index.
  static Tensor ofIntegers(mlir::Type elementType, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> integers);

  bool isReal() const { return llvm::isa<mlir::FloatType>(elementType); }
  int64_t size() const { return values.size(); }
};

/// The elements of `boxes` of `tensor`, one after another, as a tensor of rank 1.
Tensor gather(const Tensor &tensor, llvm::ArrayRef<Box> boxes);

/// Where element `position` of what `gather` returns stands in the tensor it was gathered from.
llvm::SmallVector<int64_t> positionInTensor(llvm::ArrayRef<Box> boxes, int64_t position);

/// `value` rounded to nearest, ties to even, to what `type` can hold; f64 stays as it is.
double roundTo(mlir::Type type, double value);

/// The distance from 1 to the next number of `type`.
double epsilonOf(mlir::Type type);

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_TENSOR_H
