//===- OnGPU.cpp - Calls on a GPU ---------------------------------------------===//
//
// Allocates device memory and copies tensors with the CUDA driver API on the default stream.
//
//===----------------------------------------------------------------------===//
#include "OnGPU.h"
#include "llvm/ADT/ScopeExit.h"
#include <dlfcn.h>

using namespace saccade;
using namespace saccade::run;

char NoDevice::ID = 0;

namespace {

/// The functions of the driver API that a call requires.
class Driver {
public:
  using Context = struct ContextData *;
  using Address = uint64_t;

  /// Loads the driver and makes the primary context of the first GPU current.
  llvm::Error start() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
      return llvm::make_error<NoDevice>("this machine has no NVIDIA driver (" + llvm::StringRef(dlerror()) +
                                        "); --device=ptxsim runs the same kernels without a GPU");
    bool isWhole = bind(library, "cuInit", init) && bind(library, "cuDevicePrimaryCtxRetain", retain) &&
                   bind(library, "cuCtxSetCurrent", setCurrent) && bind(library, "cuMemAlloc_v2", allocate) &&
                   bind(library, "cuMemFree_v2", free) && bind(library, "cuMemcpyHtoD_v2", copyToDevice) &&
                   bind(library, "cuMemcpyDtoH_v2", copyToHost) && bind(library, "cuCtxSynchronize", synchronize) &&
                   bind(library, "cuGetErrorName", errorName);
    if (!isWhole)
      return llvm::createStringError("the NVIDIA driver lacks functions: update it");
    Context context = nullptr;
    if (llvm::Error error = check(init(0), "starting the NVIDIA driver"))
      return error;
    if (llvm::Error error = check(retain(&context, 0), "entering the first GPU"))
      return error;
    return check(setCurrent(context), "entering the first GPU");
  }

  llvm::Error check(int32_t result, llvm::StringRef doing) const {
    if (result == 0)
      return llvm::Error::success();
    const char *name = nullptr;
    if (errorName(result, &name) != 0 || !name)
      name = "an unknown error";
    return llvm::createStringError(doing + ": the NVIDIA driver reports " + name);
  }

  int32_t (*init)(uint32_t flags);
  int32_t (*retain)(Context *context, int32_t device);
  int32_t (*setCurrent)(Context context);
  int32_t (*allocate)(Address *memory, size_t bytes);
  int32_t (*free)(Address memory);
  int32_t (*copyToDevice)(Address to, const void *from, size_t bytes);
  int32_t (*copyToHost)(void *to, Address from, size_t bytes);
  int32_t (*synchronize)();
  int32_t (*errorName)(int32_t result, const char **name);

private:
  template <typename Function> static bool bind(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function;
  }
};

} // namespace

llvm::Error run::runOnGPU(const Call &call, llvm::ArrayRef<HostTensor> inputs,
                          llvm::MutableArrayRef<HostTensor> results) {
  Driver driver;
  if (llvm::Error error = driver.start())
    return error;
  std::vector<Driver::Address> memories;
  llvm::scope_exit release([&] {
    for (Driver::Address memory : memories)
      (void)driver.free(memory);
  });
  auto reserve = [&](const HostTensor &tensor, Buffer &buffer) -> llvm::Error {
    Driver::Address memory = 0;
    auto bytes = static_cast<size_t>(std::max<int64_t>(tensor.bytes(), 16));
    if (llvm::Error error = driver.check(driver.allocate(&memory, bytes), "allocating GPU memory"))
      return error;
    memories.push_back(memory);
    buffer.data = reinterpret_cast<void *>(memory);
    return llvm::Error::success();
  };
  Call onDevice = call;
  for (auto [type, tensor, buffer] : llvm::zip_equal(call.entry.arguments, inputs, onDevice.inputs)) {
    if (!type.isTensor)
      continue;
    if (llvm::Error error = reserve(tensor, buffer))
      return error;
    if (llvm::Error error =
            driver.check(driver.copyToDevice(memories.back(), tensor.data(), static_cast<size_t>(tensor.bytes())),
                         "copying arguments"))
      return error;
  }
  for (auto [place, tensor] : llvm::zip_equal(call.results, results))
    if (place >= inputs.size())
      if (llvm::Error error = reserve(tensor, onDevice.buffer(place)))
        return error;
  if (llvm::Error error = call.executable.call(call.entry, onDevice.inputs, onDevice.outputs))
    return error;
  if (llvm::Error error = driver.check(driver.synchronize(), "running the kernels"))
    return error;
  for (auto [place, tensor] : llvm::zip_equal(call.results, results)) {
    auto memory = reinterpret_cast<Driver::Address>(onDevice.buffer(place).data);
    if (llvm::Error error = driver.check(driver.copyToHost(tensor.data(), memory, static_cast<size_t>(tensor.bytes())),
                                         "copying results"))
      return error;
  }
  return llvm::Error::success();
}
