/* The time of calls of a compiled library from C, for targets.py. */
#define _POSIX_C_SOURCE 200809L
#include "saccade-c/DLTensor.h"
#include <time.h>

/* Nanoseconds of a call of `function` on vectors of `n` doubles, the mean of `count` calls. */
double time_calls(const char *(*function)(const DLTensor *, DLTensor *), double *in, double *out, int64_t n,
                  int64_t count) {
  int64_t shape[1] = {n};
  DLTensor x = {in, {kDLCPU, 0}, 1, {kDLFloat, 64, 1}, shape, 0, 0}, y = x;
  y.data = out;
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int64_t i = 0; i < count; ++i)
    if (function(&x, &y))
      return -1;
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / (double)count;
}
