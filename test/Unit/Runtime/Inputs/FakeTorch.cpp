//===- FakeTorch.cpp - A fake PyTorch for tests of the runtime ----------------===//
//
// A libtorch_cpu.so with the functions that the runtime looks up; it starts two threads per call. FAKE_STABLE selects
// the stable C interface of PyTorch 2.13 instead of that of earlier versions.
//
//===----------------------------------------------------------------------===//
#include <cstdint>
#include <pthread.h>

static int calls = 0;
extern "C" int fake_calls() { return calls; } // NOLINT(readability-identifier-naming): called from Python

template <typename Body> static void onTwoThreads(Body body) {
  ++calls;
  auto start = [](void *body) -> void * {
    (*static_cast<Body *>(body))(1);
    return nullptr;
  };
  pthread_t other;
  bool started = pthread_create(&other, nullptr, start, &body) == 0;
  body(0);
  if (started)
    pthread_join(other, nullptr);
}

// NOLINTBEGIN(readability-identifier-naming): the names of PyTorch and OpenMP.
#ifdef FAKE_STABLE
extern "C" int32_t torch_get_num_threads(uint32_t *threads) {
  *threads = 2;
  return 0;
}

extern "C" int32_t torch_parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t, int64_t, void *),
                                      void *context) {
  if (end - begin <= grain) { // too few items for two threads
    ++calls;
    body(begin, end, context);
    return 0;
  }
  int64_t middle = begin + (end - begin + 1) / 2;
  onTwoThreads([=](int thread) { body(thread ? middle : begin, thread ? end : middle, context); });
  return 0;
}
#else
extern "C" void GOMP_parallel(void (*body)(void *), void *context, unsigned, unsigned) {
  onTwoThreads([=](int) { body(context); });
}

namespace at {
int get_num_threads() { return 2; }
} // namespace at
#endif
// NOLINTEND(readability-identifier-naming)
