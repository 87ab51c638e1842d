/* Looks up, describes and calls functions, with scalars and tensors of any strides and offsets.
 *
 * RUN: %c99 %s -o %t && %t
 */
#include "check.h"
#include "saccade/Runtime/Entry.h"

static void unknownFunctionsAreReported(const SaccadeModule *module) {
  CHECK(!saccade_module_function(module, "nosuch"));
  CHECK_MESSAGE("no function 'nosuch'; the module has: scale, attend");
  CHECK(!saccade_module_function(module, NULL));
  CHECK_MESSAGE("the name of the function is NULL");
  CHECK(!saccade_module_function_at(module, 2));
  CHECK_MESSAGE("no function 2; the number of functions of the module is 2");
  CHECK(saccade_module_function_at(module, 1) != NULL);
  CHECK_MESSAGE("");
}

static void describesItself(const SaccadeFunction *scale) {
  SaccadeValueInfo x = saccade_function_value(scale, 0), by = saccade_function_value(scale, 1);
  SaccadeValueInfo negate = saccade_function_value(scale, 2), result = saccade_function_value(scale, 3);
  CHECK(strcmp(saccade_function_name(scale), "scale") == 0);
  CHECK(saccade_function_num_inputs(scale) == 3 && saccade_function_num_results(scale) == 1);
  CHECK(strcmp(x.name, "x") == 0 && strcmp(x.type, "tensor<?x?xf32>") == 0);
  CHECK(x.rank == 2 && x.extents[0] == -1 && x.extents[1] == -1);
  CHECK(x.dtype.code == kDLFloat && x.dtype.bits == 32 && x.dtype.lanes == 1);
  CHECK(strcmp(by.name, "by") == 0 && strcmp(by.type, "f32") == 0 && by.rank == -1);
  CHECK(strcmp(negate.type, "i1") == 0 && negate.rank == -1 && negate.dtype.code == kDLBool);
  CHECK(result.rank == 2 && strcmp(result.type, "tensor<?x?xf32>") == 0);
}

static void takesCompactTensorsAndScalars(const SaccadeFunction *scale) {
  float in[6] = {0, 1, 2, 3, 4, 5}, out[6];
  int64_t shape[2] = {2, 3}, sizes[2] = {0, 0};
  DLTensor x = floats(in, 2, shape, NULL), y = floats(out, 2, shape, NULL);
  SaccadeValue values[4];
  int negate, i;
  values[0] = tensorValue(&x);
  values[3] = tensorValue(&y);
  for (negate = 0; negate < 2; ++negate) {
    values[1] = scalarValue(0, 2.5);
    values[2] = scalarValue(negate, 0);
    CHECK(saccade_function_result_shapes(scale, values, 3, sizes) == SACCADE_OK);
    CHECK(sizes[0] == 2 && sizes[1] == 3);
    CHECK(saccade_function_call(scale, values, 4) == SACCADE_OK);
    CHECK_MESSAGE("");
    for (i = 0; i < 6; ++i)
      CHECK(out[i] == (negate ? -2.5f : 2.5f) * in[i]);
  }
}

static void takesAnyStridesAndOffsets(const SaccadeFunction *scale) {
  /* A transposed input with an offset of one element, and a result with a column stride of 2. */
  float in[7] = {-1, 0, 1, 2, 3, 4, 5}, out[12];
  int64_t shape[2] = {2, 3}, transposed[2] = {1, 2}, sparse[2] = {6, 2};
  DLTensor x = floats(in, 2, shape, transposed), y = floats(out, 2, shape, sparse);
  SaccadeValue values[4];
  int i, j;
  x.byte_offset = sizeof(float);
  for (i = 0; i < 12; ++i)
    out[i] = -7;
  values[0] = tensorValue(&x);
  values[1] = scalarValue(0, 10);
  values[2] = scalarValue(0, 0);
  values[3] = tensorValue(&y);
  CHECK(saccade_function_call(scale, values, 4) == SACCADE_OK);
  for (i = 0; i < 2; ++i)
    for (j = 0; j < 3; ++j) {
      CHECK(out[6 * i + 2 * j] == 10 * in[1 + i + 2 * j]);
      CHECK(out[6 * i + 2 * j + 1] == -7);
    }
}

static void stridesOfDimensionsOfOneElementMeanNothing(const SaccadeFunction *scale) {
  float in[3] = {1, 2, 3}, out[3];
  int64_t shape[2] = {1, 3}, odd[2] = {-12345, 1};
  DLTensor x = floats(in, 2, shape, odd), y = floats(out, 2, shape, odd);
  SaccadeValue values[4];
  values[0] = tensorValue(&x);
  values[1] = scalarValue(0, 1);
  values[2] = scalarValue(0, 0);
  values[3] = tensorValue(&y);
  CHECK(saccade_function_call(scale, values, 4) == SACCADE_OK);
  CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3);
}

static void emptyTensorsNeedNoMemory(const SaccadeFunction *scale) {
  int64_t shape[2] = {0, 3};
  DLTensor x = floats(NULL, 2, shape, NULL), y = floats(NULL, 2, shape, NULL);
  SaccadeValue values[4];
  values[0] = tensorValue(&x);
  values[1] = scalarValue(0, 1);
  values[2] = scalarValue(0, 0);
  values[3] = tensorValue(&y);
  CHECK(saccade_function_call(scale, values, 4) == SACCADE_OK);
}

