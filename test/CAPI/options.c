/* Named options, the program after each stage, the report of --explain, and messages for invalid options and arguments.
 *
 * RUN: %c99 %s -o %t && %t
 */
#include "check.h"

static SaccadeContext *context;

static SaccadeResult tryOption(const char *name, const char *value) {
  SaccadeOption option;
  SaccadeModule *module = (SaccadeModule *)&option;
  SaccadeResult result;
  option.name = name;
  option.value = value;
  result = saccade_compile(context, scaleText, strlen(scaleText), "test.mlir", &option, 1, &module);
  CHECK((result == SACCADE_OK) == (module != NULL));
  saccade_module_release(module);
  return result;
}

static char *programAt(const char *target, const char *stage) {
  SaccadeOption option;
  char *text = NULL;
  option.name = "target";
  option.value = target;
  CHECK(saccade_print_stage(context, attendText, strlen(attendText), "test.mlir", &option, 1, stage, &text) ==
        SACCADE_OK);
  CHECK(text != NULL);
  return text;
}

static void optionsAreFoundByTheirNames(void) {
  CHECK(tryOption("target", "portable") == SACCADE_OK);
  CHECK(tryOption("lint", "true") == SACCADE_OK);
  CHECK(tryOption("verify", "false") == SACCADE_OK);
  CHECK(tryOption("insert-after", "transforms:canonicalize,cse") == SACCADE_OK);
  CHECK(tryOption("insert-before", "transforms.shapes:canonicalize") == SACCADE_OK);
  CHECK(tryOption("schedule-table", "") == SACCADE_OK);
  CHECK(strstr(saccade_option_help(), "target: ") == saccade_option_help());
  CHECK(strstr(saccade_option_help(), "\ninsert-after: ") != NULL);
}

