/*===- check.h - Helpers of the C tests ------------------------------*- C -*-===*/
#ifndef CHECK_H
#define CHECK_H

#include "saccade-c/saccade.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the test if `condition` is false. */
#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: failed: %s\n  last message: %s\n", __FILE__, __LINE__, #condition,                       \
              saccade_last_error());                                                                                   \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* Ends the test if the last message differs from `expected`. */
#define CHECK_MESSAGE(expected)                                                                                        \
  do {                                                                                                                 \
    if (strcmp(saccade_last_error(), expected) != 0) {                                                                 \
      fprintf(stderr, "%s:%d:\n  found    %s\n  expected %s\n", __FILE__, __LINE__, saccade_last_error(), expected);   \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* x * by, or its negative if `negate` is set. */
static const char *const scaleText =
    "func.func @scale(%x: tensor<?x?xf32>, %by: f32, %negate: i1) -> tensor<?x?xf32> {\n"
    "  %c0 = arith.constant 0 : index\n"
    "  %c1 = arith.constant 1 : index\n"
    "  %rows = tensor.dim %x, %c0 : tensor<?x?xf32>\n"
    "  %columns = tensor.dim %x, %c1 : tensor<?x?xf32>\n"
    "  %empty = tensor.empty(%rows, %columns) : tensor<?x?xf32>\n"
    "  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],\n"
    "                       iterator_types = [\"parallel\", \"parallel\"]}\n"
    "      ins(%x : tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) {\n"
    "  ^bb0(%in: f32, %out: f32):\n"
    "    %product = arith.mulf %in, %by : f32\n"
    "    %minus = arith.negf %product : f32\n"
    "    %chosen = arith.select %negate, %minus, %product : f32\n"
    "    linalg.yield %chosen : f32\n"
    "  } -> tensor<?x?xf32>\n"
    "  return %y : tensor<?x?xf32>\n"
    "}\n";

/* Attention with head dimension 4; with equal keys every row is the mean of the values. */
static const char *const attendText =
    "func.func @attend(%q: tensor<?x?x4xf32>, %k: tensor<?x?x4xf32>, %v: tensor<?x?x4xf32>) -> tensor<?x?x4xf32> {\n"
    "  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d]\n"
    "      : (tensor<?x?x4xf32>, tensor<?x?x4xf32>, tensor<?x?x4xf32>) -> tensor<?x?x4xf32>\n"
    "  return %o : tensor<?x?x4xf32>\n"
    "}\n";

/* A tensor of floats in host memory; NULL strides mean contiguous. */
static inline DLTensor floats(float *data, int32_t rank, int64_t *shape, int64_t *strides) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = rank;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  tensor.strides = strides;
  return tensor;
}

static inline SaccadeValue tensorValue(const DLTensor *tensor) {
  SaccadeValue value = {NULL, 0, 0};
  value.tensor = tensor;
  return value;
}

static inline SaccadeValue scalarValue(int64_t integer, double real) {
  SaccadeValue value = {NULL, 0, 0};
  value.integer = integer;
  value.real = real;
  return value;
}

/* Compiles a program without options; ends the test on failure. */
static inline SaccadeModule *compiled(SaccadeContext *context, const char *text) {
  SaccadeModule *module = NULL;
  CHECK(saccade_compile(context, text, strlen(text), "test.mlir", NULL, 0, &module) == SACCADE_OK);
  CHECK_MESSAGE("");
  CHECK(module != NULL);
  return module;
}

#endif /* CHECK_H */
