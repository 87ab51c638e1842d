//===- Arguments.h - Arguments for tests of calls -----------------*- C++ -*-===//
#ifndef SACCADE_TEST_UNIT_RUNTIME_ARGUMENTS_H
#define SACCADE_TEST_UNIT_RUNTIME_ARGUMENTS_H

#include "saccade-c/DLTensor.h"
#include "saccade/Runtime/Entry.h"
#include <vector>

using Words = std::vector<int64_t>;

inline constexpr int64_t matrixExtents[] = {-1, 4};

/// tensor<?x4xf32>
constexpr SaccadeValueType floats(const char *name) {
  return {name, "tensor<?x4xf32>", matrixExtents, 2, kDLFloat, 32, 0};
}

/// A tensor that owns its memory, which the tests modify.
struct Matrix {
  explicit Matrix(int64_t rows, int64_t columns = 4) : memory(4096), shape{rows, columns}, strides{columns, 1} {
    tensor.data = memory.data() + 1024;
    tensor.device.device_type = decltype(tensor.device.device_type)(kDLCPU);
    tensor.ndim = 2;
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape;
    tensor.strides = strides;
  }
  Matrix(const Matrix &) = delete;
  int64_t address() const { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data)); }

  std::vector<float> memory;
  int64_t shape[2], strides[2];
  DLTensor tensor = {};
};

inline SaccadeArgument wrap(DLTensor &tensor) {
  SaccadeArgument argument = {};
  argument.kind = SaccadeArgumentDLTensor;
  argument.value.pointer = &tensor;
  return argument;
}
inline SaccadeArgument integer(int64_t value, int32_t kind = SaccadeArgumentInteger) {
  SaccadeArgument argument = {};
  argument.kind = kind;
  argument.value.integer = value;
  return argument;
}
inline SaccadeArgument real(double value) {
  SaccadeArgument argument = {};
  argument.kind = SaccadeArgumentFloat;
  argument.value.real = value;
  return argument;
}

#endif // SACCADE_TEST_UNIT_RUNTIME_ARGUMENTS_H
