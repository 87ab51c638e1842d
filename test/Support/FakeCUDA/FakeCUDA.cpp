//===- FakeCUDA.cpp - A fake CUDA driver for tests ----------------------------===//
//
// Exports the functions of libcuda.so.1 that the runtime calls, with the driver's ABI. Memory and kernels are simulated
// by PtxSim; a launch runs synchronously. Calls that a global capture forbids fail. Calls are logged, and the result of
// each function can be set.
//
//   SACCADE_DOUBLE   "cuInit=100 version=11040 capability=75": results of functions and properties of the machine;
//                    "hang=NAME", "fault=NAME": launches of kernels whose names contain NAME never end, or fail and
//                    with them all later calls
//   double_set, double_log, ... the same from a test
//
//===----------------------------------------------------------------------===//
#include "Machine.h"
#include "saccade/PtxSim/TensorMap.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

using namespace fakecuda;

namespace {

int64_t setting(const char *name) { return machine().settings[name]; }

Result allocate(Address *memory, size_t bytes) {
  if (bytes == 0)
    return invalidValue;
  if (machine().used() + int64_t(bytes) > setting("memory"))
    return outOfMemory;
  *memory = machine().memory.allocate(uint64_t(bytes), "device memory");
  machine().sizes[*memory] = bytes;
  return success;
}

Result release(Address memory) {
  if (!machine().sizes.erase(memory))
    return invalidValue;
  return machine().memory.release(memory) ? success : invalidValue;
}

/// Adds an operation to the graph of a capture, or runs it.
Result enqueue(std::function<Result()> operation) {
  if (!machine().graph)
    return operation();
  machine().graph->nodes.push_back(std::move(operation));
  return success;
}

} // namespace

Result fakecuda::runKernel(const Kernel &kernel, const Launch &launch) {
  auto isNamed = [&](const char *event) {
    auto it = machine().names.find(event);
    return it != machine().names.end() && llvm::StringRef(kernel.name).contains(it->second);
  };
  while (isNamed("hang"))
    std::this_thread::sleep_for(std::chrono::seconds(1));
  if (isNamed("fault")) {
    machine().isLost = true;
    machine().finding = "requested by the test";
    return launchFailed;
  }
  Report report = kernel.module->program.run(kernel.name, launch);
  machine().memory.endLaunch();
  if (!report.finding)
    return success;
  machine().finding = report.finding->str();
  return launchFailed;
}

// NOLINTBEGIN(readability-identifier-naming): the names of the driver's functions, and functions called from Python.
//===----------------------------------------------------------------------===//
// The driver
//===----------------------------------------------------------------------===//

EXPORTED Result cuInit(uint32_t) {
  Call call("cuInit");
  RETURN_IF(call.check(false));
  if (setting("devices") == 0)
    return 100;
  machine().isInitialized = true;
  return success;
}
EXPORTED Result cuDriverGetVersion(int32_t *version) {
  Call call("cuDriverGetVersion");
  *version = int32_t(setting("version"));
  return call.check(false);
}
EXPORTED Result cuGetErrorName(Result result, const char **name) {
  static const std::map<Result, const char *> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},   {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {3, "CUDA_ERROR_NOT_INITIALIZED"}, {100, "CUDA_ERROR_NO_DEVICE"},
      {200, "CUDA_ERROR_INVALID_IMAGE"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {500, "CUDA_ERROR_NOT_FOUND"},     {999, "CUDA_ERROR_UNKNOWN"},
  };
  auto it = names.find(result);
  *name = it == names.end() ? nullptr : it->second;
  return *name ? success : invalidValue;
}
EXPORTED Result cuGetErrorString(Result result, const char **text) {
  *text = result == launchFailed ? machine().finding.c_str() : "set by the test";
  return success;
}
EXPORTED Result cuDeviceGet(int32_t *device, int32_t ordinal) {
  Call call("cuDeviceGet");
  RETURN_IF(call.check());
  *device = ordinal;
  return ordinal >= 0 && ordinal < setting("devices") ? success : invalidDevice;
}
EXPORTED Result cuDeviceGetCount(int32_t *count) {
  Call call("cuDeviceGetCount");
  *count = int32_t(setting("devices"));
  return call.check();
}
EXPORTED Result cuDeviceGetName(char *name, int32_t size, int32_t) {
  Call call("cuDeviceGetName");
  RETURN_IF(call.check());
  strncpy(name, "a simulated GPU", size_t(size));
  return success;
}
EXPORTED Result cuDeviceGetAttribute(int32_t *value, int32_t attribute, int32_t) {
  Call call("cuDeviceGetAttribute", std::to_string(attribute));
  RETURN_IF(call.check());
  switch (attribute) {
  case 75:
    *value = int32_t(setting("capability") / 10);
    return success;
  case 76:
    *value = int32_t(setting("capability") % 10);
    return success;
  case 16:
    *value = int32_t(setting("multiprocessors"));
    return success;
  case 97:
    *value = int32_t(setting("shared"));
    return success;
  default:
    return invalidValue;
  }
}

