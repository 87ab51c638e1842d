/* Contexts share compiled programs through files of a directory.
 *
 * RUN: rm -rf %t.cache && %c99 %s -o %t && %t %t.cache
 */
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>

static const char *directory;
static int warnings;

static void countWarnings(SaccadeSeverity severity, const char *text, void *user) {
  CHECK(severity == SACCADE_WARNING && strstr(text, "scale") != NULL && user == &warnings);
  ++warnings;
}

/* A context, as that of another process. */
static SaccadeContext *newContext(void) {
  SaccadeContext *context = saccade_context_create();
  CHECK(saccade_context_set_disk_cache(context, directory, 0) == SACCADE_OK);
  saccade_context_set_diagnostic_handler(context, countWarnings, &warnings);
  return context;
}

static void countsAre(SaccadeContext *context, int hits, int compilations, int diskHits, int diskMisses) {
  SaccadeCacheInfo info = saccade_cache_info(context);
  if ((int)info.hits != hits || (int)info.compilations != compilations || (int)info.disk_hits != diskHits ||
      (int)info.disk_misses != diskMisses) {
    fprintf(stderr, "found %d hits, %d compilations, %d hits and %d misses on disk\n", (int)info.hits,
            (int)info.compilations, (int)info.disk_hits, (int)info.disk_misses);
    exit(1);
  }
}

static void callScale(SaccadeContext *context) {
  SaccadeModule *module = compiled(context, scaleText);
  float in[2] = {1, -3}, out[2] = {0, 0};
  int64_t shape[2] = {1, 2};
  DLTensor x = floats(in, 2, shape, NULL), y = floats(out, 2, shape, NULL);
  SaccadeValue values[4];
  SaccadeValueInfo info;
  memset(values, 0, sizeof(values));
  values[0] = tensorValue(&x);
  values[1].real = 2;
  values[3] = tensorValue(&y);
  CHECK(saccade_function_call(saccade_module_function(module, "scale"), values, 4) == SACCADE_OK);
  CHECK(out[0] == 2 && out[1] == -6);
  info = saccade_function_value(saccade_module_function(module, "scale"), 3);
  CHECK(strcmp(info.type, "tensor<?x?xf32>") == 0 && info.rank == 2);
  saccade_module_release(module);
}

static void anotherContextDoesNotCompile(void) {
  SaccadeContext *context = newContext();
  callScale(context);
  callScale(context);
  countsAre(context, 1, 1, 0, 1);
  saccade_context_destroy(context);
  context = newContext();
  callScale(context);
  callScale(context);
  countsAre(context, 1, 0, 1, 0);
  /* Files stay when the context forgets the program. */
  saccade_cache_clear(context);
  countsAre(context, 0, 0, 0, 0);
  callScale(context);
  countsAre(context, 0, 0, 1, 0);
  CHECK(saccade_cache_clear_disk(context) == SACCADE_OK);
  saccade_cache_clear(context);
  callScale(context);
  countsAre(context, 0, 1, 0, 1);
  /* NULL keeps no files. */
  CHECK(saccade_context_set_disk_cache(context, NULL, 0) == SACCADE_OK);
  CHECK(saccade_cache_clear_disk(context) == SACCADE_OK);
  saccade_cache_clear(context);
  callScale(context);
  countsAre(context, 0, 1, 0, 0);
  saccade_context_destroy(context);
}

/* The warnings of a program are issued by every context that takes it from disk, as by the one that compiled it. */
static void warningsAreRepeated(void) {
  static const char *const text =
      "func.func @f(%x: tensor<8x?x64xf32>) -> tensor<8x?x64xf32> {\n"
      "  %o = attn.attention %x[h,s,d], %x[h,s,d], %x[h,s,d] scale(0.0442)\n"
      "    : (tensor<8x?x64xf32>, tensor<8x?x64xf32>, tensor<8x?x64xf32>) -> tensor<8x?x64xf32>\n"
      "  return %o : tensor<8x?x64xf32>\n"
      "}\n";
  SaccadeOption lint = {"lint", "true"};
  int round;
  for (round = 0; round < 2; ++round) {
    SaccadeContext *context = newContext();
    SaccadeModule *module;
    warnings = 0;
    CHECK(saccade_compile(context, text, strlen(text), NULL, &lint, 1, &module) == SACCADE_OK);
    CHECK(warnings == 1);
    countsAre(context, 0, 1 - round, round, 1 - round);
    saccade_module_release(module);
    saccade_context_destroy(context);
  }
}

/* Neither errors nor programs with inserted passes, which may have effects, are stored. */
static void someCompilationsAreNotStored(void) {
  SaccadeOption pass = {"insert-after", "transforms:cse"};
  int round;
  for (round = 0; round < 2; ++round) {
    SaccadeContext *context = newContext();
    SaccadeModule *module;
    saccade_context_set_diagnostic_handler(context, NULL, NULL);
    CHECK(saccade_compile(context, "?", 1, NULL, NULL, 0, &module) == SACCADE_COMPILE_ERROR);
    CHECK(strstr(saccade_last_error(), "program:1:1: error") != NULL);
    countsAre(context, 0, 1, 0, 1);
    CHECK(saccade_compile(context, scaleText, strlen(scaleText), NULL, &pass, 1, &module) == SACCADE_OK);
    countsAre(context, 0, 2, 0, 1);
    saccade_module_release(module);
    saccade_context_destroy(context);
  }
}

/* Changes a byte in the middle of every file. */
static void damageFiles(void) {
  DIR *files = opendir(directory);
  struct dirent *each;
  CHECK(files != NULL);
  while ((each = readdir(files)) != NULL) {
    char path[4096];
    FILE *file;
    long middle;
    int byte;
    if (strstr(each->d_name, ".entry") == NULL)
      continue;
    snprintf(path, sizeof(path), "%s/%s", directory, each->d_name);
    file = fopen(path, "r+b");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    middle = ftell(file) / 2;
    CHECK(fseek(file, middle, SEEK_SET) == 0);
    byte = fgetc(file);
    CHECK(fseek(file, middle, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF && fclose(file) == 0);
  }
  closedir(files);
}

static void damagedFilesAreReplaced(void) {
  SaccadeContext *context = newContext();
  callScale(context);
  saccade_context_destroy(context);
  damageFiles();
  context = newContext();
  callScale(context);
  countsAre(context, 0, 1, 0, 1);
  saccade_context_destroy(context);
  context = newContext();
  callScale(context);
  countsAre(context, 0, 0, 1, 0);
  saccade_context_destroy(context);
}

static void unsafeDirectoriesAreRefused(void) {
  SaccadeContext *context = newContext();
  CHECK(chmod(directory, 0777) == 0);
  CHECK(saccade_context_set_disk_cache(context, directory, 0) == SACCADE_VALUE_ERROR);
  CHECK(strstr(saccade_last_error(), "other users can write it (mode 777), expected a mode like 700") != NULL);
  callScale(context);
  countsAre(context, 0, 1, 0, 0);
  CHECK(chmod(directory, 0700) == 0);
  saccade_context_destroy(context);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  directory = argv[1];
  anotherContextDoesNotCompile();
  warningsAreRepeated();
  someCompilationsAreNotStored();
  damagedFilesAreReplaced();
  unsafeDirectoriesAreRefused();
  return 0;
}