static void otherOptionsAreRefused(void) {
  CHECK(tryOption("level", "v3") == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("there is no option 'level', expected one of target, lint, remarks, prepack, verify, insert-after, "
                "insert-before, transform-script, schedule-table, load-pass-plugin, load-dialect-plugin");
  CHECK(tryOption("target", "v9") == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("option 'target' has the value 'v9': expected one of host, portable, v3, v3-int8, v4, v4-bf16, v4-amx, "
                "v4-expanded, v4-bf16-expanded, v4-amx-expanded, aarch64, aarch64-bf16, aarch64-sve256, sm_75, sm_80, "
                "sm_90a, cuda, or "
                "cuda:N for the GPU N");
  CHECK(tryOption("lint", "yes") == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("option 'lint' has the value 'yes': expected true or false");
  CHECK(tryOption("insert-after", "cse") == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("option 'insert-after' has the value 'cse': expected POINT:PASSES");
  CHECK(tryOption("insert-after", "middle:cse") == SACCADE_VALUE_ERROR);
  CHECK(strstr(saccade_last_error(),
               "option 'insert-after' has the value 'middle:cse': unknown stage or step 'middle', "
               "expected one of import, transforms, transforms.inline, ") != NULL);
  CHECK(tryOption("insert-after", "tiling:no-such-pass") == SACCADE_VALUE_ERROR);
  CHECK(strstr(saccade_last_error(), "no-such-pass") != NULL);
  CHECK(tryOption("load-pass-plugin", "nowhere.so") == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE(
      "option 'load-pass-plugin' has the value 'nowhere.so': cannot load the plugin 'nowhere.so': No such file "
      "or directory");
  CHECK(tryOption(NULL, "v3") == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("option #0 has no name");
  CHECK(tryOption("target", NULL) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("option 'target' has no value");
}

static void missingArgumentsAreRefused(void) {
  SaccadeModule *module = NULL;
  char *text = NULL;
  CHECK(saccade_compile(NULL, scaleText, 1, NULL, NULL, 0, &module) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the context is NULL");
  CHECK(saccade_compile(context, NULL, 1, NULL, NULL, 0, &module) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the source is NULL");
  CHECK(saccade_compile(context, scaleText, 1, NULL, NULL, 3, &module) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the array of options is NULL");
  CHECK(saccade_compile(context, scaleText, 1, NULL, NULL, 0, NULL) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the pointer for the module is NULL");
  CHECK(saccade_compile(context, scaleText, (size_t)-1, NULL, NULL, 0, &module) == SACCADE_VALUE_ERROR);
  CHECK(strstr(saccade_last_error(), "expected at most 1073741824") != NULL);
  CHECK(saccade_print_stage(context, scaleText, 1, NULL, NULL, 0, NULL, &text) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the stage is NULL");
  CHECK(saccade_print_stage(context, scaleText, 1, NULL, NULL, 0, "end", &text) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("there is no stage 'end', expected one of import, transforms, schedule, tiling, bufferize, codegen, "
                "target, llvm, asm");
  CHECK(module == NULL && text == NULL);
}

static void aProgramIsExplained(void) {
  char *text = NULL;
  const char *sizes = "attend:q=32,k=48,b=1,h=2";
  CHECK(saccade_explain(context, attendText, strlen(attendText), "test.mlir", NULL, 0, NULL, &text) == SACCADE_OK);
  CHECK(strstr(text, "attention in 'attend'") == text && strstr(text, "kernel family") != NULL);
  saccade_text_free(text);
  CHECK(saccade_explain(context, attendText, strlen(attendText), "test.mlir", NULL, 0, sizes, &text) == SACCADE_OK);
  CHECK(strstr(text, "tiles: ") != NULL);
  saccade_text_free(text);
  text = NULL;
  CHECK(saccade_explain(context, attendText, strlen(attendText), NULL, NULL, 0, "q=-1", &text) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("size 'q=-1' is negative, expected at least 0");
  CHECK(saccade_explain(context, attendText, strlen(attendText), NULL, NULL, 0, "q", &text) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("'q' is not a size, expected NAME=NUMBER, as in q=4096");
  CHECK(saccade_explain(context, "module {", 8, NULL, NULL, 0, NULL, &text) == SACCADE_COMPILE_ERROR && text == NULL);
  CHECK(saccade_explain(context, attendText, 1, NULL, NULL, 0, NULL, NULL) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the pointer for the text is NULL");
}

static void theReportIsJSONToo(void) {
  char *text = NULL;
  CHECK(saccade_explain_json(context, attendText, strlen(attendText), "test.mlir", NULL, 0, "q=32,k=48,b=1,h=2",
                             &text) == SACCADE_OK);
  CHECK(text[0] == '{' && strstr(text, "\"version\": 1,") && strstr(text, "\"function\": \"attend\""));
  CHECK(strstr(text, "\"all\": 1536") && strstr(text, "attend.attention"));
  saccade_text_free(text);
  CHECK(saccade_explain_json(context, attendText, 1, NULL, NULL, 0, NULL, NULL) == SACCADE_VALUE_ERROR);
  CHECK_MESSAGE("the pointer for the text is NULL");
}

static void everyStageIsPrinted(void) {
  static const char *const stages[][2] = {{"transforms", "attn.attention"},
                                          {"tiling", "attn.accumulate"},
                                          {"target", "llvm.func"},
                                          {"llvm", "define "},
                                          {"asm", "xmm"}};
  size_t i;
  for (i = 0; i < sizeof(stages) / sizeof(stages[0]); ++i) {
    char *text = programAt("portable", stages[i][0]);
    CHECK(strstr(text, stages[i][1]) != NULL);
    CHECK(strstr(text, "zmm") == NULL);
    saccade_text_free(text);
  }
  /* Printing does not require a processor that supports the target. */
  {
    char *text = programAt("v4", "asm");
    CHECK(strstr(text, "zmm") != NULL);
    saccade_text_free(text);
  }
  saccade_text_free(NULL);
}

int main(void) {
  context = saccade_context_create();
  optionsAreFoundByTheirNames();
  otherOptionsAreRefused();
  missingArgumentsAreRefused();
  everyStageIsPrinted();
  aProgramIsExplained();
  theReportIsJSONToo();
  saccade_context_destroy(context);
  return 0;
}