//===----------------------------------------------------------------------===//
// Contexts
//===----------------------------------------------------------------------===//

EXPORTED Result cuDevicePrimaryCtxRetain(Context **context, int32_t device) {
  Call call("cuDevicePrimaryCtxRetain");
  RETURN_IF(call.check());
  auto &contexts = machine().contexts;
  while (contexts.size() <= size_t(device))
    contexts.push_back(std::make_unique<Context>(Context{int32_t(contexts.size()), contexts.size() + 1}));
  *context = contexts[device].get();
  return success;
}
EXPORTED Result cuCtxGetCurrent(Context **context) {
  Call call("cuCtxGetCurrent");
  *context = current.empty() ? nullptr : current.back();
  return call.check();
}
EXPORTED Result cuCtxGetDevice(int32_t *device) {
  Call call("cuCtxGetDevice");
  RETURN_IF(call.check());
  if (current.empty())
    return invalidContext;
  *device = current.back()->device;
  return success;
}
EXPORTED Result cuCtxGetId(Context *context, uint64_t *id) {
  Call call("cuCtxGetId");
  *id = context->id;
  return call.check();
}
EXPORTED Result cuCtxPushCurrent_v2(Context *context) {
  Call call("cuCtxPushCurrent");
  RETURN_IF(call.check());
  current.push_back(context);
  return success;
}
EXPORTED Result cuCtxSetCurrent(Context *context) {
  Call call("cuCtxSetCurrent");
  RETURN_IF(call.check());
  current.assign(1, context);
  return success;
}
EXPORTED Result cuCtxPopCurrent_v2(Context **context) {
  Call call("cuCtxPopCurrent");
  RETURN_IF(call.check());
  if (current.empty())
    return invalidContext;
  *context = current.back();
  current.pop_back();
  return success;
}
EXPORTED Result cuCtxSynchronize() {
  Call call("cuCtxSynchronize");
  return call.checkOutsideCapture();
}
EXPORTED Result cuStreamSynchronize(void *stream) {
  Call call("cuStreamSynchronize", streamText(stream));
  return call.checkOutsideCapture();
}
EXPORTED Result cuThreadExchangeStreamCaptureMode(int32_t *mode) {
  Call call("cuThreadExchangeStreamCaptureMode");
  std::swap(*mode, captureMode);
  return call.check();
}

//===----------------------------------------------------------------------===//
// Modules and launches
//===----------------------------------------------------------------------===//

