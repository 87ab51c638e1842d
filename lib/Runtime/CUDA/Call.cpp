//===- Call.cpp - Calls of entries on a GPU -----------------------------------===//
//
// Runs the host code of an entry on the calling thread. It enqueues kernels, allocations and releases on one stream, so
// calls are asynchronous and can be captured.
//
//===----------------------------------------------------------------------===//
#include "../Call/Message.h"
#include "LoadedModule.h"
#include "saccade/Runtime/BulkTensor.h"
#include "saccade/Runtime/CUDA.h"
#include <dlfcn.h>

using namespace saccade::runtime;
using namespace saccade::runtime::cuda;

namespace {

/// Makes a context of the device current, and restores the previous one at the end of its lifetime.
class CurrentContext {
public:
  explicit CurrentContext(const Driver &driver) : driver(driver) {}
  ~CurrentContext() {
    Context popped;
    if (hasPushed)
      (void)driver.contextPop(&popped);
  }
  CurrentContext(const CurrentContext &) = delete;
  CurrentContext &operator=(const CurrentContext &) = delete;

  SaccadeStatus enter(const SaccadeEntry &entry, int32_t ordinal) {
    Result result = driver.deviceGet(&device, ordinal);
    if (result == InvalidDevice)
      return refuseDevice(entry, driver, "a tensor is on", ordinal);
    Context current = nullptr;
    Device its = -1;
    if (result == Success)
      result = driver.contextGetCurrent(&current);
    if (result == Success && current)
      result = driver.contextGetDevice(&its);
    if (result == Success && (!current || its != device))
      result = enterPrimary(current);
    if (result == Success)
      result = driver.contextGetId(current, &id);
    return result == Success ? SaccadeSuccess : refuseResult(entry, driver, result, "entering a context of the GPU");
  }

  uint64_t id = 0;
  Device device = 0;

private:
  Result enterPrimary(Context &context) {
    static std::atomic<Context> primaries[64]; // never released, because modules are loaded in them
    bool isKept = device >= 0 && device < 64;
    context = isKept ? primaries[device].load(std::memory_order_acquire) : nullptr;
    if (!context) {
      Lock lock;
      if (Result result = driver.primaryContextRetain(&context, device); result != Success)
        return result;
      if (isKept)
        primaries[device].store(context, std::memory_order_release);
    }
    Result result = driver.contextPush(context);
    hasPushed = result == Success;
    return result;
  }

