/* Messages of refused calls name the entry, the argument, and the values found and expected.
 *
 * RUN: %c99 %s -o %t && %t
 */
#include "check.h"

static float memory[256];
static int64_t two[3] = {2, 3, 4}, results[8];

/* A valid call of @attend with head dimension 4, which the tests modify. */
typedef struct {
  DLTensor tensors[4];
  SaccadeValue values[4];
  int64_t shapes[4][3];
} Call;

static void makeCall(Call *call) {
  int i;
  for (i = 0; i < 4; ++i) {
    memcpy(call->shapes[i], two, sizeof(two));
    call->tensors[i] = floats(memory + 24 * i, 3, call->shapes[i], NULL);
    call->values[i] = tensorValue(&call->tensors[i]);
  }
}

static SaccadeResult run(const SaccadeFunction *function, Call *call) {
  SaccadeResult result = saccade_function_call(function, call->values, 4);
  makeCall(call);
  return result;
}

static void tensorsThatDoNotFit(const SaccadeFunction *attend) {
  Call call;
  makeCall(&call);
  CHECK(run(attend, &call) == SACCADE_OK);
  CHECK_MESSAGE("");
  call.shapes[1][2] = 5;
  CHECK(run(attend, &call) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("attend: argument 'k' (tensor<?x?x4xf32>): found extent 5 in dimension 2, expected 4");
  call.shapes[2][1] = 2;
  CHECK(run(attend, &call) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("attend: test.mlir:2:8: 'attn.attention' op value has another length than key: found 2, expected 3");
  call.shapes[3][0] = 1;
  CHECK(run(attend, &call) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("attend: result 'output' (tensor<?x?x4xf32>): found extent 1 in dimension 0, expected 2");
  call.tensors[3].data = memory;
  CHECK(run(attend, &call) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("attend: result 'output' (tensor<?x?x4xf32>): overlaps with argument 'q'");
  call.tensors[0].data = NULL;
  CHECK(run(attend, &call) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("attend: argument 'q' (tensor<?x?x4xf32>): is NULL: a fake tensor has no data");
  call.tensors[0].ndim = 2;
  CHECK(run(attend, &call) == SACCADE_TYPE_ERROR);
  CHECK_MESSAGE("attend: argument 'q' (tensor<?x?x4xf32>): found 2 dimensions, expected 3");
  call.tensors[2].dtype.bits = 64;
  CHECK(run(attend, &call) == SACCADE_TYPE_ERROR);
  CHECK_MESSAGE("attend: argument 'v' (tensor<?x?x4xf32>): found element type f64, expected f32");
  call.tensors[1].device.device_type = kDLCUDA;
  CHECK(run(attend, &call) == SACCADE_TYPE_ERROR);
  CHECK_MESSAGE("attend: argument 'k' (tensor<?x?x4xf32>): on cuda:0, expected cpu");
  /* A successful call clears the message. */
  CHECK(run(attend, &call) == SACCADE_OK);
  CHECK_MESSAGE("");
}

static void valuesThatAreNone(const SaccadeFunction *attend, const SaccadeFunction *scale) {
  Call call;
  int64_t shape[2] = {2, 3};
  DLTensor x = floats(memory, 2, shape, NULL), y = floats(memory + 6, 2, shape, NULL);
  SaccadeValue values[4];
  makeCall(&call);
  call.values[1] = scalarValue(3, 0);
  CHECK(run(attend, &call) == SACCADE_TYPE_ERROR);
  CHECK_MESSAGE("attend: argument 'k' (tensor<?x?x4xf32>): is NULL, expected a tensor");
  values[0] = tensorValue(&x);
  values[1] = tensorValue(&x);
  values[2] = scalarValue(0, 0);
  values[3] = tensorValue(&y);
  CHECK(saccade_function_call(scale, values, 4) == SACCADE_TYPE_ERROR);
  CHECK_MESSAGE("scale: argument 'by' (f32): found a tensor, expected a number");
  values[1] = scalarValue(0, 1);
  values[2] = scalarValue(2, 0);
  CHECK(saccade_function_call(scale, values, 4) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("scale: argument 'negate' (i1): found 2, expected 0 to 1");
}

static void wrongNumbersOfValues(const SaccadeFunction *attend) {
  Call call;
  makeCall(&call);
  CHECK(saccade_function_call(attend, call.values, 3) == SACCADE_TYPE_ERROR);
  CHECK(strstr(saccade_last_error(), "attend: found 3 ") == saccade_last_error());
  /* Values after the fourth are not read. */
  CHECK(saccade_function_call(attend, call.values, (size_t)-1) == SACCADE_TYPE_ERROR);
  CHECK(strstr(saccade_last_error(), "attend: found 2147483647 ") == saccade_last_error());
  CHECK(saccade_function_result_shapes(attend, call.values, 2, results) == SACCADE_TYPE_ERROR);
  CHECK(strstr(saccade_last_error(), "attend: found 2 ") == saccade_last_error());
}

static void sizesOfInputsThatDoNotFit(const SaccadeFunction *attend) {
  Call call;
  makeCall(&call);
  call.shapes[1][0] = 3;
  call.shapes[2][0] = 3;
  results[0] = -1;
  CHECK(saccade_function_result_shapes(attend, call.values, 3, results) == SACCADE_VALUE_ERROR);
  CHECK(strstr(saccade_last_error(), "not a multiple of the number of KV heads: found 2, expected a multiple of 3") !=
        NULL);
  CHECK(results[0] == -1);
}

static void lengthsOutsideOfTheKeys(SaccadeContext *context) {
  const char *text = "func.func @attend(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>, %n: index) -> tensor<?x4xf32> {\n"
                     "  %o = attn.attention %q[s,d], %k[s,d], %k[s,d] kv_len(%n : index)\n"
                     "      : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>\n"
                     "  return %o : tensor<?x4xf32>\n"
                     "}\n";
  SaccadeModule *module = compiled(context, text);
  const SaccadeFunction *attend = saccade_module_function(module, "attend");
  int64_t queries[2] = {5, 4}, keys[2] = {9, 4};
  DLTensor q = floats(memory, 2, queries, NULL), k = floats(memory + 32, 2, keys, NULL);
  DLTensor o = floats(memory + 96, 2, queries, NULL);
  SaccadeValue values[4];
  values[0] = tensorValue(&q);
  values[1] = tensorValue(&k);
  values[3] = tensorValue(&o);
  values[2] = scalarValue(9, 0);
  CHECK(saccade_function_call(attend, values, 4) == SACCADE_OK);
  values[2] = scalarValue(-1, 0);
  CHECK(saccade_function_call(attend, values, 4) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("attend: test.mlir:2:8: 'attn.attention' op kv_len is negative: found -1, expected at least 0");
  values[2] = scalarValue(99, 0);
  CHECK(saccade_function_call(attend, values, 4) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE(
      "attend: test.mlir:2:8: 'attn.attention' op kv_len exceeds the length of key: found 99, expected at most 9");
  saccade_module_release(module);
}

static void missingArguments(const SaccadeFunction *attend) {
  CHECK(saccade_function_call(NULL, NULL, 0) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the function or its values are NULL");
  CHECK(saccade_function_call(attend, NULL, 4) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the function or its values are NULL");
  CHECK(saccade_function_result_shapes(attend, NULL, 3, results) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the function, its inputs or the array of sizes is NULL");
}

int main(void) {
  SaccadeContext *context = saccade_context_create();
  SaccadeModule *attend = compiled(context, attendText), *scale = compiled(context, scaleText);
  const SaccadeFunction *function = saccade_module_function(attend, "attend");
  tensorsThatDoNotFit(function);
  valuesThatAreNone(function, saccade_module_function(scale, "scale"));
  wrongNumbersOfValues(function);
  sizesOfInputsThatDoNotFit(function);
  missingArguments(function);
  lengthsOutsideOfTheKeys(context);
  saccade_module_release(attend);
  saccade_module_release(scale);
  saccade_context_destroy(context);
  return 0;
}
