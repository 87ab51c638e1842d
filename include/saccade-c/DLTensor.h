/*===- DLTensor.h - DLPack's tensor -----------------------------------*- C -*-===
 *
 * Includes <dlpack/dlpack.h> if it is available; else declares the parts of it that calls use, with the same names and
 * layout.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_C_DLTENSOR_H
#define SACCADE_C_DLTENSOR_H

#include <stdint.h>

#if defined(DLPACK_DLPACK_H_) /* included already */
#define SACCADE_HAS_DLPACK
#elif defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define SACCADE_HAS_DLPACK
#endif
#endif

#if defined(SACCADE_HAS_DLPACK)
#if !defined(DLPACK_MAJOR_VERSION) || (DLPACK_MAJOR_VERSION == 1 && DLPACK_MINOR_VERSION < 1)
enum { kDLFloat8_e4m3fn = 10, kDLFloat8_e5m2 = 12 }; /* since DLPack 1.1 */
#endif
#else
#ifdef __cplusplus
extern "C" {
#endif
enum { kDLCPU = 1, kDLCUDA = 2 };
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6, kDLFloat8_e4m3fn = 10, kDLFloat8_e5m2 = 12 };
typedef struct {
  int32_t device_type; /* kDLCPU, ... */
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code; /* kDLFloat, ... */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;     /* in elements; NULL: contiguous, row-major */
  uint64_t byte_offset; /* from `data` to element 0 */
} DLTensor;
#ifdef __cplusplus
}
#endif
#endif

#endif /* SACCADE_C_DLTENSOR_H */
