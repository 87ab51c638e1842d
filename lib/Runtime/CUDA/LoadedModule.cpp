//===- LoadedModule.cpp - Kernels loaded in a context -------------------------===//
//
// Loads the kernels of a program once per context. The lists only grow, so lookups take no lock. Loading may happen
// during a stream capture, because it does not involve the stream.
//
//===----------------------------------------------------------------------===//
#include "LoadedModule.h"
#include "../Call/Message.h"
#include "saccade/Runtime/CUDA.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace saccade::runtime;
using namespace saccade::runtime::cuda;

namespace {

/// Allocates an object with the C library's allocator.
template <typename T> T *make() { return static_cast<T *>(std::aligned_alloc(alignof(T), sizeof(T))); }

std::atomic<LoadedModule *> &listOf(SaccadeKernels &kernels) {
  static_assert(sizeof(std::atomic<LoadedModule *>) == sizeof(void *));
  return reinterpret_cast<std::atomic<LoadedModule *> &>(kernels.loaded);
}

LoadedModule *findModule(const SaccadeEntry *&entry, uint64_t context) {
  for (const SaccadeEntry *other = entry; other; other = other->next)
    for (LoadedModule *loaded = listOf(*other->kernels).load(std::memory_order_acquire); loaded; loaded = loaded->next)
      if (loaded->context == context) {
        entry = other;
        return loaded;
      }
  return nullptr;
}

/// The CUDA version of the first driver whose compiler is right for kernels of sm_90a: that of CUDA 12.0 to 12.5 ends
/// the process, that of 12.6 to 12.8 completes every matrix product before it starts the next one.
constexpr int32_t warpgroupVersion = 12090;

/// A rank of kernels for a GPU of a compute capability (80 for 8.0), higher for newer architectures and for
/// architecture-specific code, but lowest for the latter with a driver that does not compile it; 0 if they are
/// incompatible.
int32_t compatibility(const SaccadeKernels &kernels, int32_t capability, int32_t version) {
  if (kernels.is_arch_specific ? kernels.architecture != capability : kernels.architecture > capability)
    return 0;
  if (kernels.is_arch_specific && version < warpgroupVersion)
    return 1;
  return 2 * kernels.architecture + kernels.is_arch_specific;
}

/// The newest target of the compiler that a GPU runs, "sm_80"; null for a GPU that runs none.
const char *targetFor(int32_t capability) { return capability >= 80 ? "sm_80" : capability >= 75 ? "sm_75" : nullptr; }

/// The target whose cubins a GPU runs, those of its major compute capability; null if there is none.
const char *cubinTargetFor(int32_t capability) {
  return capability == 90 ? "sm_90a" : capability / 10 <= 8 ? targetFor(capability) : nullptr;
}

/// The architectures of a program, for messages: "sm_80, sm_90a".
struct Architectures {
  char text[128] = {};
  explicit Architectures(const SaccadeEntry *entry) {
    for (int length = 0; entry && length < 100; entry = entry->next)
      length += snprintf(text + length, sizeof(text) - length, "%ssm_%d%s", length ? ", " : "",
                         entry->kernels->architecture, entry->kernels->is_arch_specific ? "a" : "");
  }
};

/// Loads a cubin, or PTX for the driver to compile, into the current context.
class ModuleLoader {
public:
  ModuleLoader(const Driver &driver, const SaccadeEntry &entry) : driver(driver), entry(entry) {}

