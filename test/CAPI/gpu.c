/* Compiles for GPUs and calls on tensors in GPU memory and on streams, with the fake driver of test/Support/FakeCUDA,
 * and without a driver.
 *
 * RUN: %c99 %s -o %t && env LD_LIBRARY_PATH=%build/test/Support/FakeCUDA %t
 * RUN: %t no-driver
 */
#include "check.h"
#include <dlfcn.h>

enum { queries = 2, keys = 3, width = 4 };

static SaccadeContext *context;

/* The functions of the driver and of the fake one that the test calls. */
static struct {
  int32_t (*init)(uint32_t flags);
  int32_t (*allocate)(uint64_t *memory, size_t bytes);
  int32_t (*copyToDevice)(uint64_t to, const void *from, size_t bytes);
  int32_t (*copyToHost)(void *to, uint64_t from, size_t bytes);
  void (*set)(const char *name, int64_t value);
  const char *(*log)(void);
} driver;

static void bind(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  CHECK(found != NULL);
  memcpy(function, &found, sizeof(found));
}

static void loadDriver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(library != NULL);
  bind(library, "cuInit", &driver.init);
  bind(library, "cuMemAlloc_v2", &driver.allocate);
  bind(library, "cuMemcpyHtoD_v2", &driver.copyToDevice);
  bind(library, "cuMemcpyDtoH_v2", &driver.copyToHost);
  bind(library, "double_set", &driver.set);
  bind(library, "double_log", &driver.log);
  CHECK(driver.init(0) == 0);
}

static SaccadeResult compileFor(const char *target, const char *prepack, SaccadeModule **module) {
  SaccadeOption options[2];
  options[0].name = "target";
  options[0].value = target;
  options[1].name = "prepack";
  options[1].value = prepack;
  return saccade_compile(context, attendText, strlen(attendText), "test.mlir", options, 2, module);
}

/* Equal keys, values 0, 1, 2, ...: every row of the output is the mean of the values, 4 5 6 7. */
typedef struct Problem {
  int64_t queryShape[3], keyShape[3];
  DLTensor tensors[4]; /* query, key, value, output */
  SaccadeValue values[4];
} Problem;

static void makeProblem(Problem *problem, int32_t device) {
  float contents[keys * width] = {0};
  int i, j;
  for (i = 0; i < 4; ++i) {
    int64_t *shape = i == 0 || i == 3 ? problem->queryShape : problem->keyShape;
    uint64_t memory = 0;
    shape[0] = 1;
    shape[1] = shape == problem->queryShape ? queries : keys;
    shape[2] = width;
    for (j = 0; i == 2 && j < keys * width; ++j)
      contents[j] = (float)j;
    CHECK(driver.allocate(&memory, sizeof(contents)) == 0 &&
          driver.copyToDevice(memory, contents, sizeof(contents)) == 0);
    problem->tensors[i] = floats((float *)(uintptr_t)memory, 3, shape, NULL);
    problem->tensors[i].device.device_type = kDLCUDA;
    problem->tensors[i].device.device_id = device;
    problem->values[i] = tensorValue(&problem->tensors[i]);
  }
}

static void checkOutput(const Problem *problem) {
  float output[queries * width] = {0};
  int i;
  CHECK(driver.copyToHost(output, (uint64_t)(uintptr_t)problem->tensors[3].data, sizeof(output)) == 0);
  for (i = 0; i < queries * width; ++i)
    CHECK(output[i] == (float)(4 + i % width));
}

static void callsRunOnTheirStream(const SaccadeFunction *attend) {
  Problem problem;
  int64_t sizes[3];
  const char *log;
  makeProblem(&problem, 0);
  CHECK(saccade_function_device_type(attend) == kDLCUDA);
  CHECK(saccade_function_result_shapes(attend, problem.values, 3, sizes) == SACCADE_OK);
  CHECK(sizes[0] == 1 && sizes[1] == queries && sizes[2] == width);
  driver.log();
  CHECK(saccade_function_call_on_stream(attend, problem.values, 4, (void *)0x70) == SACCADE_OK);
  CHECK_MESSAGE("");
  log = driver.log();
  CHECK(strstr(log, "cuLaunchKernel attend") && strstr(log, "stream=112") && !strstr(log, "stream=0\n"));
  checkOutput(&problem);
  CHECK(saccade_function_call_on_stream(attend, problem.values, 4, NULL) == SACCADE_OK);
  log = driver.log();
  CHECK(strstr(log, "stream=0\n") && !strstr(log, "stream=112"));
  /* The stream is that of one call only. */
  CHECK(saccade_function_call(attend, problem.values, 4) == SACCADE_OK);
  CHECK(!strstr(driver.log(), "stream=112"));
}

