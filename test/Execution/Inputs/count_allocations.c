/* Calls a function of a shared library and prints the number of allocations of later calls, in any thread. Earlier
   calls warm up long enough for every thread to get work. usage: count_allocations LIBRARY FUNCTION TYPE SHAPE... with
   the shapes of inputs and outputs, such as 2x3x40x64 */
#include "allocations.h"
#include "saccade-c/DLTensor.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MaxTensors = 8, MaxDims = 6, WarmMilliseconds = 200, CountedCalls = 20 };

static int64_t parse(char *text, DLTensor *tensor, int64_t *shape) {
  int64_t elements = 1;
  for (char *next = text; tensor->ndim < MaxDims; next++) {
    elements *= shape[tensor->ndim++] = strtoll(next, &next, 10);
    if (*next != 'x')
      break;
  }
  tensor->shape = shape;
  return elements;
}

typedef const char *(*Entry)(DLTensor *, DLTensor *, DLTensor *, DLTensor *, DLTensor *, DLTensor *, DLTensor *,
                             DLTensor *);

int main(int argc, char **argv) {
  DLTensor tensors[MaxTensors] = {0};
  int64_t shapes[MaxTensors][MaxDims];
  void *library = argc > 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
  Entry entry = library ? (Entry)dlsym(library, argv[2]) : NULL;
  if (!entry || argc > 4 + MaxTensors) {
    fprintf(stderr, "%s\n", library ? "no such function, or too many tensors" : dlerror());
    return 2;
  }
  int isBfloat = strcmp(argv[3], "bf16") == 0;
  for (int i = 4; i < argc; i++) {
    DLTensor *tensor = &tensors[i - 4];
    int64_t elements = parse(argv[i], tensor, shapes[i - 4]);
    tensor->device.device_type = kDLCPU;
    tensor->dtype.code = isBfloat ? kDLBfloat : kDLFloat;
    tensor->dtype.bits = isBfloat ? 16 : 32;
    tensor->dtype.lanes = 1;
    tensor->data = calloc(elements, tensor->dtype.bits / 8);
  }
  long before = 0;
  int counted = 0;
  for (clock_t start = clock(); counted < CountedCalls;) {
    if (clock() - start < WarmMilliseconds * (CLOCKS_PER_SEC / 1000))
      before = countAllocations();
    else
      counted++;
    DLTensor *t = tensors;
    const char *message = entry(t, t + 1, t + 2, t + 3, t + 4, t + 5, t + 6, t + 7);
    if (message) {
      fprintf(stderr, "%s\n", message);
      return 1;
    }
  }
  printf("%ld allocations in %d calls\n", countAllocations() - before, counted);
  return 0;
}
