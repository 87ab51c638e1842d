//===- Call.cpp - Modules, their functions and calls, through the C API -------===//
//
// Converts the arguments of the C API to those of saccade_entry_call, which checks every call.
//
//===----------------------------------------------------------------------===//
#include "State.h"
#include "saccade/Runtime/CUDA.h"
#include "saccade/Runtime/Runtime.h"
#include "llvm/ADT/StringExtras.h"

using namespace saccade;

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

SaccadeModule *saccade::createModule(KernelCache::Program program) {
  auto *module = new SaccadeModule;
  for (const Entry &entry : program->entries())
    module->functions.push_back({program->code(entry.name), program->tvmFFI(entry.name)});
  module->program = std::move(program);
  return module;
}

void saccade_module_retain(SaccadeModule *module) { module->references.fetch_add(1, std::memory_order_relaxed); }

void saccade_module_release(SaccadeModule *module) {
  if (module && module->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete module;
}

SaccadeCompileTimes saccade_module_compile_times(const SaccadeModule *module) {
  const CompileTimes &times = module->program->compileTimes();
  return {times.pipeline, times.codegen, times.link};
}

size_t saccade_module_num_stages(const SaccadeModule *module) { return module->program->compileTimes().stages.size(); }

SaccadeStageTime saccade_module_stage_at(const SaccadeModule *module, size_t index) {
  const std::vector<StageTime> &stages = module->program->compileTimes().stages;
  return index < stages.size() ? SaccadeStageTime{stages[index].name.c_str(), stages[index].seconds()}
                               : SaccadeStageTime{nullptr, 0};
}

size_t saccade_module_num_functions(const SaccadeModule *module) { return module->functions.size(); }

const SaccadeFunction *saccade_module_function_at(const SaccadeModule *module, size_t index) {
  if (index < module->functions.size()) {
    succeed();
    return &module->functions[index];
  }
  refuse(SACCADE_VALUE_ERROR, "no function " + llvm::Twine(index) + "; the number of functions of the module is " +
                                  llvm::Twine(module->functions.size()));
  return nullptr;
}

const SaccadeFunction *saccade_module_function(const SaccadeModule *module, const char *name) {
  if (!name) {
    refuse(SACCADE_VALUE_ERROR, "the name of the function is NULL");
    return nullptr;
  }
  for (const SaccadeFunction &function : module->functions)
    if (llvm::StringRef(function.entry->name) == name) {
      succeed();
      return &function;
    }
  auto names = llvm::map_range(module->functions, [](const SaccadeFunction &each) { return each.entry->name; });
  refuse(SACCADE_VALUE_ERROR, "no function '" + llvm::Twine(name) + "'; the module has: " + llvm::join(names, ", "));
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

const char *saccade_function_name(const SaccadeFunction *function) { return function->entry->name; }
size_t saccade_function_num_inputs(const SaccadeFunction *function) { return function->entry->num_inputs; }
size_t saccade_function_num_results(const SaccadeFunction *function) { return function->entry->num_results; }
void *saccade_function_tvm_ffi(const SaccadeFunction *function) { return reinterpret_cast<void *>(function->tvmFFI); }

int32_t saccade_function_device_type(const SaccadeFunction *function) {
  return function->entry->kernels ? kDLCUDA : kDLCPU;
}

SaccadeValueInfo saccade_function_value(const SaccadeFunction *function, size_t index) {
  const SaccadeValueType &value = function->entry->values[index];
  return {value.name, value.text,    DLDataType{value.code, value.bits, 1},
          value.rank, value.extents, value.updated_by - 1};
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

static SaccadeArgument makeArgument(const SaccadeValueType &type, const SaccadeValue &value) {
  SaccadeArgument argument{SaccadeArgumentNone, 0, {0}};
  if (value.tensor || type.rank >= 0) {
    argument.kind = SaccadeArgumentDLTensor;
    argument.value.pointer = const_cast<DLTensor *>(value.tensor);
  } else if (type.code == kDLFloat || type.code == kDLBfloat) {
    argument.kind = SaccadeArgumentFloat;
    argument.value.real = value.real;
  } else {
    argument.kind = type.code == kDLBool ? SaccadeArgumentBool : SaccadeArgumentInteger;
    argument.value.integer = value.integer;
  }
  return argument;
}

namespace {
/// The arguments for the runtime. Excess values are only counted, because the runtime refuses them unread.
struct ArgumentList {
  ArgumentList(const SaccadeEntry &entry, const SaccadeValue *values, size_t given)
      : count(int32_t(std::min<size_t>(given, INT32_MAX))) {
    for (int32_t i = 0, e = std::min(count, entry.num_inputs + entry.num_results); i < e; ++i)
      arguments.push_back(makeArgument(entry.values[i], values[i]));
  }
  llvm::SmallVector<SaccadeArgument, 16> arguments;
  int32_t count;
};
} // namespace

static SaccadeResult finish(SaccadeStatus status) {
  static_assert(int(SaccadeTypeError) == SACCADE_TYPE_ERROR && int(SaccadeValueError) == SACCADE_VALUE_ERROR &&
                int(SaccadeOutOfMemory) == SACCADE_OUT_OF_MEMORY && int(SaccadeUnsupported) == SACCADE_UNSUPPORTED &&
                int(SaccadeDeviceError) == SACCADE_DEVICE_ERROR);
  return status == SaccadeSuccess ? succeed() : refuse(static_cast<SaccadeResult>(status), saccade_entry_last_error());
}

SaccadeResult saccade_function_result_shapes(const SaccadeFunction *function, const SaccadeValue *inputs,
                                             size_t num_inputs, int64_t *sizes) {
  if (!function || (!inputs && num_inputs) || !sizes)
    return refuse(SACCADE_VALUE_ERROR, "the function, its inputs or the array of sizes is NULL");
  ArgumentList list(*function->entry, inputs, num_inputs);
  return finish(saccade_entry_shapes(function->entry, list.arguments.data(), list.count, sizes));
}

SaccadeResult saccade_function_call(const SaccadeFunction *function, const SaccadeValue *values, size_t num_values) {
  if (!function || (!values && num_values))
    return refuse(SACCADE_VALUE_ERROR, "the function or its values are NULL");
  ArgumentList list(*function->entry, values, num_values);
  return finish(saccade_entry_call(function->entry, list.arguments.data(), list.count));
}

SaccadeResult saccade_function_call_on_stream(const SaccadeFunction *function, const SaccadeValue *values,
                                              size_t num_values, void *stream) {
  if (!function || (!values && num_values))
    return refuse(SACCADE_VALUE_ERROR, "the function or its values are NULL");
  if (stream && !function->entry->kernels)
    return refuse(SACCADE_VALUE_ERROR,
                  llvm::Twine(function->entry->name) + ": found a stream, expected NULL for a program for the CPU");
  ArgumentList list(*function->entry, values, num_values);
  return finish(saccade_entry_call_on_stream(function->entry, list.arguments.data(), list.count, stream));
}

void saccade_set_num_threads(int32_t threads) { saccade_set_threads(threads); }
int32_t saccade_num_threads(void) { return saccade_threads(); }
