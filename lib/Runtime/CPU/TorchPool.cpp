//===- TorchPool.cpp - PyTorch's threads --------------------------------------===//
//
// The runtime does not link PyTorch. It looks up the functions in libtorch_cpu.so after that is loaded, and not in the
// whole process, which may contain several OpenMP runtimes.
//
//===----------------------------------------------------------------------===//
#include "TorchPool.h"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

using namespace saccade::runtime;

/// The number of libraries that this process has loaded so far.
static uint64_t librariesLoaded() {
  uint64_t count = 0;
  auto first = [](dl_phdr_info *info, size_t, void *count) {
    *static_cast<uint64_t *>(count) = info->dlpi_adds;
    return 1; // the counter is the same for every object
  };
  dl_iterate_phdr(first, &count);
  return count;
}

/// Whether this process was forked and has not called exec: the flag PF_FORKNOEXEC in the ninth field of its stat.
static bool isForked() {
  char text[512];
  int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
  if (file >= 0)
    close(file);
  if (length <= 0)
    return false;
  text[length] = 0;
  const char *field = strrchr(text, ')'); // the end of field 2, a name of arbitrary characters
  for (int number = 2; field && number < 9; ++number)
    field = strchr(field + 1, ' ');
  constexpr unsigned long forkNoExec = 0x40;
  return field && (strtoul(field, nullptr, 10) & forkNoExec);
}

template <typename Function> static bool lookUp(void *library, const char *name, Function &function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function;
}

bool TorchPool::bind(void *library) {
  if (lookUp(library, "torch_parallel_for", parallelFor) && lookUp(library, "torch_get_num_threads", getNumThreads))
    return true;
  parallelFor = nullptr;
  // at::get_num_threads, unlike omp_get_max_threads, also sets the number in a thread that is new to OpenMP.
  return lookUp(library, "GOMP_parallel", gompParallel) &&
         (lookUp(library, "_ZN2at15get_num_threadsEv", atGetNumThreads) ||
          lookUp(library, "omp_get_max_threads", atGetNumThreads));
}

const TorchPool *TorchPool::find() {
  static TorchPool pool;
  static std::atomic<const TorchPool *> found{nullptr};
  static std::atomic<uint64_t> loadedAtSearch{0};
  static std::atomic<bool> searching{false};
  static pid_t searchedIn = 0; // process of the last failed search; guarded by `searching`

  if (const TorchPool *known = found.load(std::memory_order_acquire))
    return known;
  uint64_t loaded = librariesLoaded();
  if (loaded == loadedAtSearch.load(std::memory_order_relaxed) || searching.exchange(true, std::memory_order_acquire))
    return found.load(std::memory_order_acquire);
  if (void *library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_NOW); library && !found && pool.bind(library)) {
    // PyTorch's threads are missing if it was loaded before a fork, which a failed search in this process rules out.
    pool.process = searchedIn == getpid() || !isForked() ? getpid() : 0;
    found.store(&pool, std::memory_order_release);
  }
  searchedIn = getpid();
  loadedAtSearch.store(loaded, std::memory_order_relaxed);
  searching.store(false, std::memory_order_release);
  return found.load(std::memory_order_acquire);
}

bool TorchPool::isAlive() const { return process == getpid(); }

int32_t TorchPool::threads() const {
  uint32_t count = 1;
  if (!parallelFor)
    count = static_cast<uint32_t>(std::max(1, atGetNumThreads()));
  else if (getNumThreads(&count) != 0)
    count = 1;
  return static_cast<int32_t>(std::clamp<uint32_t>(count, 1, INT32_MAX));
}

void TorchPool::run(int32_t workers, saccade_work work, void *context) const {
  struct Team {
    saccade_work work;
    void *context;
    std::atomic<int32_t> places;
  } team{work, context, {workers}};
  if (parallelFor) {
    // One iteration per worker. After an error, saccade_parallel_for runs the remaining items.
    auto body = [](int64_t, int64_t, void *team) {
      static_cast<Team *>(team)->work(static_cast<Team *>(team)->context);
    };
    parallelFor(0, workers, 1, body, &team);
    return;
  }
  // The team always has PyTorch's size, because libgomp restarts threads when the size changes.
  auto body = [](void *data) {
    auto *team = static_cast<Team *>(data);
    if (team->places.fetch_sub(1, std::memory_order_relaxed) > 0)
      team->work(team->context);
  };
  gompParallel(body, &team, 0, 0);
}
