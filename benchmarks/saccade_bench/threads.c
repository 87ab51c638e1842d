/* A task of known serial cost for the runtime: eight items of `iterations` dependent multiply-adds each. */
#include "saccade/Runtime/Runtime.h"

enum { Items = 8 };

struct Work {
  int64_t iterations;
  double results[Items];
};

static void task(void *context, int64_t begin, int64_t end, void *scratch) {
  struct Work *work = context;
  (void)scratch;
  for (int64_t item = begin; item < end; ++item) {
    double value = (double)item;
    for (int64_t i = 0; i < work->iterations; ++i)
      value = value * 0.999 + 0.5;
    work->results[item] = value;
  }
}

double kernel(int64_t iterations) {
  struct Work work = {iterations, {0}};
  saccade_parallel_for(task, &work, Items, 4096);
  double sum = 0;
  for (int i = 0; i < Items; ++i)
    sum += work.results[i];
  return sum;
}
