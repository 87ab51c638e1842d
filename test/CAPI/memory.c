/* A text for which there is no memory is refused, and the next call works.
 *
 * UNSUPPORTED: asan, tsan
 * RUN: %c99 %s -o %t && %t
 */
#include "check.h"

/* The sanitizers have a malloc of their own. */
extern void *__libc_malloc(size_t size);

/* Allocations of this size fail. No size is SIZE_MAX. */
static volatile size_t refused = (size_t)-1;
static volatile int failures = 0;

void *malloc(size_t size) {
  if (size != refused)
    return __libc_malloc(size);
  ++failures;
  return NULL;
}

int main(void) {
  SaccadeContext *context = saccade_context_create();
  char *text = NULL, *again = NULL, expected[100];
  size_t size;
  CHECK(saccade_print_stage(context, attendText, strlen(attendText), NULL, NULL, 0, "llvm", &text) == SACCADE_OK);
  size = strlen(text);
  snprintf(expected, sizeof(expected), "no memory for the text of %zu bytes", size);
  refused = size + 1;
  CHECK(saccade_print_stage(context, attendText, strlen(attendText), NULL, NULL, 0, "llvm", &again) ==
        SACCADE_OUT_OF_MEMORY);
  refused = (size_t)-1;
  CHECK_MESSAGE(expected);
  CHECK(again == NULL && failures == 1);
  CHECK(saccade_print_stage(context, attendText, strlen(attendText), NULL, NULL, 0, "llvm", &again) == SACCADE_OK);
  CHECK(strcmp(text, again) == 0);
  saccade_text_free(text);
  saccade_text_free(again);
  saccade_context_destroy(context);
  return 0;
}