static void tensorsOnOtherDevicesAreRefused(const SaccadeFunction *attend) {
  Problem problem;
  makeProblem(&problem, 0);
  problem.tensors[1].device.device_type = kDLCPU;
  CHECK(saccade_function_call_on_stream(attend, problem.values, 4, NULL) == SACCADE_TYPE_ERROR);
  CHECK_MESSAGE("attend: argument 'k' (tensor<?x?x4xf32>): on cpu, expected cuda:0");
  makeProblem(&problem, 0);
  problem.tensors[3].device.device_id = 1;
  CHECK(saccade_function_call(attend, problem.values, 4) == SACCADE_TYPE_ERROR);
  CHECK_MESSAGE("attend: result 'output' (tensor<?x?x4xf32>): on cuda:1, expected cuda:0");
  makeProblem(&problem, 1);
  CHECK(saccade_function_call(attend, problem.values, 4) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("attend: a tensor is on cuda:1, but the NVIDIA driver reports 1 GPU");
  CHECK(saccade_function_call_on_stream(NULL, problem.values, 4, NULL) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the function or its values are NULL");
}

static void errorsOfTheDriverAreReported(const SaccadeFunction *attend) {
  Problem problem;
  makeProblem(&problem, 0);
  driver.set("cuLaunchKernel", 719);
  CHECK(saccade_function_call_on_stream(attend, problem.values, 4, NULL) == SACCADE_DEVICE_ERROR);
  CHECK(strstr(saccade_last_error(), "attend: launching kernel") == saccade_last_error());
  driver.set("cuLaunchKernel", 0);
  CHECK(saccade_function_call_on_stream(attend, problem.values, 4, NULL) == SACCADE_OK);
  checkOutput(&problem);
}

static void hostProgramsHaveNoStream(void) {
  SaccadeModule *module = compiled(context, attendText);
  const SaccadeFunction *attend = saccade_module_function(module, "attend");
  float data[4][keys * width] = {{0}};
  int64_t shape[3] = {1, keys, width};
  DLTensor tensors[4];
  SaccadeValue values[4];
  int i;
  for (i = 0; i < 4; ++i) {
    tensors[i] = floats(data[i], 3, shape, NULL);
    values[i] = tensorValue(&tensors[i]);
  }
  CHECK(saccade_function_device_type(attend) == kDLCPU);
  CHECK(saccade_function_call_on_stream(attend, values, 4, NULL) == SACCADE_OK);
  CHECK(saccade_function_call_on_stream(attend, values, 4, (void *)0x70) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("attend: found a stream, expected NULL for a program for the CPU");
  saccade_module_release(module);
}

/* The last target applies: the compiled functions are for its device. */
static void targetsOfGPUsAreSelected(void) {
  static const struct {
    const char *target;
    int32_t capability;
    const char *ptx;
  } rows[] = {{"sm_75", 80, ".target sm_75"},  {"sm_80", 75, ".target sm_80"}, {"cuda", 75, ".target sm_75"},
              {"cuda:0", 80, ".target sm_80"}, {"cuda", 90, ".target sm_80"},  {"cuda", 100, ".target sm_80"}};
  SaccadeOption options[2] = {{"target", "cuda:9"}, {"target", NULL}};
  char *text = NULL;
  size_t i;
  for (i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
    driver.set("capability", rows[i].capability);
    options[1].value = rows[i].target;
    CHECK(saccade_print_stage(context, attendText, strlen(attendText), "test.mlir", options, 2, "ptx", &text) ==
          SACCADE_OK);
    CHECK(strstr(text, rows[i].ptx) != NULL);
    saccade_text_free(text);
  }
  CHECK(saccade_print_stage(context, attendText, strlen(attendText), "test.mlir", options, 2, "llvm", &text) ==
        SACCADE_OK);
  CHECK(strstr(text, "nvptx64") != NULL);
  saccade_text_free(text);
  CHECK(saccade_print_stage(context, attendText, strlen(attendText), "test.mlir", options, 2, "asm", &text) ==
        SACCADE_VALUE_ERROR);
  options[1].value = "portable";
  CHECK(saccade_print_stage(context, attendText, strlen(attendText), "test.mlir", options, 2, "asm", &text) ==
        SACCADE_OK);
  saccade_text_free(text);
  driver.set("capability", 80);
}

static void otherTargetsAreRefused(void) {
  SaccadeModule *module = NULL;
  CHECK(compileFor("cuda:1", "false", &module) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("target 'cuda:1': refers to cuda:1, but the NVIDIA driver reports 1 GPU");
  CHECK(compileFor("cuda:", "false", &module) == SACCADE_VALUE_ERROR);
  CHECK(compileFor("sm_80", "true", &module) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("option 'prepack' has the value 'true': expected false for target 'sm_80'");
  driver.set("capability", 61);
  CHECK(compileFor("cuda", "false", &module) == SACCADE_UNSUPPORTED);
  CHECK_MESSAGE("target 'cuda': cuda:0 is sm_61, expected one that runs sm_75");
  driver.set("capability", 80);
  CHECK(module == NULL);
}

static void programsCompileWithoutADriver(void) {
  SaccadeModule *module = NULL;
  if (dlopen("libcuda.so.1", RTLD_LAZY)) /* this machine has one */
    return;
  CHECK(compileFor("cuda", "false", &module) == SACCADE_UNSUPPORTED);
  CHECK(strstr(saccade_last_error(), "target 'cuda': requires an NVIDIA GPU, but this machine has no driver") ==
        saccade_last_error());
  CHECK(compileFor("sm_80", "false", &module) == SACCADE_OK);
  saccade_module_release(module);
}

int main(int argc, char **argv) {
  SaccadeModule *module = NULL;
  const SaccadeFunction *attend;
  (void)argv;
  context = saccade_context_create();
  if (argc > 1) {
    programsCompileWithoutADriver();
  } else {
    loadDriver();
    CHECK(compileFor("sm_80", "false", &module) == SACCADE_OK);
    attend = saccade_module_function(module, "attend");
    callsRunOnTheirStream(attend);
    tensorsOnOtherDevicesAreRefused(attend);
    errorsOfTheDriverAreReported(attend);
    hostProgramsHaveNoStream();
    targetsOfGPUsAreSelected();
    otherTargetsAreRefused();
    saccade_module_release(module);
  }
  saccade_context_destroy(context);
  return 0;
}
