#define _GNU_SOURCE
#include "allocations.h"
#include <errno.h>
#include <stdlib.h>

static long allocations;
static void count(void) { __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED); }
long countAllocations(void) { return __atomic_load_n(&allocations, __ATOMIC_RELAXED); }

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void *calloc(size_t number, size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
void *realloc(void *old, size_t bytes) {
  count();
  return __libc_realloc(old, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
