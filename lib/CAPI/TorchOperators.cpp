//===- TorchOperators.cpp - Kernels of PyTorch operators ----------------------===//
//
// Implements the operators that saccade.torch defines in PyTorch's dispatcher, in terms of PyTorch's stable C ABI. No
// library of PyTorch is linked: the functions are looked up in libtorch_cpu.so of a process that has loaded it.
//
//===----------------------------------------------------------------------===//
#include "State.h"
#include "saccade/Runtime/CUDA.h"
#include "llvm/ADT/StringMap.h"
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <stdexcept>

using namespace saccade;
using llvm::ArrayRef;
using llvm::SmallVector;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// The stable C ABI
//===----------------------------------------------------------------------===//

namespace {

/// torch::stable's StableIValue: a number, or a handle that its reader owns.
using StableValue = uint64_t;
using Kernel = void (*)(StableValue *stack, uint64_t numInputs, uint64_t numOutputs);
/// Tensors, lists, strings and libraries; a function returns 0, or an error code.
using Object = void *;
using Status = int32_t;

/// The encoding of StableValue since PyTorch 2.10, as the high bytes of TORCH_ABI_VERSION.
constexpr uint64_t abiVersion = uint64_t(2) << 56 | uint64_t(10) << 48;

/// Functions of torch/csrc/stable/c/shim.h and torch/csrc/inductor/aoti_torch/c/shim.h.
struct StableABI {
  Status (*aoti_torch_library_init_impl)(const char *ns, const char *key, const char *file, uint32_t line, Object *);
  Status (*torch_library_impl)(Object library, const char *name, Kernel, uint64_t version);
  Status (*torch_list_size)(Object, size_t *);
  Status (*torch_list_get_item)(Object, size_t, StableValue *);
  Status (*torch_delete_list)(Object);
  Status (*torch_string_length)(Object, size_t *);
  Status (*torch_string_c_str)(Object, const char **);
  Status (*torch_delete_string)(Object);
  Status (*aoti_torch_get_data_ptr)(Object, void **);
  Status (*aoti_torch_get_dim)(Object, int64_t *);
  Status (*aoti_torch_get_sizes)(Object, int64_t **);
  Status (*aoti_torch_get_strides)(Object, int64_t **);
  Status (*aoti_torch_get_dtype)(Object, int32_t *);
  Status (*aoti_torch_get_device_type)(Object, int32_t *);
  Status (*aoti_torch_get_device_index)(Object, int32_t *);
  Status (*aoti_torch_empty_strided)(int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                     int32_t deviceType, int32_t deviceIndex, Object *);
  Status (*aoti_torch_delete_tensor_object)(Object);
  Status (*aoti_torch_get_current_cuda_stream)(int32_t device, void **) = nullptr; ///< of libtorch_cuda.so

