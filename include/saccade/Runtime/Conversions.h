/*===- Conversions.h - Conversions that compiled code may call ---------*- C -*-===
 *
 * Names and calling convention are those of the compiler's run-time library.
 *
 *===----------------------------------------------------------------------===*/
#ifndef SACCADE_RUNTIME_CONVERSIONS_H
#define SACCADE_RUNTIME_CONVERSIONS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Round to nearest even; a NaN stays a NaN. */
__bf16 __truncsfbf2(float value);
__bf16 __truncdfbf2(double value);
_Float16 __truncsfhf2(float value);
_Float16 __truncdfhf2(double value);
float __extendhfsf2(_Float16 value);

#ifdef __cplusplus
}
#endif
#endif /* SACCADE_RUNTIME_CONVERSIONS_H */
