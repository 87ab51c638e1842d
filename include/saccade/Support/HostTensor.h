//===- HostTensor.h - Tensors in this process's memory ------------*- C++ -*-===//
//
// What drivers pass to a program: memory that is aligned for any vector, with a shape and strides.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_HOSTTENSOR_H
#define SACCADE_SUPPORT_HOSTTENSOR_H

#include "saccade/Support/ElementType.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include <cstdlib>
#include <memory>

namespace saccade {

/// A tensor that owns its memory, 64-byte aligned. Without dimensions it holds one element.
class HostTensor {
public:
  /// All elements 0, row-major (column-major where `columnMajor`). Fails where the memory cannot be had.
  static llvm::Expected<HostTensor> allocate(ElementType type, llvm::ArrayRef<int64_t> shape, bool columnMajor = false);

  /// Standard normal numbers (integers: 0 to 7, i1: 0 or 1); the same for the same seed on every machine.
  void fillRandom(uint64_t seed);
  void fill(double value);

  /// A row-major copy with elements of another type, rounded to nearest even.
  llvm::Expected<HostTensor> convertTo(ElementType type) const;
  /// Takes the bits of its 16-bit elements for those of `type`.
  void reinterpretAs(ElementType type) { elementType = type; }

  /// Calls with the address of every element, in row-major order of positions.
  void forEach(llvm::function_ref<void(char *element)> visit) const;

  ElementType type() const { return elementType; }
  llvm::ArrayRef<int64_t> shape() const { return extents; }
  llvm::ArrayRef<int64_t> strides() const { return elementStrides; } ///< in elements
  int64_t size() const { return count; }                    ///< elements
  int64_t bytes() const { return count * elementBytes(elementType); }
  char *data() const { return memory.get(); }
  bool isRowMajor() const;

private:
  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };
  ElementType elementType = ElementType::f32;
  llvm::SmallVector<int64_t, 4> extents, elementStrides;
  int64_t count = 0;
  std::unique_ptr<char, Free> memory;
};

} // namespace saccade

#endif // SACCADE_SUPPORT_HOSTTENSOR_H
