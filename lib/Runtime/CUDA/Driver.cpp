//===- Driver.cpp - The functions of the NVIDIA driver ------------------------===//
//
// Looked up when the first program for a GPU is called, for a program must load on machines that have none.
//
//===----------------------------------------------------------------------===//
#include "Driver.h"
#include "../Call/Message.h"
#include <atomic>
#include <dlfcn.h>
#include <pthread.h>

using namespace saccade::runtime;
using namespace saccade::runtime::cuda;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Lock::Lock() { pthread_mutex_lock(&mutex); }
Lock::~Lock() { pthread_mutex_unlock(&mutex); }

/// What the texts of the driver's are where it has none.
struct ErrorText {
  const char *name = "an unknown error", *meaning = "";
  ErrorText(const Driver &driver, Result result) {
    const char *found = nullptr;
    if (driver.getErrorName(result, &found) == Success && found)
      name = found;
    found = nullptr;
    if (driver.getErrorString(result, &found) == Success && found)
      meaning = found;
  }
};

static constexpr int32_t oldestVersion = 12000; // of CUDA 12.0: it takes PTX 8.0
static constexpr const char *wantedDriver = "wanted one for CUDA 12.0 or newer (version 525)";

/// Fills the table in; the first name that is missing, or null.
static const char *bind(void *library, Driver &driver) {
#define FUNCTION(member, symbol, parameters)                                                                           \
  if (!(driver.member = reinterpret_cast<decltype(driver.member)>(dlsym(library, symbol))))                            \
    return symbol;
  SACCADE_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
  return nullptr;
}

/// Loads and initialises the driver, with the lock held.
static SaccadeStatus load(const SaccadeEntry &entry, Driver &driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    return refuse(
        SaccadeUnsupported, entry,
        "runs on an NVIDIA GPU, and this machine has no driver for one (%s); install it, or compile for the CPU",
        why ? why : "libcuda.so.1 cannot be loaded");
  }
  // The version first: an old driver lacks functions.
  Result (*getVersion)(int32_t *) =
      reinterpret_cast<decltype(driver.driverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
  int32_t version = 0;
  if (!getVersion || getVersion(&version) != Success || version < oldestVersion)
    return refuse(SaccadeUnsupported, entry, "the NVIDIA driver is for CUDA %d.%d, %s: update it", version / 1000,
                  version % 1000 / 10, wantedDriver);
  if (const char *missing = bind(library, driver))
    return refuse(SaccadeUnsupported, entry, "the NVIDIA driver for CUDA %d.%d lacks %s, %s: update it", version / 1000,
                  version % 1000 / 10, missing, wantedDriver);
  Result result = driver.init(0);
  if (result == Success)
    return SaccadeSuccess;
  ErrorText text(driver, result);
  return refuse(SaccadeUnsupported, entry, "%s (%s: %s); see whether nvidia-smi lists one, and CUDA_VISIBLE_DEVICES",
                result == NoDevice ? "the NVIDIA driver finds no GPU" : "the NVIDIA driver does not start", text.name,
                text.meaning);
}

const Driver *cuda::requireDriver(const SaccadeEntry &entry, SaccadeStatus &status) {
  static Driver driver;
  static std::atomic<bool> isReady{false};
  if (isReady.load(std::memory_order_acquire))
    return &driver;
  Lock lock;
  if (isReady.load(std::memory_order_relaxed))
    return &driver;
  if ((status = load(entry, driver)))
    return nullptr;
  isReady.store(true, std::memory_order_release);
  return &driver;
}

SaccadeStatus cuda::refuseResult(const SaccadeEntry &entry, const Driver &driver, Result result, const char *doing,
                                 const char *object) {
  ErrorText text(driver, result);
  SaccadeStatus status = result == OutOfMemory ? SaccadeOutOfMemory : SaccadeDeviceError;
  if (object)
    return refuse(status, entry, "%s '%s': the NVIDIA driver reports %s: %s", doing, object, text.name, text.meaning);
  return refuse(status, entry, "%s: the NVIDIA driver reports %s: %s", doing, text.name, text.meaning);
}
