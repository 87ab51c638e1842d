/* Peak rates of this machine: FMA in registers, bf16 dot products (in tile registers if it has them), sequential reads
 * of memory. Every thread runs for the same time; the result is the sum of the rates of the threads. */
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#if defined(__AVX512F__)
enum { vectorBytes = 64, accumulators = 16 };
#else
enum { vectorBytes = 32, accumulators = 12 }; /* two of the 16 registers hold the factors */
#endif
enum { maxThreads = 256, stepsPerCheck = 1000, bytesPerCheck = 1 << 18 };

struct Job {
  double (*work)(struct Job *job); /* returns flops or bytes */
  pthread_barrier_t *start;
  const char *memory;
  int64_t bytes;
  double seconds, rate;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#define DEFINE_FMA(name, type)                                                                                         \
  static double name(struct Job *job) {                                                                                \
    typedef type Vector __attribute__((vector_size(vectorBytes)));                                                     \
    volatile type shrink = 0.5, grow = 1;                                                                              \
    Vector x = (Vector){0} + shrink, y = (Vector){0} + grow, sums[accumulators];                                       \
    for (int i = 0; i < accumulators; ++i)                                                                             \
      sums[i] = y * (type)i;                                                                                           \
    double steps = 0, end = now() + job->seconds;                                                                      \
    do {                                                                                                               \
      for (int step = 0; step < stepsPerCheck; ++step) {                                                               \
        _Pragma("unroll") for (int i = 0; i < accumulators; ++i) sums[i] = __builtin_elementwise_fma(sums[i], x, y);   \
      }                                                                                                                \
      steps += stepsPerCheck;                                                                                          \
    } while (now() < end);                                                                                             \
    volatile Vector sink;                                                                                              \
    for (int i = 0; i < accumulators; ++i)                                                                             \
      sink = sums[i];                                                                                                  \
    (void)sink;                                                                                                        \
    return steps * 2 * accumulators * (vectorBytes / sizeof(type));                                                    \
  }

DEFINE_FMA(fmaF32, float)
DEFINE_FMA(fmaF64, double)

#if defined(__AVX512BF16__)
#include <immintrin.h>
static double dotBF16(struct Job *job) {
  volatile float one = 1;
  __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(one), _mm512_set1_ps(one));
  __m512 sums[accumulators];
  for (int i = 0; i < accumulators; ++i)
    sums[i] = _mm512_set1_ps((float)i);
  double steps = 0, end = now() + job->seconds;
  do {
    for (int step = 0; step < stepsPerCheck; ++step) {
      _Pragma("unroll") for (int i = 0; i < accumulators; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
    }
    steps += stepsPerCheck;
  } while (now() < end);
  volatile __m512 sink;
  for (int i = 0; i < accumulators; ++i)
    sink = sums[i];
  (void)sink;
  return steps * 4 * accumulators * 16;
}
#endif

#if defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
/* Whether the operating system permits tile registers (arch_prctl, ARCH_REQ_XCOMP_PERM). */
static int mayUseTiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

static double dotTiles(struct Job *job) {
  struct __attribute__((packed)) {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shapes = {.palette = 1};
  for (int i = 0; i < 8; ++i)
    shapes.bytes[i] = 64, shapes.rows[i] = 16;
  _tile_loadconfig(&shapes);
  double steps = 0, end = now() + job->seconds;
  do {
    for (int step = 0; step < stepsPerCheck; ++step) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    steps += stepsPerCheck;
  } while (now() < end);
  _tile_release();
  return steps * 4 * 2 * 16 * 16 * 32;
}
#endif

static double readMemory(struct Job *job) {
  typedef int64_t Vector __attribute__((vector_size(vectorBytes)));
  Vector sums[8] = {{0}};
  double bytes = 0, end = now() + job->seconds;
  int64_t at = 0;
  do {
    const Vector *data = (const Vector *)(job->memory + at);
    for (int64_t i = 0; i < bytesPerCheck / vectorBytes; i += 8) {
      _Pragma("unroll") for (int j = 0; j < 8; ++j) sums[j] += data[i + j];
    }
    bytes += bytesPerCheck;
    at = at + 2 * bytesPerCheck <= job->bytes ? at + bytesPerCheck : 0;
  } while (now() < end);
  volatile Vector sink;
  for (int j = 0; j < 8; ++j)
    sink = sums[j];
  (void)sink;
  return bytes;
}

static void *runJob(void *argument) {
  struct Job *job = argument;
  pthread_barrier_wait(job->start);
  double start = now(), done = job->work(job);
  job->rate = done / (now() - start);
  return 0;
}

static double runAll(double (*work)(struct Job *), int threads, double seconds, const char *memory, int64_t bytes) {
  pthread_t handles[maxThreads];
  struct Job jobs[maxThreads];
  pthread_barrier_t start;
  if (threads < 1 || threads > maxThreads)
    return 0;
  pthread_barrier_init(&start, 0, (unsigned)threads);
  int64_t share = bytes / threads / bytesPerCheck * bytesPerCheck;
  for (int i = 0; i < threads; ++i) {
    jobs[i] = (struct Job){work, &start, memory + i * share, share, seconds, 0};
    if (i > 0 && pthread_create(&handles[i], 0, runJob, &jobs[i]) != 0)
      return 0;
  }
  runJob(&jobs[0]);
  double rate = jobs[0].rate;
  for (int i = 1; i < threads; ++i) {
    pthread_join(handles[i], 0);
    rate += jobs[i].rate;
  }
  pthread_barrier_destroy(&start);
  return rate;
}

/* FLOP/s; 0 if the processor has no such instruction. */
double peak_f32(int threads, double seconds) { return runAll(fmaF32, threads, seconds, 0, 0); }
double peak_f64(int threads, double seconds) { return runAll(fmaF64, threads, seconds, 0, 0); }
double peak_bf16(int threads, double seconds) {
#if defined(__AMX_BF16__) && defined(__linux__)
  if (mayUseTiles())
    return runAll(dotTiles, threads, seconds, 0, 0);
#endif
#if defined(__AVX512BF16__)
  return runAll(dotBF16, threads, seconds, 0, 0);
#else
  return 0;
#endif
}
/* Bytes per second. `memory` is aligned to 64 bytes and has at least 256 KiB per thread. */
double read_bandwidth(int threads, double seconds, const char *memory, int64_t bytes) {
  return runAll(readMemory, threads, seconds, memory, bytes);
}