  SaccadeStatus run(int32_t capability, int32_t version, Module &module) {
    const SaccadeKernels &kernels = *entry.kernels;
    // A cubin is compatible within a major compute capability only.
    if (kernels.cubin && kernels.architecture / 10 == capability / 10 && load(kernels.cubin, module) == Success)
      return SaccadeSuccess;
    if (kernels.is_arch_specific && version < warpgroupVersion)
      return refuse(
          SaccadeUnsupported, entry,
          "the kernels for sm_%da require an NVIDIA driver for CUDA %d.%d, found one for CUDA %d.%d: update it, "
          "or compile with --target=sm_80",
          kernels.architecture, warpgroupVersion / 1000, warpgroupVersion % 1000 / 10, version / 1000,
          version % 1000 / 10);
    Result result = load(kernels.ptx, module);
    if (result == Success) {
      warnOfSerialisation();
      return SaccadeSuccess;
    }
    if (result == UnsupportedPTXVersion || result == JITCompilerNotFound) {
      const char *target = cubinTargetFor(capability);
      return refuse(SaccadeUnsupported, entry, "the NVIDIA driver cannot compile the kernels (%s): update it%s%s",
                    result == UnsupportedPTXVersion ? "it is too old for their PTX"
                                                    : "its PTX compiler is not installed",
                    target ? ", or compile with ptxas and --target=" : "", target ? target : "");
    }
    if (result == NoBinaryForGPU || *log)
      return refuse(SaccadeDeviceError, entry, "the NVIDIA driver refuses the kernels for sm_%d on sm_%d: %s",
                    kernels.architecture, capability, *log ? log : "no binary for this GPU");
    return refuseResult(entry, driver, result, "loading the kernels");
  }

private:
  Result load(const void *image, Module &module) {
    JITOption options[] = {InfoLog, InfoLogBytes, ErrorLog, ErrorLogBytes};
    void *values[] = {notes, reinterpret_cast<void *>(sizeof(notes) - 1), log,
                      reinterpret_cast<void *>(sizeof(log) - 1)};
    return driver.moduleLoadDataEx(&module, image, 4, options, values);
  }

  /// ptxas notes with C75.. that it does not overlap the matmuls of a kernel.
  void warnOfSerialisation() const {
    if (const char *note = strstr(notes, "C75"))
      fprintf(stderr,
              "warning: %s: the NVIDIA driver does not overlap the matmuls of the kernels for sm_%d%s (%.5s): "
              "update it, or compile with ptxas\n",
              entry.name, entry.kernels->architecture, entry.kernels->is_arch_specific ? "a" : "", note);
  }

  const Driver &driver;
  const SaccadeEntry &entry;
  char log[1024] = {}, notes[4096] = {};
};

} // namespace

/// Selects and loads the kernels for a device. The lock must be held.
static LoadedModule *load(const Driver &driver, const SaccadeEntry *&entry, uint64_t context, Device device,
                          SaccadeStatus &status) {
  int32_t capability = 0, version = 0, best = 0;
  if ((status = readCapability(driver, *entry, device, capability)))
    return nullptr;
  if (Result result = driver.driverGetVersion(&version); result != Success) {
    status = refuseResult(*entry, driver, result, "reading the version of the driver");
    return nullptr;
  }
  const SaccadeEntry *chosen = nullptr;
  for (const SaccadeEntry *other = entry; other; other = other->next)
    if (int32_t fits = compatibility(*other->kernels, capability, version); fits > best) {
      best = fits;
      chosen = other;
    }
  if (!chosen) {
    const char *target = targetFor(capability);
    status = refuse(SaccadeUnsupported, *entry, "compiled for %s, but cuda:%d is sm_%d%s%s", Architectures(entry).text,
                    device, capability, target ? ": compile with --target=" : ", which runs no target of the compiler",
                    target ? target : "");
    return nullptr;
  }
  Module module = nullptr;
  if ((status = ModuleLoader(driver, *chosen).run(capability, version, module)))
    return nullptr;
  auto *loaded = make<LoadedModule>();
  if (!loaded) {
    driver.moduleUnload(module);
    status = refuse(SaccadeOutOfMemory, *entry, "out of memory");
    return nullptr;
  }
  std::atomic<LoadedModule *> &list = listOf(*chosen->kernels);
  new (loaded) LoadedModule{context, device, module, {}, {}, {}, {}, list.load(std::memory_order_relaxed)};
  list.store(loaded, std::memory_order_release);
  entry = chosen;
  return loaded;
}

LoadedModule *cuda::requireModule(const Driver &driver, const SaccadeEntry *&entry, uint64_t context, Device device,
                                  SaccadeStatus &status) {
  if (LoadedModule *found = findModule(entry, context))
    return found;
  Lock lock;
  if (LoadedModule *found = findModule(entry, context))
    return found;
  RelaxedCaptureScope relaxed(driver);
  return load(driver, entry, context, device, status);
}

Address cuda::requirePlaceholder(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded,
                                 SaccadeStatus &status) {
  if (Address known = loaded.placeholder.load(std::memory_order_acquire))
    return known;
  Lock lock;
  if (Address known = loaded.placeholder.load(std::memory_order_relaxed))
    return known;
  RelaxedCaptureScope relaxed(driver);
  Address memory = 0;
  if (Result result = driver.allocate(&memory, 256); result != Success) {
    status = refuseResult(entry, driver, result, "allocating GPU memory");
    return 0;
  }
  loaded.placeholder.store(memory, std::memory_order_release);
  return memory;
}