  const Driver &driver;
  bool hasPushed = false;
};

/// The call that is running on this thread.
struct Session {
  const SaccadeEntry &entry;
  const Driver &driver;
  LoadedModule &loaded;
  Stream stream;
  SaccadeStatus status = SaccadeSuccess; ///< of the first failure, whose message is kept
};

constinit thread_local Session *session = nullptr;
constinit thread_local void *chosenStream = nullptr;
constinit thread_local void *const *callStream = nullptr; ///< the stream of one call, before all others

using GetStream = void *(*)(int32_t deviceType, int32_t device);

/// TVM-FFI's function for the current stream of a device, which it sets to PyTorch's during calls with PyTorch tensors.
GetStream findGetStream() {
  static std::atomic<GetStream> known{nullptr};
  GetStream function = known.load(std::memory_order_relaxed);
  if (!function) {
    function = reinterpret_cast<GetStream>(dlsym(RTLD_DEFAULT, "TVMFFIEnvGetStream"));
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

Stream streamFor(int32_t device) {
  if (callStream)
    return static_cast<Stream>(*callStream);
  if (chosenStream)
    return static_cast<Stream>(chosenStream);
  GetStream getStream = findGetStream();
  return static_cast<Stream>(getStream ? getStream(kDLCUDA, device) : nullptr);
}

/// The memory pool of a device, which all calls share. Released memory stays in the pool for later calls.
Result requirePool(const Driver &driver, Device device, Pool &pool) {
  static std::atomic<Pool> pools[64];
  if (device < 0 || device >= 64)
    return InvalidDevice;
  if ((pool = pools[device].load(std::memory_order_acquire)))
    return Success;
  Lock lock;
  if ((pool = pools[device].load(std::memory_order_relaxed)))
    return Success;
  RelaxedCaptureScope relaxed(driver);
  PoolProperties properties;
  properties.location = device;
  uint64_t everything = UINT64_MAX;
  Result result = driver.poolCreate(&pool, &properties);
  if (result == Success)
    result = driver.poolSetAttribute(pool, ReleaseThreshold, &everything);
  if (result == Success)
    pools[device].store(pool, std::memory_order_release);
  return result;
}

/// Sets a valid address in the descriptors of empty tensors, because kernels may prefetch rows before they check
/// extents.
SaccadeStatus assignPlaceholders(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded, void **args) {
  SaccadeStatus status = SaccadeSuccess;
  for (int32_t i = 0; i < entry.num_inputs + entry.num_results; ++i) {
    // {allocated, aligned, offset, sizes[rank], strides[rank]}
    auto *descriptor = static_cast<int64_t *>(args[i]);
    bool isEmpty = false;
    for (int32_t j = 0; j < entry.values[i].rank; ++j)
      isEmpty |= descriptor[3 + j] == 0;
    if (!isEmpty)
      continue;
    Address placeholder = requirePlaceholder(driver, entry, loaded, status);
    if (!placeholder)
      return status;
    descriptor[0] = descriptor[1] = static_cast<int64_t>(placeholder);
  }
  return SaccadeSuccess;
}

} // namespace

SaccadeStatus saccade_cuda_call(const SaccadeEntry *entry, int32_t device, void **args, const char **message) {
  SaccadeStatus status = SaccadeSuccess;
  const Driver *driver = requireDriver(*entry, status);
  if (!driver)
    return status;
  CurrentContext context(*driver);
  if ((status = context.enter(*entry, device)))
    return status;
  LoadedModule *loaded = requireModule(*driver, entry, context.id, context.device, status);
  if (!loaded)
    return status;
  if ((status = assignPlaceholders(*driver, *entry, *loaded, args)))
    return status;
  Session here{*entry, *driver, *loaded, streamFor(device)};
  session = &here;
  *message = entry->call(args);
  session = nullptr;
  return here.status;
}

void saccade_launch(const char *name, const int64_t *params, int64_t count, int64_t ctas, int64_t threads,
                    int64_t shared_bytes) {
  if (session->status || ctas <= 0)
    return;
  const Driver &driver = session->driver;
  constexpr int64_t gridLimit = INT32_MAX;
  if (ctas > gridLimit) {
    session->status = refuse(SaccadeValueError, session->entry,
                             "kernel '%s' requires %lld CTAs, expected at most %lld: reduce the batch size", name,
                             static_cast<long long>(ctas), static_cast<long long>(gridLimit));
    return;
  }
  Function function = requireKernel(driver, session->entry, session->loaded, name, shared_bytes, session->status);
  if (!function)
    return;
  // The parameters are contiguous 8-byte words.
  size_t bytes = static_cast<size_t>(count) * sizeof(int64_t);
  void *extra[] = {reinterpret_cast<void *>(1), const_cast<int64_t *>(params), // CU_LAUNCH_PARAM_BUFFER_POINTER
                   reinterpret_cast<void *>(2), &bytes,                        // CU_LAUNCH_PARAM_BUFFER_SIZE
                   nullptr};                                                   // CU_LAUNCH_PARAM_END
  Result result = driver.launchKernel(function, static_cast<uint32_t>(ctas), 1, 1, static_cast<uint32_t>(threads), 1, 1,
                                      static_cast<uint32_t>(shared_bytes), session->stream, nullptr, extra);
  if (result != Success)
    session->status = refuseResult(session->entry, driver, result, "launching kernel", name);
}

int32_t saccade_encode_tensor_map(void *map, const int64_t *buffer, const int64_t *plan) {
  BulkTensor tensor;
  if (session->status || !tensor.describe(buffer, plan))
    return 0;
  constexpr uint32_t elementStrides[BulkTensor::maxRank] = {1, 1, 1, 1, 1};
  // CUtensorMapInterleave, CUtensorMapL2promotion and CUtensorMapFloatOOBfill: zeros outside of the tensor.
  constexpr int interleaveNone = 0, promotion128Bytes = 2, fillZeros = 0;
  return session->driver.tensorMapEncodeTiled(map, tensor.type, tensor.rank, tensor.address, tensor.extents,
                                              tensor.strides, tensor.box, elementStrides, interleaveNone,
                                              tensor.swizzle, promotion128Bytes, fillZeros) == Success;
}

void *saccade_device_constant(const char *name) {
  if (session->status)
    return nullptr;
  return reinterpret_cast<void *>(
      requireConstant(session->driver, session->entry, session->loaded, name, session->status));
}

void *saccade_device_allocate(int64_t bytes) {
  if (session->status)
    return nullptr;
  const Driver &driver = session->driver;
  Pool pool = nullptr;
  Address memory = 0;
  Result result = requirePool(driver, session->loaded.device, pool);
  if (result == Success)
    result = driver.allocateFromPool(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1), pool, session->stream);
  if (result == Success)
    return reinterpret_cast<void *>(memory);
  if (result == OutOfMemory)
    session->status = refuse(SaccadeOutOfMemory, session->entry,
                             "cuda:%d cannot allocate %lld bytes: free memory or reduce the batch size",
                             session->loaded.device, static_cast<long long>(bytes));
  else
    session->status = refuseResult(session->entry, driver, result, "allocating GPU memory");
  return nullptr;
}

void saccade_device_release(void *memory) {
  if (!memory)
    return;
  Result result = session->driver.freeAsync(reinterpret_cast<Address>(memory), session->stream);
  if (result != Success && !session->status)
    session->status = refuseResult(session->entry, session->driver, result, "releasing GPU memory");
}

void *saccade_device_counter() {
  void *counter = saccade_device_allocate(sizeof(uint32_t));
  if (!counter)
    return nullptr;
  Result result = session->driver.setWordsAsync(reinterpret_cast<Address>(counter), 0, 1, session->stream);
  if (result != Success)
    session->status = refuseResult(session->entry, session->driver, result, "clearing GPU memory");
  return counter;
}

int64_t saccade_multiprocessors() {
  LoadedModule &loaded = session->loaded;
  int32_t count = loaded.multiprocessors.load(std::memory_order_relaxed);
  if (count)
    return count;
  Result result = session->driver.deviceGetAttribute(&count, MultiprocessorCount, loaded.device);
  if (result == Success)
    loaded.multiprocessors.store(count, std::memory_order_relaxed);
  else if (!session->status)
    session->status = refuseResult(session->entry, session->driver, result, "counting multiprocessors");
  return result == Success ? count : 1;
}

void saccade_set_stream(void *stream) { chosenStream = stream; }

SaccadeStatus saccade_entry_call_on_stream(const SaccadeEntry *entry, const SaccadeArgument *args, int32_t count,
                                           void *stream) {
  callStream = &stream;
  SaccadeStatus status = saccade_entry_call(entry, args, count);
  callStream = nullptr;
  return status;
}

SaccadeStatus saccade_cuda_capability(const char *subject, int32_t ordinal, int32_t *capability) {
  SaccadeEntry unnamed = {};
  unnamed.name = subject;
  SaccadeStatus status = SaccadeSuccess;
  const Driver *driver = requireDriver(unnamed, status);
  if (!driver)
    return status;
  Device device = 0;
  Result result = driver->deviceGet(&device, ordinal);
  if (result == InvalidDevice)
    return refuseDevice(unnamed, *driver, "refers to", ordinal);
  return result == Success ? readCapability(*driver, unnamed, device, *capability)
                           : refuseResult(unnamed, *driver, result, "entering the GPU");
}
