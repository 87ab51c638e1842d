/* The number of allocations of the process. Link allocations.c, which replaces malloc of glibc by counting versions. */
#ifndef SACCADE_EXAMPLES_DECODE_ALLOCATIONS_H
#define SACCADE_EXAMPLES_DECODE_ALLOCATIONS_H

#ifdef __cplusplus
extern "C"
#endif
    /* Calls of malloc, calloc, realloc and aligned allocations so far, in all threads. */
    long countAllocations(void);

#endif