EXPORTED Result cuModuleLoadDataEx(Module **module, const void *image, uint32_t count, int32_t *options,
                                   void **values) {
  bool isCubin = memcmp(image,
                        "\x7f"
                        "ELF",
                        4) == 0;
  llvm::StringRef text = isCubin ? "" : static_cast<const char *>(image);
  llvm::StringRef target = text.split(".target ").second.take_until([](char c) { return isspace(c) || c == ','; });
  Call call("cuModuleLoadDataEx", isCubin ? "cubin" : ("ptx " + target).str());
  RETURN_IF(call.checkOutsideCapture());
  if (current.empty())
    return invalidContext;
  if (isCubin) // only PTX can be simulated
    return noBinary;
  // Like the driver, refuse PTX for a newer GPU.
  int64_t architecture = 0;
  if (!target.consume_front("sm_") || target.consumeInteger(10, architecture) || architecture > setting("capability"))
    return unsupportedPTX;
  auto loaded = Program::load(text, machine().memory);
  if (auto *finding = std::get_if<Finding>(&loaded)) {
    for (uint32_t i = 0; i < count; ++i)
      if (options[i] == 5)
        strncpy(static_cast<char *>(values[i]), finding->str().c_str(), 200);
    return invalidPTX;
  }
  for (uint32_t i = 0; i < count; ++i)
    if (options[i] == 3 && setting("note"))
      snprintf(static_cast<char *>(values[i]), 200, "ptxas info : (C%d) Potential Performance Loss: wgmma.mma_async",
               int(setting("note")));
  machine().modules.push_back(std::make_unique<Module>(std::move(std::get<Program>(loaded))));
  *module = machine().modules.back().get();
  return success;
}
EXPORTED Result cuModuleUnload(Module *module) {
  Call call("cuModuleUnload");
  RETURN_IF(call.check());
  auto &modules = machine().modules;
  auto it = llvm::find_if(modules, [&](const auto &known) { return known.get() == module; });
  if (it == modules.end())
    return invalidValue;
  modules.erase(it);
  return success;
}
EXPORTED Result cuModuleGetFunction(Kernel **function, Module *module, const char *name) {
  Call call("cuModuleGetFunction", name);
  RETURN_IF(call.checkOutsideCapture());
  if (!module->program.parameterBytes(name))
    return notFound;
  module->kernels.push_back(std::make_unique<Kernel>(Kernel{module, name, 48 << 10}));
  *function = module->kernels.back().get();
  return success;
}
EXPORTED Result cuModuleGetGlobal_v2(Address *memory, size_t *, Module *module, const char *name) {
  Call call("cuModuleGetGlobal", name);
  RETURN_IF(call.checkOutsideCapture());
  std::optional<uint64_t> found = module->program.variable(name);
  *memory = found.value_or(0);
  return found ? success : notFound;
}
EXPORTED Result cuFuncGetAttribute(int32_t *value, int32_t attribute, Kernel *) {
  Call call("cuFuncGetAttribute", std::to_string(attribute));
  *value = 0; // static shared memory is not computed
  return attribute == 1 ? call.check() : invalidValue;
}
EXPORTED Result cuFuncSetAttribute(Kernel *function, int32_t attribute, int32_t value) {
  Call call("cuFuncSetAttribute", std::to_string(attribute) + " " + std::to_string(value));
  RETURN_IF(call.check());
  if (attribute != 8 || value > setting("shared"))
    return invalidValue;
  function->sharedLimit = std::max<int64_t>(function->sharedLimit, value);
  return success;
}
EXPORTED Result cuLaunchKernel(Kernel *function, uint32_t gridX, uint32_t gridY, uint32_t gridZ, uint32_t blockX,
                               uint32_t blockY, uint32_t blockZ, uint32_t sharedBytes, void *stream, void **,
                               void **extra) {
  Call call("cuLaunchKernel", function->name + " " + streamText(stream));
  RETURN_IF(call.check());
  if (machine().isCapturing && stream != machine().capturing)
    return captureUnsupported;
  if (current.empty())
    return invalidContext;
  if (int64_t(sharedBytes) > function->sharedLimit)
    return invalidValue;
  Launch launch;
  launch.grid = {gridX, gridY, gridZ};
  launch.block = {blockX, blockY, blockZ};
  launch.dynamicShared = sharedBytes;
  // {1, parameters, 2, &bytes, 0}
  const auto *parameters = static_cast<const uint8_t *>(extra[1]);
  launch.parameters.assign(parameters, parameters + *static_cast<size_t *>(extra[3]));
  launch.threads = 2;
  return enqueue([=] { return runKernel(*function, launch); });
}