/// The value of a symbol that was looked up before, or null.
template <typename T> static T findKnown(const std::atomic<Symbol<T> *> &list, const char *name) {
  for (Symbol<T> *symbol = list.load(std::memory_order_acquire); symbol; symbol = symbol->next)
    if (symbol->name == name)
      return symbol->value;
  return T();
}

/// Returns the value of a symbol, which `lookUp` determines the first time; null if `lookUp` sets `status`.
template <typename T, typename LookUp>
static T require(const Driver &driver, std::atomic<Symbol<T> *> &list, const char *name, SaccadeStatus &status,
                 LookUp lookUp) {
  if (T found = findKnown(list, name))
    return found;
  Lock lock;
  if (T found = findKnown(list, name))
    return found;
  RelaxedCaptureScope relaxed(driver);
  T value = {};
  if ((status = lookUp(value)))
    return T();
  // If the allocation fails, the next launch looks the symbol up again.
  if (auto *symbol = make<Symbol<T>>()) {
    *symbol = {name, value, list.load(std::memory_order_relaxed)};
    list.store(symbol, std::memory_order_release);
  }
  return value;
}

template <typename T> static void clear(std::atomic<Symbol<T> *> &list) {
  for (Symbol<T> *symbol = list.load(std::memory_order_relaxed); symbol;) {
    Symbol<T> *next = symbol->next;
    std::free(symbol);
    symbol = next;
  }
}

/// Sets the limit of dynamic shared memory, which is required above 48 KiB.
static SaccadeStatus grantShared(const Driver &driver, const SaccadeEntry &entry, const LoadedModule &loaded,
                                 const char *name, Function function, int64_t bytes) {
  int32_t fixed = 0, limit = 0;
  Result result = driver.functionGetAttribute(&fixed, StaticShared, function);
  if (result == Success)
    result = driver.deviceGetAttribute(&limit, SharedLimit, loaded.device);
  if (result == Success && bytes + fixed > limit)
    return refuse(SaccadeUnsupported, entry,
                  "kernel '%s' requires %lld bytes of shared memory per CTA, but cuda:%d has %d: compile with --target "
                  "for this GPU's architecture",
                  name, static_cast<long long>(bytes) + fixed, loaded.device, limit);
  if (result == Success && bytes > 0)
    result = driver.functionSetAttribute(function, DynamicSharedLimit, static_cast<int32_t>(bytes));
  return result == Success ? SaccadeSuccess
                           : refuseResult(entry, driver, result, "setting the shared memory of kernel", name);
}

Function cuda::requireKernel(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded, const char *name,
                             int64_t sharedBytes, SaccadeStatus &status) {
  return require(driver, loaded.kernels, name, status, [&](Function &function) {
    Result result = driver.moduleGetFunction(&function, loaded.module, name);
    return result == Success ? grantShared(driver, entry, loaded, name, function, sharedBytes)
                             : refuseResult(entry, driver, result, "looking up kernel", name);
  });
}

Address cuda::requireConstant(const Driver &driver, const SaccadeEntry &entry, LoadedModule &loaded, const char *name,
                              SaccadeStatus &status) {
  return require(driver, loaded.constants, name, status, [&](Address &address) {
    size_t bytes = 0;
    Result result = driver.moduleGetGlobal(&address, &bytes, loaded.module, name);
    return result == Success ? SaccadeSuccess : refuseResult(entry, driver, result, "looking up constant", name);
  });
}

void saccade_cuda_unload(SaccadeKernels *kernels) {
  LoadedModule *loaded = listOf(*kernels).exchange(nullptr, std::memory_order_acq_rel);
  if (!loaded)
    return;
  SaccadeEntry unnamed = {};
  unnamed.name = "";
  SaccadeStatus status;
  const Driver *driver = requireDriver(unnamed, status);
  // A program may be destroyed at any time, also during a capture, which must not end.
  RelaxedCaptureScope relaxed(*driver);
  while (loaded) {
    clear(loaded->kernels);
    clear(loaded->constants);
    // Ignore errors: a destroyed context has unloaded the module already.
    (void)driver->moduleUnload(loaded->module);
    if (Address placeholder = loaded->placeholder.load(std::memory_order_relaxed))
      (void)driver->free(placeholder);
    LoadedModule *next = loaded->next;
    std::free(loaded);
    loaded = next;
  }
}
