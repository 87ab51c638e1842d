/* Bytecode, deep nesting, a caller with a small stack, the child of a fork, and unchanged signal handlers and masks.
 *
 * RUN: saccade-opt %S/../Tools/Inputs/two-entries.mlir --emit-bytecode -o %t.mlirbc
 * RUN: %c99 %s -o %t && %t %t.mlirbc
 */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Overflows a stack of the default size. */
enum { numBrackets = 200000 };

static SaccadeContext *context;

static void bytecodeIsAccepted(const char *path) {
  static char bytes[1 << 16];
  FILE *file = fopen(path, "rb");
  size_t size;
  SaccadeModule *module = NULL;
  CHECK(file != NULL);
  size = fread(bytes, 1, sizeof(bytes), file);
  fclose(file);
  CHECK(saccade_compile(context, bytes, size, path, NULL, 0, &module) == SACCADE_OK);
  CHECK(saccade_module_num_functions(module) == 2);
  saccade_module_release(module);
  /* Truncated bytecode is refused. */
  CHECK(saccade_compile(context, bytes, size / 2, path, NULL, 0, &module) == SACCADE_COMPILE_ERROR);
}

static void callOnce(const SaccadeModule *module) {
  float in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
  int64_t shape[2] = {2, 3};
  DLTensor x = floats(in, 2, shape, NULL), y = floats(out, 2, shape, NULL);
  SaccadeValue values[4];
  values[0] = tensorValue(&x);
  values[1] = scalarValue(0, 3);
  values[2] = scalarValue(0, 0);
  values[3] = tensorValue(&y);
  CHECK(saccade_function_call(saccade_module_function(module, "scale"), values, 4) == SACCADE_OK);
  CHECK(out[5] == 18);
}

/* `depth` nested empty loops. */
static char *nested(int depth) {
  char *text = malloc(200 + (size_t)depth * 60), *end = text;
  int i;
  end += sprintf(end, "func.func @deep(%%n: index, %%x: tensor<2xf32>) -> tensor<2xf32> {\n");
  for (i = 0; i < depth; ++i)
    end += sprintf(end, "scf.for %%i%d = %%n to %%n step %%n {\n", i);
  for (i = 0; i < depth; ++i)
    end += sprintf(end, "}\n");
  sprintf(end, "return %%x : tensor<2xf32>\n}\n");
  return text;
}

static void *compileOnSmallStack(void *ignored) {
  char *deep = nested(2000), *brackets = malloc(numBrackets), *text = NULL;
  SaccadeModule *module = compiled(context, scaleText);
  (void)ignored;
  callOnce(module);
  saccade_module_release(module);
  /* The call returns, with or without success. */
  (void)saccade_compile(context, deep, strlen(deep), "deep.mlir", NULL, 0, &module);
  saccade_module_release(module);
  memset(brackets, '[', numBrackets);
  memcpy(brackets, "#deep = ", 8);
  CHECK(saccade_print_stage(context, brackets, numBrackets, NULL, NULL, 0, "llvm", &text) == SACCADE_COMPILE_ERROR);
  free(deep);
  free(brackets);
  return NULL;
}

static void aSmallStackIsEnough(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, 64 << 10) == 0);
  CHECK(pthread_create(&thread, &attributes, compileOnSmallStack, NULL) == 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
}

/* The size of the stack depends on that of the text. */
static void textsOfAnySizeAreCompiled(void) {
  enum { largest = 80 << 10 };
  static const char program[] = "func.func @same(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }";
  char *text = malloc(largest + sizeof(program)), *printed = NULL;
  int comment;
  for (comment = 1 << 10; comment <= largest; comment += comment < (40 << 10) ? 1 << 10 : 8 << 10) {
    memset(text, ' ', comment);
    memcpy(text, "//", 2);
    text[comment - 1] = '\n';
    memcpy(text + comment, program, sizeof(program));
    CHECK(saccade_print_stage(context, text, strlen(text), NULL, NULL, 0, "transforms", &printed) == SACCADE_OK);
    saccade_text_free(printed);
  }
  free(text);
}

static void worksAfterFork(void) {
  SaccadeModule *before = compiled(context, scaleText);
  int status = 0;
  pid_t child;
  callOnce(before);
  child = fork();
  if (child == 0) {
    char other[4096];
    SaccadeModule *module;
    alarm(60);
    snprintf(other, sizeof(other), "// another program\n%s", scaleText);
    callOnce(before);
    module = compiled(context, other);
    callOnce(module);
    module = compiled(context, scaleText);
    callOnce(module);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  saccade_module_release(before);
}

static void myHandler(int signal) { _exit(signal); }

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGINT, SIGTERM};
enum { numSignals = sizeof(signals) / sizeof(signals[0]) };

static void installHandlers(void) {
  int i;
  for (i = 0; i < numSignals; ++i)
    CHECK(signal(signals[i], myHandler) != SIG_ERR);
}

static void handlersAreTheHosts(void) {
  struct sigaction action;
  int i;
  for (i = 0; i < numSignals; ++i) {
    CHECK(sigaction(signals[i], NULL, &action) == 0);
    CHECK(action.sa_handler == myHandler);
  }
}

/* Calls that compile, call and fail, under several masks of blocked signals. */
static void masksAreTheHosts(void) {
  int masks, i;
  for (masks = 0; masks < 4; ++masks) {
    sigset_t mine, found;
    char other[4096], *text = NULL;
    SaccadeModule *module = NULL;
    sigemptyset(&mine);
    if (masks & 1)
      sigaddset(&mine, SIGINT);
    if (masks & 2)
      sigaddset(&mine, SIGUSR1);
    CHECK(pthread_sigmask(SIG_SETMASK, &mine, NULL) == 0);
    snprintf(other, sizeof(other), "// masks %d\n%s", masks, scaleText);
    module = compiled(context, other);
    callOnce(module);
    saccade_module_release(module);
    CHECK(saccade_compile(context, "func", 4, NULL, NULL, 0, &module) == SACCADE_COMPILE_ERROR);
    CHECK(saccade_print_stage(context, other, strlen(other), NULL, NULL, 0, "transforms", &text) == SACCADE_OK);
    saccade_text_free(text);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &found) == 0);
    for (i = 0; i < numSignals; ++i)
      CHECK(sigismember(&found, signals[i]) == sigismember(&mine, signals[i]));
    CHECK(sigismember(&found, SIGUSR1) == ((masks & 2) != 0));
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  installHandlers();
  context = saccade_context_create();
  bytecodeIsAccepted(argv[1]);
  aSmallStackIsEnough();
  textsOfAnySizeAreCompiled();
  worksAfterFork();
  handlersAreTheHosts();
  masksAreTheHosts();
  saccade_context_destroy(context);
  return 0;
}