static void attendsToTheMean(const SaccadeFunction *attend) {
  float q[8], k[12], v[12], o[8];
  int64_t two[3] = {1, 2, 4}, three[3] = {1, 3, 4}, sizes[3];
  DLTensor query = floats(q, 3, two, NULL), key = floats(k, 3, three, NULL), value = floats(v, 3, three, NULL);
  DLTensor output = floats(o, 3, two, NULL);
  SaccadeValue values[4];
  int i;
  for (i = 0; i < 12; ++i) {
    k[i] = 0;
    v[i] = (float)i;
  }
  for (i = 0; i < 8; ++i)
    q[i] = 1;
  values[0] = tensorValue(&query);
  values[1] = tensorValue(&key);
  values[2] = tensorValue(&value);
  values[3] = tensorValue(&output);
  CHECK(saccade_function_result_shapes(attend, values, 3, sizes) == SACCADE_OK);
  CHECK(sizes[0] == 1 && sizes[1] == 2 && sizes[2] == 4);
  CHECK(saccade_function_call(attend, values, 4) == SACCADE_OK);
  for (i = 0; i < 8; ++i)
    CHECK(o[i] == (float)(4 + i % 4));
}

static void tasksAreTimed(const SaccadeFunction *attend) {
  char *text = NULL, *inner = NULL;
  saccade_task_times_begin();
  attendsToTheMean(attend);
  saccade_task_times_begin();
  attendsToTheMean(attend);
  CHECK(saccade_task_times_end(&inner) == SACCADE_OK);
  CHECK(saccade_task_times_end(&text) == SACCADE_OK);
  CHECK(strstr(inner, "{\"name\":\"attend.attention\",\"launches\":1,") != NULL);
  CHECK(strstr(text, "{\"name\":\"attend.attention\",\"launches\":2,") != NULL);
  CHECK(strstr(text, "\"launches\":[[0,") != NULL);
  saccade_text_free(inner);
  saccade_text_free(text);
  CHECK(saccade_task_times_end(&text) == SACCADE_VALUE_ERROR && text == NULL);
  CHECK_MESSAGE("this thread has not called saccade_task_times_begin");
  CHECK(saccade_task_times_end(NULL) == SACCADE_VALUE_ERROR);
}

static void hasTVMFFIWrapper(const SaccadeFunction *scale) {
  /* SaccadeArgument has the layout of TVMFFIAny. */
  int32_t (*wrapper)(void *self, const SaccadeArgument *args, int32_t count, SaccadeArgument *result);
  void *address = saccade_function_tvm_ffi(scale);
  float in[2] = {1, 2}, out[2] = {0, 0};
  int64_t shape[2] = {1, 2};
  DLTensor x = floats(in, 2, shape, NULL), y = floats(out, 2, shape, NULL);
  SaccadeArgument args[4], result;
  memcpy(&wrapper, &address, sizeof(wrapper));
  memset(args, 0, sizeof(args));
  args[0].kind = args[3].kind = SaccadeArgumentDLTensor;
  args[0].value.pointer = &x;
  args[1].kind = SaccadeArgumentFloat;
  args[1].value.real = 5;
  args[2].kind = SaccadeArgumentBool;
  args[2].value.integer = 1;
  args[3].value.pointer = &y;
  result.kind = -1;
  CHECK(wrapper(NULL, args, 4, &result) == 0);
  CHECK(result.kind == SaccadeArgumentNone);
  CHECK(out[0] == -5 && out[1] == -10);
}

static void compilesInPhases(const SaccadeModule *module) {
  SaccadeCompileTimes times = saccade_module_compile_times(module);
  double sum = 0;
  size_t i;
  CHECK(times.pipeline > 0 && times.codegen > 0 && times.link > 0);
  CHECK(times.pipeline + times.codegen + times.link < 600);
  CHECK(saccade_module_num_stages(module) == 7);
  CHECK(strcmp(saccade_module_stage_at(module, 1).name, "transforms") == 0);
  for (i = 0; i < 7; ++i)
    sum += saccade_module_stage_at(module, i).seconds;
  CHECK(sum > 0 && sum <= times.pipeline);
  CHECK(saccade_module_stage_at(module, 7).name == NULL);
}

int main(void) {
  char text[8192];
  SaccadeContext *context = saccade_context_create();
  SaccadeModule *module;
  const SaccadeFunction *scale, *attend;
  snprintf(text, sizeof(text), "%s%s", scaleText, attendText);
  module = compiled(context, text);
  CHECK(saccade_module_num_functions(module) == 2);
  scale = saccade_module_function(module, "scale");
  attend = saccade_module_function(module, "attend");
  CHECK(scale && attend);
  CHECK(saccade_module_function_at(module, 0) == scale && saccade_module_function_at(module, 1) == attend);
  compilesInPhases(module);
  unknownFunctionsAreReported(module);
  describesItself(scale);
  takesCompactTensorsAndScalars(scale);
  takesAnyStridesAndOffsets(scale);
  stridesOfDimensionsOfOneElementMeanNothing(scale);
  emptyTensorsNeedNoMemory(scale);
  attendsToTheMean(attend);
  tasksAreTimed(attend);
  hasTVMFFIWrapper(scale);
  saccade_set_num_threads(1);
  CHECK(saccade_num_threads() == 1);
  attendsToTheMean(attend);
  CHECK(strcmp(saccade_version(), "0.1.0") == 0);
  saccade_module_release(module);
  saccade_context_destroy(context);
  return 0;
}
