/* Calls the library of artifact.mlir through its header alone, as C99 and as C++. Returns 0 if all checks hold. */
#include "artifact.h"
#include "artifact.h" /* has a guard */
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, HEADS = 4, KEY_HEADS = 2, QUERIES = 5, KEYS = 9, DEPTH = 16, WIDTH = 8 };

static float q[BATCH][HEADS][QUERIES][DEPTH], k[BATCH][KEY_HEADS][KEYS][DEPTH], v[BATCH][KEY_HEADS][KEYS][WIDTH];
static float o[BATCH][HEADS][QUERIES][WIDTH], l[BATCH][HEADS][QUERIES];
static int failures = 0;

static void expect(int holds, const char *what) {
  if (!holds) {
    printf("failed: %s\n", what);
    ++failures;
  }
}

static void refused(const char *message, const char *words) {
  if (!message || !strstr(message, words)) {
    printf("expected a message with '%s', found '%s'\n", words, message ? message : "(none)");
    ++failures;
  }
}

static void fill(float *data, size_t count, unsigned seed) {
  size_t i;
  for (i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
  }
}

static DLTensor tensor(void *data, int32_t rank, int64_t *shape) {
  DLTensor t;
  memset(&t, 0, sizeof(t));
  t.data = data;
  t.device.device_type = kDLCPU;
  t.ndim = rank;
  t.dtype.code = kDLFloat;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

/* The largest difference from attention in double, of the first `length` keys. */
static double difference(double scale, int length) {
  double worst = 0;
  int b, h, i, j, d;
  for (b = 0; b < BATCH; ++b)
    for (h = 0; h < HEADS; ++h)
      for (i = 0; i < QUERIES; ++i) {
        double weights[KEYS], sum = 0, error;
        int group = h / (HEADS / KEY_HEADS), end = i + 1 + length - QUERIES;
        for (j = 0; j < end; ++j) {
          double dot = 0;
          for (d = 0; d < DEPTH; ++d)
            dot += (double)q[b][h][i][d] * k[b][group][j][d];
          weights[j] = exp(dot * scale);
          sum += weights[j];
        }
        for (d = 0; d < WIDTH; ++d) {
          double value = 0;
          for (j = 0; j < end; ++j)
            value += weights[j] / sum * v[b][group][j][d];
          error = fabs(value - o[b][h][i][d]);
          worst = error > worst ? error : worst;
        }
        error = fabs(log(sum) - l[b][h][i]);
        worst = error > worst ? error : worst;
      }
  return worst;
}

int main(void) {
  int64_t qShape[4] = {BATCH, HEADS, QUERIES, DEPTH}, kShape[4] = {BATCH, KEY_HEADS, KEYS, DEPTH};
  int64_t vShape[4] = {BATCH, KEY_HEADS, KEYS, WIDTH}, oShape[4] = {BATCH, HEADS, QUERIES, WIDTH};
  int64_t swapped[4] = {BATCH, HEADS, WIDTH, QUERIES}, n[1] = {3}, sizes[7];
  int64_t strides[4] = {HEADS * QUERIES * DEPTH, QUERIES * DEPTH, DEPTH, 1};
  double x[3] = {0, 1, -2}, y[3];
  DLTensor tq = tensor(q, 4, qShape), tk = tensor(k, 4, kShape), tv = tensor(v, 4, vShape);
  DLTensor to = tensor(o, 4, oShape), tl = tensor(l, 3, oShape), tx = tensor(x, 1, n), ty = tensor(y, 1, n), bad;
  int64_t expected[7] = {BATCH, HEADS, QUERIES, WIDTH, BATCH, HEADS, QUERIES};
  const char *message;

  fill(&q[0][0][0][0], sizeof(q) / sizeof(float), 1);
  fill(&k[0][0][0][0], sizeof(k) / sizeof(float), 2);
  fill(&v[0][0][0][0], sizeof(v) / sizeof(float), 3);

  message = saccade_attend_shapes(&tq, &tk, &tv, 0.5, KEYS, sizes);
  expect(!message && !memcmp(sizes, expected, sizeof(expected)),
         "saccade_attend_shapes gives the extents of both results");
  message = saccade_attend(&tq, &tk, &tv, 0.5, KEYS, &to, &tl);
  expect(!message && difference(0.5, KEYS) < 1e-5, "the results are those of attention in double");
  message = saccade_attend(&tq, &tk, &tv, 0.25, KEYS - 2, &to, &tl);
  expect(!message && difference(0.25, KEYS - 2) < 1e-5, "scalars count");

  /* The same elements through byte_offset and strides. */
  memset(o, 0, sizeof(o));
  tq.strides = strides;
  tq.data = (char *)q - 64;
  tq.byte_offset = 64;
  message = saccade_attend(&tq, &tk, &tv, 0.25, KEYS - 2, &to, &tl);
  expect(!message && difference(0.25, KEYS - 2) < 1e-5, "byte_offset and strides are honoured");

  bad = tk;
  bad.dtype.bits = 64;
  refused(saccade_attend(&tq, &bad, &tv, 0.5, KEYS, &to, &tl), "attend: argument 'k'");
  bad = tk;
  bad.ndim = 3;
  refused(saccade_attend(&tq, &bad, &tv, 0.5, KEYS, &to, &tl), "found 3 dimensions, expected 4");
  bad = tk;
  bad.data = NULL;
  refused(saccade_attend_shapes(&tq, &bad, &tv, 0.5, KEYS, sizes), "argument 'k'");
  bad = tk;
  bad.device.device_type = kDLCUDA;
  refused(saccade_attend(&tq, &bad, &tv, 0.5, KEYS, &to, &tl), "expected c");
  refused(saccade_attend(&tq, NULL, &tv, 0.5, KEYS, &to, &tl), "argument 'k'");
  refused(saccade_attend(&tq, &tv, &tv, 0.5, KEYS, &to, &tl), "expected 16");
  bad = to;
  bad.shape = swapped;
  refused(saccade_attend(&tq, &tk, &tv, 0.5, KEYS, &bad, &tl), "result");
  refused(saccade_attend(&tq, &tk, &tv, 0.5, KEYS, &to, &to), "result");

  tx.dtype.bits = ty.dtype.bits = 64;
  expect(!saccade_exponential(&tx, &ty) && fabs(y[2] - exp(-2.0)) < 1e-16, "functions of the C library are found");
  tx.dtype.bits = ty.dtype.bits = 32;
  n[0] = 1;
  l[0][0][0] = 1.0f;
  tx.data = l;
  ty.data = o;
  expect(!saccade_keywords(&tx, 1, -3, 0, &ty) && o[0][0][0][0] == -5.0f, "names that mean something in C are renamed");
  return failures != 0;
}
