/* Concurrent requests compile a program once; modules live as long as they are referenced.
 *
 * RUN: %c99 %s -o %t && %t
 */
#include "check.h"
#include <pthread.h>

enum { threads = 4, rounds = 200 };

static SaccadeContext *context;
static pthread_barrier_t together;

static void countsAre(uint64_t hits, uint64_t compilations, uint64_t modules) {
  SaccadeCacheInfo info = saccade_cache_info(context);
  if (info.hits != hits || info.compilations != compilations || info.modules != modules) {
    fprintf(stderr, "found %d hits, %d compilations, %d modules\n", (int)info.hits, (int)info.compilations,
            (int)info.modules);
    exit(1);
  }
}

/* x * by over a vector; every `by` makes a different program. */
static void makeProgram(char *text, size_t size, int by) {
  snprintf(text, size,
           "func.func @times(%%x: tensor<?xf32>) -> tensor<?xf32> {\n"
           "  %%by = arith.constant %d.0 : f32\n"
           "  %%c0 = arith.constant 0 : index\n"
           "  %%n = tensor.dim %%x, %%c0 : tensor<?xf32>\n"
           "  %%empty = tensor.empty(%%n) : tensor<?xf32>\n"
           "  %%y = linalg.map ins(%%x : tensor<?xf32>) outs(%%empty : tensor<?xf32>) (%%in: f32, %%init: f32) {\n"
           "    %%product = arith.mulf %%in, %%by : f32\n"
           "    linalg.yield %%product : f32\n"
           "  }\n"
           "  return %%y : tensor<?xf32>\n"
           "}\n",
           by);
}

static void callTimes(const SaccadeModule *module, int by) {
  float in[40], out[40];
  int64_t n = 1 + rand() % 40, i;
  DLTensor x = floats(in, 1, &n, NULL), y = floats(out, 1, &n, NULL);
  SaccadeValue values[2];
  for (i = 0; i < n; ++i)
    in[i] = (float)(i + by);
  values[0] = tensorValue(&x);
  values[1] = tensorValue(&y);
  CHECK(saccade_function_call(saccade_module_function(module, "times"), values, 2) == SACCADE_OK);
  for (i = 0; i < n; ++i)
    CHECK(out[i] == (float)by * in[i]);
}

/* All threads compile a shared program, then each thread its own. */
static void *compileAndCall(void *argument) {
  int own = *(int *)argument, round;
  char text[1024];
  SaccadeModule *shared, *mine;
  pthread_barrier_wait(&together);
  makeProgram(text, sizeof(text), 100);
  shared = compiled(context, text);
  makeProgram(text, sizeof(text), own);
  mine = compiled(context, text);
  pthread_barrier_wait(&together);
  for (round = 0; round < rounds; ++round) {
    callTimes(shared, 100);
    callTimes(mine, own);
  }
  saccade_module_release(shared);
  saccade_module_release(mine);
  return NULL;
}

static void threadsShareEqualPrograms(void) {
  pthread_t running[threads];
  int own[threads], i;
  pthread_barrier_init(&together, NULL, threads);
  for (i = 0; i < threads; ++i) {
    own[i] = i + 2;
    CHECK(pthread_create(&running[i], NULL, compileAndCall, &own[i]) == 0);
  }
  for (i = 0; i < threads; ++i)
    pthread_join(running[i], NULL);
  pthread_barrier_destroy(&together);
  countsAre(threads - 1, threads + 1, threads + 1);
}

static void countersAreRight(void) {
  SaccadeModule *first, *again, *other;
  char text[1024], twin[1024];
  SaccadeOption option = {"lint", "true"};
  makeProgram(text, sizeof(text), 2);
  makeProgram(twin, sizeof(twin), 3);
  countsAre(0, 0, 0);
  first = compiled(context, text);
  countsAre(0, 1, 1);
  again = compiled(context, text);
  countsAre(1, 1, 1);
  /* Another text or another option makes a different program. */
  other = compiled(context, twin);
  saccade_module_release(other);
  CHECK(saccade_compile(context, text, strlen(text), "test.mlir", &option, 1, &other) == SACCADE_OK);
  saccade_module_release(other);
  countsAre(1, 3, 3);
  /* Failures are not cached. */
  CHECK(saccade_compile(context, "?", 1, NULL, NULL, 0, &other) == SACCADE_COMPILE_ERROR);
  CHECK(saccade_compile(context, "?", 1, NULL, NULL, 0, &other) == SACCADE_COMPILE_ERROR);
  countsAre(1, 5, 3);
  saccade_cache_clear(context);
  countsAre(0, 0, 0);
  callTimes(first, 2);
  saccade_module_release(first);
  callTimes(again, 2);
  saccade_module_release(again);
}

/* Messages of calls contain locations, so the same text under another file name is a different program. */
static void messagesNameTheirFile(void) {
  static const char *const names[2] = {"first.mlir", "second.mlir"};
  static float memory[3][16];
  static int64_t rows[3][2] = {{2, 4}, {3, 4}, {2, 4}};
  const char *text = "func.func @attend(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>) -> tensor<?x4xf32> {\n"
                     "  %o = attn.attention %q[s,d], %k[s,d], %q[s,d]\n"
                     "    : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>\n"
                     "  return %o : tensor<?x4xf32>\n"
                     "}\n";
  DLTensor tensors[3];
  SaccadeValue values[3];
  int i;
  for (i = 0; i < 3; ++i) {
    tensors[i] = floats(memory[i], 2, rows[i], NULL);
    values[i] = tensorValue(&tensors[i]);
  }
  for (i = 0; i < 2; ++i) {
    SaccadeModule *module;
    CHECK(saccade_compile(context, text, strlen(text), names[i], NULL, 0, &module) == SACCADE_OK);
    CHECK(saccade_function_call(saccade_module_function(module, "attend"), values, 3) == SACCADE_VALUE_ERROR);
    CHECK(strstr(saccade_last_error(), names[i]) != NULL);
    saccade_module_release(module);
  }
  saccade_cache_clear(context);
}

static void modulesOutliveTheirContext(void) {
  char text[1024];
  SaccadeModule *module;
  const void *wrapper;
  makeProgram(text, sizeof(text), 7);
  module = compiled(context, text);
  saccade_context_destroy(context);
  saccade_module_retain(module);
  saccade_module_release(module);
  callTimes(module, 7);
  wrapper = saccade_function_tvm_ffi(saccade_module_function(module, "times"));
  CHECK(wrapper != NULL);
  saccade_module_release(module);
  saccade_module_release(NULL);
}

int main(void) {
  context = saccade_context_create();
  countersAreRight();
  messagesNameTheirFile();
  threadsShareEqualPrograms();
  modulesOutliveTheirContext();
  return 0;
}
