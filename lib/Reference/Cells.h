//===- Cells.h - Lazily computed elements of a value --------------*- C++ -*-===//
//
// Storage of the interpreter's values. It tracks which elements are known, so that values are computed on demand;
// memory pages of unused elements are never allocated.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_REFERENCE_CELLS_H
#define SACCADE_REFERENCE_CELLS_H

#include "mlir/Support/LLVM.h"
#include "saccade/Reference/Tensor.h"
#include <cstdlib>
#include <memory>
#include <optional>

namespace saccade::reference {

llvm::SmallVector<int64_t> rowMajorStrides(llvm::ArrayRef<int64_t> shape);

/// Calls `body` for every index of `box`, last dimension fastest.
template <typename Body> void forEachPoint(const Box &box, Body body) {
  if (box.size() == 0)
    return;
  llvm::SmallVector<int64_t> index(box.offsets);
  while (true) {
    body(llvm::ArrayRef<int64_t>(index));
    int64_t dim = box.rank() - 1;
    for (; dim >= 0 && ++index[dim] == box.offsets[dim] + box.sizes[dim]; --dim)
      index[dim] = box.offsets[dim];
    if (dim < 0)
      return;
  }
}

inline int64_t linearIndex(llvm::ArrayRef<int64_t> index, llvm::ArrayRef<int64_t> strides) {
  int64_t linear = 0;
  for (size_t dim = 0; dim < index.size(); ++dim)
    linear += index[dim] * strides[dim];
  return linear;
}

/// Calls `body(first, length)` for every row of `box` along the last dimension of a row-major tensor.
template <typename Body> void forEachRow(Box box, llvm::ArrayRef<int64_t> strides, Body body) {
  if (box.rank() == 0)
    return body(int64_t(0), int64_t(1));
  int64_t length = box.sizes.back();
  if (length == 0)
    return;
  box.sizes.back() = 1;
  forEachPoint(box, [&](llvm::ArrayRef<int64_t> index) { body(linearIndex(index, strides), length); });
}

/// Intersection of two boxes; nullopt if empty.
std::optional<Box> intersect(const Box &a, const Box &b);

class Cells {
public:
  /// Fails if the tensor does not fit into memory.
  static mlir::FailureOr<std::shared_ptr<Cells>> create(mlir::Type elementType, llvm::ArrayRef<int64_t> shape);
  static std::shared_ptr<Cells> ofTensor(const Tensor &tensor);
  static std::shared_ptr<Cells> ofScalar(mlir::Type type, Scalar value);

  mlir::Type getElementType() const { return elementType; }
  llvm::ArrayRef<int64_t> getShape() const { return shape; }
  llvm::ArrayRef<int64_t> getStrides() const { return strides; }
  int64_t size() const { return count; }
  Scalar *data() { return values.get(); }
  const Scalar *data() const { return values.get(); }
  /// The elements as doubles.
  double *reals() { return &values->real; }
  Scalar &at(llvm::ArrayRef<int64_t> index) { return values.get()[linearIndex(index, strides)]; }

  bool isKnown(int64_t linear) const { return allKnown || known.get()[linear]; }
  /// Bounding box of the unknown elements of `box`; nullopt if all are known.
  std::optional<Box> unknownPart(const Box &box) const;
  void setKnown(const Box &box);

private:
  Cells() = default;
  template <typename T> struct Free {
    void operator()(T *memory) const { std::free(memory); }
  };
  mlir::Type elementType;
  llvm::SmallVector<int64_t> shape, strides;
  int64_t count = 1;
  bool allKnown = false;
  // calloc, not std::vector: the operating system allocates zero pages on first access.
  std::unique_ptr<Scalar, Free<Scalar>> values;
  std::unique_ptr<bool, Free<bool>> known;
};

} // namespace saccade::reference

#endif // SACCADE_REFERENCE_CELLS_H
