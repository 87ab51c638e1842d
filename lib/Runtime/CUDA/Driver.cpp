//===- Driver.cpp - Loads the CUDA driver -------------------------------------===//
//
// Loads the driver at the first call of a GPU program, so that programs load on machines without a GPU.
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

/// The name and description of a driver error.
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

static constexpr int32_t oldestVersion = 12000; // CUDA 12.0, which accepts PTX 8.0
static constexpr const char *expectedDriver = "expected one for CUDA 12.0 or newer (version 525)";

/// Looks up all functions; returns the first missing name, or null.
static const char *bind(void *library, Driver &driver) {
#define FUNCTION(member, symbol, parameters)                                                                           \
  if (!(driver.member = reinterpret_cast<decltype(driver.member)>(dlsym(library, symbol))))                            \
    return symbol;
  SACCADE_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
  return nullptr;
}

/// Loads and initialises the driver. The lock must be held.
static SaccadeStatus load(const SaccadeEntry &entry, Driver &driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    return refuse(SaccadeUnsupported, entry,
                  "requires an NVIDIA GPU, but this machine has no driver (%s); install it, or compile for the CPU",
                  why ? why : "libcuda.so.1 cannot be loaded");
  }
  // Check the version first, because an old driver lacks functions.
  Result (*getVersion)(int32_t *) =
      reinterpret_cast<decltype(driver.driverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
  int32_t version = 0;
  if (!getVersion || getVersion(&version) != Success || version < oldestVersion)
    return refuse(SaccadeUnsupported, entry, "the NVIDIA driver is for CUDA %d.%d, %s: update it", version / 1000,
                  version % 1000 / 10, expectedDriver);
  if (const char *missing = bind(library, driver))
    return refuse(SaccadeUnsupported, entry, "the NVIDIA driver for CUDA %d.%d lacks %s, %s: update it", version / 1000,
                  version % 1000 / 10, missing, expectedDriver);
  Result result = driver.init(0);
  if (result == Success)
    return SaccadeSuccess;
  ErrorText text(driver, result);
  return refuse(SaccadeUnsupported, entry, "%s (%s: %s); check nvidia-smi and CUDA_VISIBLE_DEVICES",
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

SaccadeStatus cuda::refuseDevice(const SaccadeEntry &entry, const Driver &driver, const char *subject,
                                 int32_t ordinal) {
  int32_t count = 0;
  if (Result result = driver.deviceGetCount(&count); result != Success)
    return refuseResult(entry, driver, result, "counting the GPUs");
  return refuse(SaccadeValueError, entry, "%s cuda:%d, but the NVIDIA driver reports %d GPU%s", subject, ordinal, count,
                count == 1 ? "" : "s");
}

SaccadeStatus cuda::readCapability(const Driver &driver, const SaccadeEntry &entry, Device device,
                                   int32_t &capability) {
  int32_t major = 0, minor = 0;
  Result result = driver.deviceGetAttribute(&major, CapabilityMajor, device);
  if (result == Success)
    result = driver.deviceGetAttribute(&minor, CapabilityMinor, device);
  if (result != Success)
    return refuseResult(entry, driver, result, "reading the GPU's compute capability");
  capability = 10 * major + minor;
  return SaccadeSuccess;
}