  /// Returns the name of a missing function, or null.
  const char *bind(void *library) {
#define SACCADE_BIND(name)                                                                                             \
  if (!(name = reinterpret_cast<decltype(name)>(dlsym(library, #name))))                                               \
  return #name
    SACCADE_BIND(aoti_torch_library_init_impl);
    SACCADE_BIND(torch_library_impl);
    SACCADE_BIND(torch_list_size);
    SACCADE_BIND(torch_list_get_item);
    SACCADE_BIND(torch_delete_list);
    SACCADE_BIND(torch_string_length);
    SACCADE_BIND(torch_string_c_str);
    SACCADE_BIND(torch_delete_string);
    SACCADE_BIND(aoti_torch_get_data_ptr);
    SACCADE_BIND(aoti_torch_get_dim);
    SACCADE_BIND(aoti_torch_get_sizes);
    SACCADE_BIND(aoti_torch_get_strides);
    SACCADE_BIND(aoti_torch_get_dtype);
    SACCADE_BIND(aoti_torch_get_device_type);
    SACCADE_BIND(aoti_torch_get_device_index);
    SACCADE_BIND(aoti_torch_empty_strided);
    SACCADE_BIND(aoti_torch_delete_tensor_object);
#undef SACCADE_BIND
    return nullptr;
  }
};

StableABI torch;

/// The __cxa_eh_globals of the Itanium C++ ABI. A statically linked libstdc++ has its own.
struct ExceptionState {
  void *caught;
  unsigned uncaught;
};

ExceptionState *ownExceptions() { return reinterpret_cast<ExceptionState *>(abi::__cxa_get_globals()); }

/// That of the libstdc++ with which PyTorch catches; set at the registration.
ExceptionState *(*exceptionsOfPyTorch)() = ownExceptions;

/// Fails a call: PyTorch turns the exception of a kernel into a RuntimeError.
[[noreturn]] void fail(const llvm::Twine &message) { throw std::runtime_error("saccade::attention: " + message.str()); }

void check(Status status, const char *what) {
  if (status)
    fail(llvm::Twine("PyTorch cannot ") + what);
}

} // namespace

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

namespace {

/// PyTorch's number of an element type, and DLPack's code and bits.
struct TorchType {
  int32_t torch;
  uint8_t code, bits;
};
// The numbers of c10::ScalarType, which are part of the ABI.
constexpr TorchType elementTypes[] = {
    {0, kDLUInt, 8},  {1, kDLInt, 8},      {2, kDLInt, 16},         {3, kDLInt, 32},
    {4, kDLInt, 64},  {5, kDLFloat, 16},   {6, kDLFloat, 32},       {7, kDLFloat, 64},
    {11, kDLBool, 8}, {15, kDLBfloat, 16}, {23, kDLFloat8_e5m2, 8}, {24, kDLFloat8_e4m3fn, 8},
};

/// An argument of an operator, whose schemas are in attention_operator.py.
enum Argument { Tensors, Program, Integers, Floats, Layout, Target, Caches };

/// The arguments of a call. Owns the objects on the stack.
class CallArguments {
public:
  /// `hasCaches`: whether the operator has a list of caches, the tensors that it updates, after that of tensors.
  CallArguments(StableValue *stack, bool hasCaches) : stack(stack), hasCaches(hasCaches) {}
  CallArguments(const CallArguments &) = delete;
  CallArguments &operator=(const CallArguments &) = delete;
  ~CallArguments() {
    for (Argument list : {Tensors, Caches})
      forEach(list, [&](StableValue item) { torch.aoti_torch_delete_tensor_object(object(item)); });
    for (Argument list : {Tensors, Caches, Integers, Floats})
      if (Object items = this->items(list))
        torch.torch_delete_list(items);
    delete reinterpret_cast<StableValue *>(value(Integers));
    for (Argument string : {Program, Layout, Target})
      torch.torch_delete_string(object(value(string)));
  }

  StringRef string(Argument index) const {
    const char *text = nullptr;
    size_t length = 0;
    check(torch.torch_string_c_str(object(value(index)), &text), "read a string");
    check(torch.torch_string_length(object(value(index)), &length), "read a string");
    return {text, length};
  }
  void forEach(Argument index, llvm::function_ref<void(StableValue)> body) const {
    Object items = this->items(index);
    size_t count = 0;
    if (items)
      torch.torch_list_size(items, &count);
    for (size_t i = 0; i < count; ++i) {
      StableValue item = 0;
      torch.torch_list_get_item(items, i, &item);
      body(item);
    }
  }
  SmallVector<StableValue, 4> list(Argument index) const {
    SmallVector<StableValue, 4> items;
    forEach(index, [&](StableValue item) { items.push_back(item); });
    return items;
  }

private:
  static Object object(StableValue value) { return reinterpret_cast<Object>(value); }
  StableValue value(Argument index) const {
    return stack[index == Caches ? 1 : index + (hasCaches && index != Tensors ? 1 : 0)];
  }
  /// A list, or null for None. The integers are optional: null, or a pointer to the value, allocated by `new`.
  Object items(Argument index) const {
    if (index == Caches && !hasCaches)
      return nullptr;
    if (index != Integers)
      return object(value(index));
    const auto *list = reinterpret_cast<const StableValue *>(value(index));
    return list ? object(*list) : nullptr;
  }
  StableValue *stack;
  bool hasCaches;
};

DLTensor describe(Object tensor) {
  DLTensor described = {};
  int64_t rank = 0;
  int32_t type = 0;
  int32_t device = 0;
  check(torch.aoti_torch_get_data_ptr(tensor, &described.data), "read the memory of a tensor");
  check(torch.aoti_torch_get_dim(tensor, &rank), "read a tensor");
  check(torch.aoti_torch_get_sizes(tensor, &described.shape), "read the sizes of a tensor");
  check(torch.aoti_torch_get_strides(tensor, &described.strides), "read the strides of a tensor");
  check(torch.aoti_torch_get_dtype(tensor, &type), "read a tensor");
  check(torch.aoti_torch_get_device_type(tensor, &device), "read a tensor");
  described.device.device_type =
      static_cast<decltype(DLDevice::device_type)>(device + 1); // c10's CPU is 0 and CUDA 1, DLPack's 1 and 2
  if (device)
    check(torch.aoti_torch_get_device_index(tensor, &described.device.device_id), "read a tensor");
  described.ndim = static_cast<int32_t>(rank);
  const auto *element = llvm::find_if(elementTypes, [&](const TorchType &each) { return each.torch == type; });
  if (element == std::end(elementTypes))
    fail("found a tensor of PyTorch's element type " + llvm::Twine(type) + ", which compiled code does not read");
  described.dtype = DLDataType{element->code, element->bits, 1};
  return described;
}

} // namespace

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

namespace {

/// A compiled program.
struct Plan {
  explicit Plan(SaccadeModule *module) : module(module) {}
  Plan(const Plan &) = delete;
  Plan &operator=(const Plan &) = delete;
  ~Plan() { saccade_module_release(module); }
  SaccadeModule *module;
};

/// The compiled programs that operators have called, by target and text. A graph holds the text of its program, so it
/// compiles the program again if the plan is dropped.
class Plans {
public:
  std::shared_ptr<Plan> get(StringRef target, StringRef program) {
    // The plan of this thread's last call: the layers of a model share one.
    static thread_local struct {
      std::string target, program;
      uint64_t version = 0;
      std::shared_ptr<Plan> plan;
    } last;
    uint64_t now = version.load(std::memory_order_acquire);
    if (last.plan && last.version == now && last.program == program && last.target == target)
      return last.plan;
    std::string key = (target + llvm::Twine('\n') + program).str();
    std::shared_ptr<Plan> plan = find(key);
    if (!plan) {
      plan = compile(target, program);
      llvm::StringMap<std::shared_ptr<Plan>> dropped; // released after the lock
      std::lock_guard guard(lock);
      if (plans.size() >= maxPlans) // the cache of the context still has the recent ones
        std::swap(dropped, plans);
      plans[key] = plan;
    }
    last = {target.str(), program.str(), now, plan};
    return plan;
  }

  void clear() {
    llvm::StringMap<std::shared_ptr<Plan>> dropped; // released after the lock
    std::lock_guard guard(lock);
    std::swap(dropped, plans);
    version.fetch_add(1, std::memory_order_release);
  }

  SaccadeContext *context = nullptr;

private:
  std::shared_ptr<Plan> find(StringRef key) {
    std::lock_guard guard(lock);
    return plans.lookup(key);
  }

  std::shared_ptr<Plan> compile(StringRef target, StringRef program) const {
    std::string name = target.str();
    SaccadeOption option{"target", name.c_str()};
    SaccadeModule *module = nullptr;
    if (saccade_compile(context, program.data(), program.size(), "<program>", &option, 1, &module))
      fail(saccade_last_error());
    auto plan = std::make_shared<Plan>(module);
    // A program that is differentiated also has its gradient function.
    ArrayRef functions(module->functions);
    bool isGradient = functions.size() == 2 && StringRef(functions[1].entry->name).ends_with("_gradient");
    if (functions.size() != 1 && !isGradient)
      fail("the program has " + llvm::Twine(functions.size()) + " functions, expected 1");
    return plan;
  }

  static constexpr unsigned maxPlans = 1024;
  ForkSafeMutex lock;
  llvm::StringMap<std::shared_ptr<Plan>> plans;
  std::atomic<uint64_t> version{0};
};

/// Never destroyed: threads may call operators while the process exits.
Plans &plans() {
  static Plans &made = *new Plans;
  return made;
}

} // namespace

void saccade::clearTorchPlans() { plans().clear(); }

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// Dense strides in the order of `strides`, as PyTorch's empty_like chooses them (at::infer_dense_strides).
static SmallVector<int64_t, 6> inferDenseStrides(ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  SmallVector<int64_t, 6> order; // from the innermost dimension
  for (size_t i = 0; i < sizes.size(); ++i)
    order.push_back(static_cast<int64_t>(sizes.size() - 1 - i));
  auto compare = [&](int64_t x, int64_t y) {
    if (!strides[x] || !strides[y])
      return 0;
    if (strides[x] != strides[y])
      return strides[x] < strides[y] ? -1 : 1;
    return sizes[x] > sizes[y] ? 1 : 0;
  };
  for (size_t i = 1; i < order.size(); ++i)
    for (size_t at = i, before = i; before-- > 0;) {
      int found = compare(order[before], order[at]);
      if (found < 0)
        break;
      if (found > 0) {
        std::swap(order[before], order[at]);
        at = before;
      }
    }
  SmallVector<int64_t, 6> dense(sizes.size());
  int64_t stride = 1;
  for (int64_t dimension : order) {
    dense[dimension] = stride;
    stride *= std::max<int64_t>(1, sizes[dimension]);
  }
  return dense;
}

/// Allocates result `index` of the entry. `query` determines the extents that are dynamic in the program.
static Object makeResult(const SaccadeEntry &entry, int index, const DLTensor &query, StringRef layout) {
  const SaccadeValueType &type = entry.values[entry.num_inputs + index];
  SmallVector<int64_t, 6> sizes;
  SmallVector<int64_t, 6> strides;
  ArrayRef<int64_t> querySizes(query.shape, query.ndim);
  if (index == 0) {
    bool isLikeQuery = true;
    for (auto [found, expected] : llvm::zip_equal(querySizes, ArrayRef(type.extents, type.rank))) {
      sizes.push_back(expected < 0 ? found : expected);
      isLikeQuery &= sizes.back() == found;
    }
    if (isLikeQuery)
      strides = inferDenseStrides(sizes, ArrayRef(query.strides, query.ndim));
  } else {
    for (char dimension : StringRef("bhs"))
      if (size_t axis = layout.find(dimension); axis != StringRef::npos)
        sizes.push_back(querySizes[axis]);
  }
  if (strides.empty()) {
    strides.resize(sizes.size());
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0; stride *= std::max<int64_t>(1, sizes[i]))
      strides[i] = stride;
  }
  const auto *element = llvm::find_if(
      elementTypes, [&](const TorchType &each) { return each.code == type.code && each.bits == type.bits; });
  if (element == std::end(elementTypes))
    fail(llvm::Twine("the result ") + type.text + " has no element type of PyTorch");
  Object result = nullptr;
  check(torch.aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), element->torch,
                                       query.device.device_type - 1, query.device.device_id, &result),
        "allocate a result");
  return result;
}

/// The inputs of the program in its order: tensors, caches and numbers, each in their order of the lists.
static void appendInputs(const SaccadeEntry &entry, const CallArguments &call, ArrayRef<StableValue> objects,
                         llvm::SmallVectorImpl<DLTensor> &tensors, llvm::SmallVectorImpl<SaccadeArgument> &arguments) {
  SmallVector<StableValue, 4> caches = call.list(Caches);
  SmallVector<StableValue, 4> integers = call.list(Integers);
  SmallVector<StableValue, 4> floats = call.list(Floats);
  size_t numTensors = objects.size() + caches.size();
  if (numTensors + integers.size() + floats.size() != static_cast<size_t>(entry.num_inputs))
    fail("found " + llvm::Twine(numTensors) + " tensors, " + llvm::Twine(integers.size()) + " integers and " +
         llvm::Twine(floats.size()) + " floats, the program has " + llvm::Twine(entry.num_inputs) + " arguments");
  tensors.reserve(numTensors + entry.num_results); // arguments refer to the elements
  size_t tensor = 0;
  size_t cache = 0;
  size_t integer = 0;
  size_t real = 0;
  for (const SaccadeValueType &type : ArrayRef(entry.values, entry.num_inputs)) {
    SaccadeArgument argument{SaccadeArgumentDLTensor, 0, {0}};
    bool isFloat = type.code == kDLFloat || type.code == kDLBfloat;
    if (type.updated_by && cache < caches.size()) {
      argument.value.pointer = &tensors.emplace_back(describe(reinterpret_cast<Object>(caches[cache++])));
    } else if (type.rank >= 0 && !type.updated_by && tensor < objects.size()) {
      argument.value.pointer = &tensors.emplace_back(describe(reinterpret_cast<Object>(objects[tensor++])));
    } else if (type.rank < 0 && isFloat && real < floats.size()) {
      argument.kind = SaccadeArgumentFloat;
      std::memcpy(&argument.value.real, &floats[real++], sizeof(double));
    } else if (type.rank < 0 && !isFloat && integer < integers.size()) {
      argument.kind = SaccadeArgumentInteger;
      argument.value.integer = static_cast<int64_t>(integers[integer++]);
    } else {
      fail(llvm::Twine("argument '") + type.name + "' (" + type.text + ") is missing");
    }
    arguments.push_back(argument);
  }
}

static void run(StableValue *stack, bool hasCaches, uint64_t numOutputs, llvm::SmallVectorImpl<Object> &results) {
  CallArguments call(stack, hasCaches);
  SmallVector<StableValue, 4> objects = call.list(Tensors);
  if (objects.empty())
    fail("found no tensors");
  DLTensor query = describe(reinterpret_cast<Object>(objects.front()));
  bool isOnGPU = query.device.device_type == kDLCUDA;
  std::string device;
  StringRef target = call.string(Target);
  if (isOnGPU && target == "host")
    target = device = "cuda:" + std::to_string(query.device.device_id);
  std::shared_ptr<Plan> plan = plans().get(target, call.string(Program));
  const SaccadeEntry &entry = *plan->module->functions.front().entry;
  if (static_cast<uint64_t>(entry.num_results) != numOutputs)
    fail("the program has " + llvm::Twine(entry.num_results) + " results, the operator " + llvm::Twine(numOutputs));
  StringRef layout = call.string(Layout);
  const SaccadeValueType &output = entry.values[entry.num_inputs];
  if (numOutputs && (query.ndim != output.rank || layout.size() != static_cast<size_t>(output.rank)))
    fail("q has " + llvm::Twine(query.ndim) + " dimensions, expected " + llvm::Twine(output.rank) + ": layout \"" +
         layout + "\"");

  SmallVector<DLTensor, 8> tensors;
  SmallVector<SaccadeArgument, 12> arguments;
  appendInputs(entry, call, objects, tensors, arguments);
  for (int i = 0; i < entry.num_results; ++i) {
    results.push_back(makeResult(entry, i, query, layout));
    arguments.push_back({SaccadeArgumentDLTensor, 0, {0}});
    arguments.back().value.pointer = &tensors.emplace_back(describe(results.back()));
  }
  SaccadeStatus status;
  if (isOnGPU && torch.aoti_torch_get_current_cuda_stream) {
    void *stream = nullptr;
    check(torch.aoti_torch_get_current_cuda_stream(query.device.device_id, &stream), "find the current stream");
    status = saccade_entry_call_on_stream(&entry, arguments.data(), static_cast<int32_t>(arguments.size()), stream);
  } else {
    status = saccade_entry_call(&entry, arguments.data(), static_cast<int32_t>(arguments.size()));
  }
  if (status != SaccadeSuccess)
    fail(saccade_entry_last_error());
}

/// The kernel of all operators.
template <bool hasCaches> static void attention(StableValue *stack, uint64_t, uint64_t numOutputs) {
  SmallVector<Object, 4> results;
  try {
    run(stack, hasCaches, numOutputs, results);
  } catch (...) {
    for (Object result : results)
      torch.aoti_torch_delete_tensor_object(result);
    // `throw` counts in the state of this library, and PyTorch's catch in that of its own.
    --ownExceptions()->uncaught;
    ++exceptionsOfPyTorch()->uncaught;
    throw;
  }
  for (auto [i, result] : llvm::enumerate(results))
    stack[i] = reinterpret_cast<StableValue>(result);
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

SaccadeResult saccade_torch_register(SaccadeContext *context) {
  (void)plans(); // registers its mutex for fork before `lock` is held
  static ForkSafeMutex lock;
  std::lock_guard guard(lock);
  if (!context)
    return refuse(SACCADE_VALUE_ERROR, "the context is NULL");
  if (plans().context)
    return plans().context == context
               ? succeed()
               : refuse(SACCADE_VALUE_ERROR, "the operators are registered with another context");
  void *library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_NOW);
  if (!library)
    return refuse(SACCADE_UNSUPPORTED, "PyTorch is not loaded in this process");
  if (const char *missing = torch.bind(library))
    return refuse(SACCADE_UNSUPPORTED,
                  llvm::Twine("this version of PyTorch lacks ") + missing + ", expected version 2.10 or later");
  if (void *found = dlsym(library, "__cxa_get_globals"))
    exceptionsOfPyTorch = reinterpret_cast<decltype(exceptionsOfPyTorch)>(found);
  if (void *cuda = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_NOW))
    torch.aoti_torch_get_current_cuda_stream = reinterpret_cast<decltype(torch.aoti_torch_get_current_cuda_stream)>(
        dlsym(cuda, "aoti_torch_get_current_cuda_stream"));
  for (const char *key : {"CPU", "CUDA"}) {
    Object implementations = nullptr; // never deleted: that would remove the kernels
    if (torch.aoti_torch_library_init_impl("saccade", key, __FILE__, __LINE__, &implementations))
      return refuse(SACCADE_UNSUPPORTED, "PyTorch refuses the kernels of the operators");
    auto implement = [&](const char *name, Kernel kernel) {
      return torch.torch_library_impl(implementations, name, kernel, abiVersion)
                 ? refuse(SACCADE_UNSUPPORTED, llvm::Twine("PyTorch refuses the kernel of saccade::") + name)
                 : succeed();
    };
    for (const char *name :
         {"attention", "attention.lse", "attention.lse_low", "attention.max", "attention.lse_max", "attention_forward",
          "attention_forward.lse", "attention_forward.lse_low", "attention_forward.max", "attention_forward.lse_max"})
      if (SaccadeResult result = implement(name, attention<false>))
        return result;
    for (const char *name : {"attention_update", "attention_update.lse", "append"})
      if (SaccadeResult result = implement(name, attention<true>))
        return result;
  }
  plans().context = context;
  return succeed();
}
