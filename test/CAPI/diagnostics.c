/* The handler receives every diagnostic as the tools print it, before the call returns and on the caller's thread.
 *
 * RUN: %c99 %s -o %t && %t
 */
#include "check.h"
#include <pthread.h>

typedef struct {
  int calls;
  SaccadeSeverity severity;
  char text[4096];
  pthread_t thread;
} Seen;

static void remember(SaccadeSeverity severity, const char *text, void *user) {
  Seen *seen = (Seen *)user;
  ++seen->calls;
  seen->severity = severity;
  snprintf(seen->text, sizeof(seen->text), "%s", text);
  seen->thread = pthread_self();
}

static SaccadeResult compile(SaccadeContext *context, const char *text, int lint, SaccadeModule **module) {
  SaccadeOption option;
  option.name = "lint";
  option.value = lint ? "true" : "false";
  return saccade_compile(context, text, strlen(text), "folder/program.mlir", &option, 1, module);
}

int main(void) {
  Seen seen;
  SaccadeContext *context = saccade_context_create();
  SaccadeModule *module = NULL;
  const char *broken = "func.func @broken(%q: tensor<4xf32>) {\n  retrun\n}\n";
  /* 5 query heads over 2 KV heads: reported by the verifier. */
  const char *heads = "func.func @heads(%q: tensor<5x2x4xf32>, %k: tensor<2x2x4xf32>) -> tensor<5x2x4xf32> {\n"
                      "  %o = attn.attention %q[h,s,d], %k[h,s,d], %k[h,s,d]\n"
                      "      : (tensor<5x2x4xf32>, tensor<2x2x4xf32>, tensor<2x2x4xf32>) -> tensor<5x2x4xf32>\n"
                      "  return %o : tensor<5x2x4xf32>\n"
                      "}\n";
  /* 1/64 where 1/8 is usual: lint warns. */
  const char *odd = "func.func @odd(%q: tensor<2x2x64xf32>) -> tensor<2x2x64xf32> {\n"
                    "  %o = attn.attention %q[h,s,d], %q[h,s,d], %q[h,s,d] scale(0.015625)\n"
                    "      : (tensor<2x2x64xf32>, tensor<2x2x64xf32>, tensor<2x2x64xf32>) -> tensor<2x2x64xf32>\n"
                    "  return %o : tensor<2x2x64xf32>\n"
                    "}\n";
  memset(&seen, 0, sizeof(seen));
  saccade_context_set_diagnostic_handler(context, remember, &seen);

  CHECK(compile(context, broken, 0, &module) == SACCADE_COMPILE_ERROR && !module);
  CHECK(seen.calls == 1 && seen.severity == SACCADE_ERROR && pthread_equal(seen.thread, pthread_self()));
  CHECK(strcmp(seen.text,
               "folder/program.mlir:2:3: error: custom op 'retrun' is unknown (tried 'func.retrun' as well)\n"
               "  retrun\n"
               "  ^") == 0);
  CHECK_MESSAGE(seen.text);

  CHECK(compile(context, heads, 0, &module) == SACCADE_COMPILE_ERROR && !module);
  CHECK(seen.calls == 2 && seen.severity == SACCADE_ERROR);
  CHECK(strstr(seen.text, "folder/program.mlir:2:8: error: 'attn.attention' op query has 5 heads, expected a multiple "
                          "of the 2 KV heads\n") == seen.text);
  CHECK(strstr(seen.text, "see current operation") == NULL); /* the note with the generic form is dropped */

  /* Warnings come with the compilation and are not repeated on a cache hit. */
  CHECK(compile(context, odd, 1, &module) == SACCADE_OK && module);
  CHECK(seen.calls == 3 && seen.severity == SACCADE_WARNING);
  CHECK(strstr(seen.text, "folder/program.mlir:2:8: warning: ") == seen.text);
  CHECK_MESSAGE("");
  saccade_module_release(module);
  CHECK(compile(context, odd, 1, &module) == SACCADE_OK && seen.calls == 3);
  saccade_module_release(module);
  CHECK(compile(context, odd, 0, &module) == SACCADE_OK && seen.calls == 3);
  saccade_module_release(module);

  /* Without a name and a handler the message is the same. */
  saccade_context_set_diagnostic_handler(context, NULL, NULL);
  CHECK(saccade_compile(context, "}", 1, NULL, NULL, 0, &module) == SACCADE_COMPILE_ERROR);
  CHECK(seen.calls == 3);
  CHECK(strstr(saccade_last_error(), "program:1:1: error: ") == saccade_last_error());
  saccade_context_destroy(context);
  return 0;
}
