//===- Driver.h - The functions of the CUDA driver ----------------*- C++ -*-===//
//
// Declares the functions of the CUDA driver API that the runtime calls (stable ABI, CUDA 12.0 and later).
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_LIB_RUNTIME_CUDA_DRIVER_H
#define SACCADE_LIB_RUNTIME_CUDA_DRIVER_H

#include "saccade/Runtime/Entry.h"
#include <cstddef>

namespace saccade::runtime::cuda {

using Device = int32_t;   ///< CUdevice
using Address = uint64_t; ///< CUdeviceptr
struct ContextData;
struct ModuleData;
struct FunctionData;
struct StreamData;
struct PoolData;
using Context = ContextData *;
using Module = ModuleData *;
using Function = FunctionData *;
using Stream = StreamData *;
using Pool = PoolData *;

/// CUresult: the values that the runtime distinguishes.
enum Result : int32_t {
  Success = 0,
  OutOfMemory = 2,
  NoDevice = 100,
  InvalidDevice = 101,
  NoBinaryForGPU = 209,
  JITCompilerNotFound = 221,
  UnsupportedPTXVersion = 222,
};

/// CUdevice_attribute
enum DeviceAttribute : int32_t {
  GridLimit = 5,
  MultiprocessorCount = 16,
  CapabilityMajor = 75,
  CapabilityMinor = 76,
  SharedLimit = 97
};
/// CUfunction_attribute
enum FunctionAttribute : int32_t { StaticShared = 1, DynamicSharedLimit = 8 };
/// CUjit_option
enum JITOption : int32_t { InfoLog = 3, InfoLogBytes = 4, ErrorLog = 5, ErrorLogBytes = 6 };
/// CUmemPool_attribute
enum PoolAttribute : int32_t { ReleaseThreshold = 4 };
/// CUstreamCaptureMode: Relaxed permits calls that are unsafe during a global capture.
enum CaptureMode : int32_t { Relaxed = 2 };

/// CUmemPoolProps
struct PoolProperties {
  int32_t allocation = 1;   ///< CU_MEM_ALLOCATION_TYPE_PINNED
  int32_t handles = 0;      ///< CU_MEM_HANDLE_TYPE_NONE: not exported to other processes
  int32_t locationType = 1; ///< CU_MEM_LOCATION_TYPE_DEVICE
  int32_t location = 0;
  void *security = nullptr;
  uint64_t reserved[8] = {}; ///< maximum size (0: no limit) and reserved fields
};

// Member, symbol, parameters. The symbol includes the version suffix of the function.
#define SACCADE_CUDA_FUNCTIONS(FUNCTION)                                                                               \
  FUNCTION(driverGetVersion, "cuDriverGetVersion", (int32_t *version))                                                 \
  FUNCTION(init, "cuInit", (uint32_t flags))                                                                           \
  FUNCTION(getErrorName, "cuGetErrorName", (Result result, const char **name))                                         \
  FUNCTION(getErrorString, "cuGetErrorString", (Result result, const char **text))                                     \
  FUNCTION(deviceGet, "cuDeviceGet", (Device * device, int32_t ordinal))                                               \
  FUNCTION(deviceGetCount, "cuDeviceGetCount", (int32_t *count))                                                       \
  FUNCTION(deviceGetAttribute, "cuDeviceGetAttribute", (int32_t *value, DeviceAttribute attribute, Device device))     \
  FUNCTION(primaryContextRetain, "cuDevicePrimaryCtxRetain", (Context * context, Device device))                       \
  FUNCTION(contextGetCurrent, "cuCtxGetCurrent", (Context * context))                                                  \
  FUNCTION(contextGetDevice, "cuCtxGetDevice", (Device * device))                                                      \
  FUNCTION(contextGetId, "cuCtxGetId", (Context context, uint64_t *id))                                                \
  FUNCTION(contextPush, "cuCtxPushCurrent_v2", (Context context))                                                      \
  FUNCTION(contextPop, "cuCtxPopCurrent_v2", (Context * context))                                                      \
  FUNCTION(exchangeCaptureMode, "cuThreadExchangeStreamCaptureMode", (CaptureMode * mode))                             \
  FUNCTION(moduleLoadDataEx, "cuModuleLoadDataEx",                                                                     \
           (Module * module, const void *image, uint32_t count, JITOption *options, void **values))                    \
  FUNCTION(moduleUnload, "cuModuleUnload", (Module module))                                                            \
  FUNCTION(moduleGetFunction, "cuModuleGetFunction", (Function * function, Module module, const char *name))           \
  FUNCTION(moduleGetGlobal, "cuModuleGetGlobal_v2",                                                                    \
           (Address * memory, size_t *bytes, Module module, const char *name))                                         \
  FUNCTION(functionGetAttribute, "cuFuncGetAttribute",                                                                 \
           (int32_t *value, FunctionAttribute attribute, Function function))                                           \
  FUNCTION(functionSetAttribute, "cuFuncSetAttribute",                                                                 \
           (Function function, FunctionAttribute attribute, int32_t value))                                            \
  FUNCTION(launchKernel, "cuLaunchKernel",                                                                             \
           (Function function, uint32_t gridX, uint32_t gridY, uint32_t gridZ, uint32_t blockX, uint32_t blockY,       \
            uint32_t blockZ, uint32_t sharedBytes, Stream stream, void **parameters, void **extra))                    \
  FUNCTION(tensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                                             \
           (void *map, uint32_t type, uint32_t rank, uint64_t address, const uint64_t *extents,                        \
            const uint64_t *strides, const uint32_t *box, const uint32_t *elementStrides, uint32_t interleave,         \
            uint32_t swizzle, uint32_t promotion, uint32_t fill))                                                      \
  FUNCTION(allocate, "cuMemAlloc_v2", (Address * memory, size_t bytes))                                                \
  FUNCTION(free, "cuMemFree_v2", (Address memory))                                                                     \
  FUNCTION(poolCreate, "cuMemPoolCreate", (Pool * pool, const PoolProperties *properties))                             \
  FUNCTION(poolSetAttribute, "cuMemPoolSetAttribute", (Pool pool, PoolAttribute attribute, void *value))               \
  FUNCTION(allocateFromPool, "cuMemAllocFromPoolAsync", (Address * memory, size_t bytes, Pool pool, Stream stream))    \
  FUNCTION(freeAsync, "cuMemFreeAsync", (Address memory, Stream stream))                                               \
  FUNCTION(setWordsAsync, "cuMemsetD32Async", (Address memory, uint32_t word, size_t count, Stream stream))

struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define FUNCTION(member, symbol, parameters) Result(*member) parameters;
  SACCADE_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/// The initialised driver. Returns null and sets `status` and a message if there is no usable driver; a later call
/// tries again.
const Driver *requireDriver(const SaccadeEntry &entry, SaccadeStatus &status);

/// Sets a message for a driver error during `doing` ("launching kernel 'x'"), with the error's name and description.
/// Returns the status of the call.
SaccadeStatus refuseResult(const SaccadeEntry &entry, const Driver &driver, Result result, const char *doing,
                           const char *object = nullptr);

/// Sets a message for the device ordinal `ordinal`, which does not exist: "`subject` cuda:3, but ...".
SaccadeStatus refuseDevice(const SaccadeEntry &entry, const Driver &driver, const char *subject, int32_t ordinal);

/// Writes the compute capability of a device, 80 for 8.0. On failure sets a message.
SaccadeStatus readCapability(const Driver &driver, const SaccadeEntry &entry, Device device, int32_t &capability);

/// Guards the creation of driver objects that the runtime keeps.
class Lock {
public:
  Lock();
  ~Lock();
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;
};

/// During its lifetime, this thread may make calls that a stream capture in global mode forbids.
class RelaxedCaptureScope {
public:
  explicit RelaxedCaptureScope(const Driver &driver) : driver(driver) { driver.exchangeCaptureMode(&mode); }
  ~RelaxedCaptureScope() { driver.exchangeCaptureMode(&mode); }
  RelaxedCaptureScope(const RelaxedCaptureScope &) = delete;
  RelaxedCaptureScope &operator=(const RelaxedCaptureScope &) = delete;

private:
  const Driver &driver;
  CaptureMode mode = Relaxed;
};

} // namespace saccade::runtime::cuda

#endif // SACCADE_LIB_RUNTIME_CUDA_DRIVER_H