EXPORTED Result cuTensorMapEncodeTiled(void *map, uint32_t type, uint32_t rank, uint64_t address,
                                       const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
                                       const uint32_t *elementStrides, uint32_t interleave, uint32_t swizzle, uint32_t,
                                       uint32_t fill) {
  Call call("cuTensorMapEncodeTiled");
  RETURN_IF(call.check());
  if (interleave || fill || reinterpret_cast<uintptr_t>(map) % alignof(TensorMap) || rank < 1 || rank > 5)
    return invalidValue;
  TiledTensor tensor;
  tensor.type = static_cast<TensorType>(type);
  tensor.rank = rank;
  tensor.address = address;
  std::copy_n(extents, rank, tensor.extents.begin());
  std::copy_n(strides, rank - 1, tensor.strides.begin());
  std::copy_n(box, rank, tensor.box.begin());
  std::copy_n(elementStrides, rank, tensor.elementStrides.begin());
  tensor.swizzle = static_cast<TensorSwizzle>(swizzle);
  auto encoded = encodeTiled(tensor);
  if (const auto *made = std::get_if<TensorMap>(&encoded)) {
    memcpy(map, made->bytes.data(), made->bytes.size());
    return success;
  }
  return invalidValue;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

EXPORTED Result cuMemPoolCreate(void **pool, const int32_t *properties) {
  Call call("cuMemPoolCreate");
  RETURN_IF(call.checkOutsideCapture());
  static int32_t one;
  *pool = &one;
  // Pinned, not exported, on a device.
  return properties[0] == 1 && properties[1] == 0 && properties[2] == 1 ? success : invalidValue;
}
EXPORTED Result cuMemPoolSetAttribute(void *, int32_t attribute, void *) {
  Call call("cuMemPoolSetAttribute", std::to_string(attribute));
  return call.check();
}
EXPORTED Result cuMemAllocFromPoolAsync(Address *memory, size_t bytes, void *, void *stream) {
  Call call("cuMemAllocFromPoolAsync", streamText(stream));
  RETURN_IF(call.check());
  return allocate(memory, bytes);
}
EXPORTED Result cuMemFreeAsync(Address memory, void *stream) {
  Call call("cuMemFreeAsync", streamText(stream));
  RETURN_IF(call.check());
  return machine().graph ? success : release(memory); // the launches of a graph use it again
}
EXPORTED Result cuMemsetD32Async(Address memory, uint32_t word, size_t count, void *stream) {
  Call call("cuMemsetD32Async", streamText(stream));
  RETURN_IF(call.check());
  if (machine().isCapturing && stream != machine().capturing)
    return captureUnsupported;
  return enqueue([=] {
    std::vector<uint32_t> words(count, word);
    bool isWritten = machine().memory.write(memory, {reinterpret_cast<const uint8_t *>(words.data()), 4 * count});
    return isWritten ? success : invalidValue;
  });
}
EXPORTED Result cuMemAlloc_v2(Address *memory, size_t bytes) {
  Call call("cuMemAlloc");
  RETURN_IF(call.checkOutsideCapture());
  return allocate(memory, bytes);
}
EXPORTED Result cuMemFree_v2(Address memory) {
  Call call("cuMemFree");
  RETURN_IF(call.checkOutsideCapture());
  return release(memory);
}
EXPORTED Result cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
  Call call("cuMemcpyHtoD");
  RETURN_IF(call.checkOutsideCapture());
  return machine().memory.write(to, {static_cast<const uint8_t *>(from), bytes}) ? success : invalidValue;
}
EXPORTED Result cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) {
  Call call("cuMemcpyDtoH");
  RETURN_IF(call.checkOutsideCapture());
  return machine().memory.read(from, {static_cast<uint8_t *>(to), bytes}) ? success : invalidValue;
}

EXPORTED Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void *stream) {
  Call call("cuMemcpyDtoDAsync", streamText(stream));
  RETURN_IF(call.checkOutsideCapture());
  std::vector<uint8_t> content(bytes);
  return machine().memory.read(from, content) && machine().memory.write(to, content) ? success : invalidValue;
}

//===----------------------------------------------------------------------===//
// Functions for tests
//===----------------------------------------------------------------------===//

/// Sets the result of a function or a property of the machine. A result of 0 resets it.
EXPORTED void double_set(const char *name, int64_t value) {
  std::lock_guard guard(machine().lock);
  machine().settings[name] = value;
}
/// The calls since the last log, one per line.
EXPORTED const char *double_log() {
  std::lock_guard guard(machine().lock);
  machine().sharedText = std::move(machine().log);
  machine().log.clear();
  return machine().sharedText.c_str();
}
/// Starts or ends the capture of `stream` in global mode.
EXPORTED void double_capture(void *stream, int32_t on) {
  std::lock_guard guard(machine().lock);
  machine().capturing = stream;
  machine().isCapturing = on;
}
/// The number of unwritten bytes in [memory, memory + size).
EXPORTED uint64_t double_undefined(Address memory, uint64_t size) {
  std::lock_guard guard(machine().lock);
  return machine().memory.undefinedBytes(memory, size);
}
/// The number of live allocations.
EXPORTED int64_t double_allocations() {
  std::lock_guard guard(machine().lock);
  return int64_t(machine().sizes.size());
}
// NOLINTEND(readability-identifier-naming)
