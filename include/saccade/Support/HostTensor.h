//===- HostTensor.h - Tensors in host memory ----------------------*- C++ -*-===//
//
// The tensors that the tools pass to a program: aligned host memory with a shape and strides.
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

/// A tensor that owns its memory, aligned to 64 bytes. A tensor of rank 0 has one element.
class HostTensor {
public:
  /// Allocates a tensor of zeros, row-major or column-major. Fails if memory cannot be allocated.
  static llvm::Expected<HostTensor> allocate(ElementType type, llvm::ArrayRef<int64_t> shape, bool columnMajor = false);

  /// Fills with standard normal values (integers: 0 to 7, i1: 0 or 1), reproducible from the seed on every machine.
  void fillRandom(uint64_t seed);
  void fill(double value);

  /// A row-major copy with elements converted to `type`, rounded to nearest even.
  llvm::Expected<HostTensor> convertTo(ElementType type) const;
  /// Reinterprets the bits of its elements as `type`, of the same size.
  void reinterpretAs(ElementType type) { elementType = type; }

  /// Calls `visit` with the address of every element, in row-major order of indices.
  void forEach(llvm::function_ref<void(char *element)> visit) const;

  ElementType type() const { return elementType; }
  llvm::ArrayRef<int64_t> shape() const { return extents; }
  llvm::ArrayRef<int64_t> strides() const { return elementStrides; } ///< in elements
  int64_t size() const { return count; }                             ///< in elements
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
