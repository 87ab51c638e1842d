//===- Executable.cpp - A program compiled into this process ------------------===//
//
// Links a compiled program into this process. Calls go through the checks of the runtime, like those of other hosts.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/Executable.h"
#include "Linker.h"
#include "saccade-c/DLTensor.h"
#include "saccade/JIT/CompiledProgram.h"
#include "saccade/JIT/DiskCache.h"
#include "saccade/Runtime/CUDA.h"
#include "llvm/Support/MemoryBuffer.h"
#include <chrono>

using namespace mlir;
using namespace saccade;

struct Executable::State {
  struct Code {
    const SaccadeEntry *entry;
    TVMFFIFunction tvmFFI;
  };

  std::vector<Entry> entries;
  std::vector<Code> code; ///< parallel to `entries`
  CompileTimes times;
  size_t codeBytes = 0;
  std::vector<KernelInfo> kernels;
  std::unique_ptr<LinkedObject> object;

  const Code *codeOf(llvm::StringRef name) const {
    for (auto [entry, code] : llvm::zip_equal(entries, code))
      if (entry.name == name)
        return &code;
    return nullptr;
  }
};

namespace {

/// The arguments for the runtime, inputs, then outputs. The runtime checks their number.
class ArgumentList {
public:
  ArgumentList(const Entry &entry, const SaccadeEntry &abi, llvm::ArrayRef<Buffer> inputs,
               llvm::ArrayRef<Buffer> outputs)
      : isOnGPU(abi.kernels) {
    tensors.reserve(inputs.size() + outputs.size());
    arguments.resize(inputs.size() + outputs.size());
    auto types = llvm::concat<const ValueType>(entry.arguments, entry.results);
    const SaccadeValueType *value = abi.values;
    for (auto [type, buffer, argument] : llvm::zip(types, llvm::concat<const Buffer>(inputs, outputs), arguments))
      add(type, buffer, *value++, argument);
  }

  const SaccadeArgument *data() const { return arguments.data(); }
  int32_t size() const { return static_cast<int32_t>(arguments.size()); }

private:
  void add(const ValueType &type, const Buffer &buffer, const SaccadeValueType &abiType, SaccadeArgument &into) {
    if (!type.isTensor) {
      if (buffer.data)
        readScalar(type.element, buffer.data, into);
      return;
    }
    assert(buffer.sizes.size() == buffer.strides.size() && "a buffer has a stride for each extent");
    DLTensor &tensor = tensors.emplace_back();
    tensor.data = buffer.data;
    tensor.device.device_type = decltype(tensor.device.device_type)(isOnGPU ? kDLCUDA : kDLCPU);
    tensor.ndim = static_cast<int32_t>(buffer.sizes.size());
    tensor.dtype = {abiType.code, abiType.bits, 1};
    tensor.shape = const_cast<int64_t *>(buffer.sizes.data()); // read-only
    tensor.strides = const_cast<int64_t *>(buffer.strides.data());
    into.kind = SaccadeArgumentDLTensor;
    into.value.pointer = &tensor;
  }

  static void readScalar(ElementType type, const void *data, SaccadeArgument &into) {
    if (isFloat(type)) {
      into.kind = SaccadeArgumentFloat;
      into.value.real = readElement(type, data);
      return;
    }
    into.kind = SaccadeArgumentInteger;
    if (elementBytes(type) == 8)
      std::memcpy(&into.value.integer, data, sizeof(int64_t)); // a double cannot represent all of them
    else
      into.value.integer = static_cast<int64_t>(readElement(type, data));
  }

  const bool isOnGPU;
  llvm::SmallVector<DLTensor> tensors; ///< never reallocated: `arguments` point into it
  llvm::SmallVector<SaccadeArgument> arguments;
};

llvm::Error errorOf(SaccadeStatus status) {
  return status == SaccadeSuccess ? llvm::Error::success() : llvm::createStringError(saccade_entry_last_error());
}

} // namespace

Executable::Executable(std::unique_ptr<State> state) : state(std::move(state)) {}
Executable::~Executable() {
  // All entries share the kernels.
  if (!state->code.empty() && state->code.front().entry->kernels)
    saccade_cuda_unload(state->code.front().entry->kernels);
}

llvm::ArrayRef<Entry> Executable::entries() const { return state->entries; }
const SaccadeEntry *Executable::code(llvm::StringRef name) const {
  const State::Code *code = state->codeOf(name);
  return code ? code->entry : nullptr;
}
TVMFFIFunction Executable::tvmFFI(llvm::StringRef name) const {
  const State::Code *code = state->codeOf(name);
  return code ? code->tvmFFI : nullptr;
}
const CompileTimes &Executable::compileTimes() const { return state->times; }
size_t Executable::codeBytes() const { return state->codeBytes; }
llvm::StringRef Executable::ptx() const {
  const SaccadeKernels *kernels = state->code.empty() ? nullptr : state->code.front().entry->kernels;
  return kernels ? kernels->ptx : "";
}
llvm::ArrayRef<KernelInfo> Executable::kernels() const { return state->kernels; }

const Entry *Executable::lookup(llvm::StringRef name) const {
  for (const Entry &entry : state->entries)
    if (entry.name == name)
      return &entry;
  return nullptr;
}

llvm::Expected<std::unique_ptr<Executable>> Executable::link(const CompiledProgram &program) {
  auto state = std::make_unique<State>();
  auto start = std::chrono::steady_clock::now();
  state->entries = program.entries;
  state->kernels = program.kernels;
  state->codeBytes = program.object.size();
  llvm::Expected<std::unique_ptr<LinkedObject>> object =
      LinkedObject::create(llvm::MemoryBuffer::getMemBufferCopy(program.object, "saccade"));
  if (!object)
    return object.takeError();
  state->object = std::move(*object);
  for (Entry &entry : state->entries) {
    llvm::Expected<llvm::orc::ExecutorAddr> table = state->object->lookup("__saccade_entry_" + entry.name);
    if (!table)
      return table.takeError();
    llvm::Expected<llvm::orc::ExecutorAddr> tvmFFI = state->object->lookup("__tvm_ffi_" + entry.name);
    if (!tvmFFI)
      return tvmFFI.takeError();
    state->code.push_back({table->toPtr<const SaccadeEntry *>(), tvmFFI->toPtr<TVMFFIFunction>()});
    // The pipeline may have named results.
    const SaccadeValueType *value = state->code.back().entry->values;
    for (std::vector<ValueType> *types : {&entry.arguments, &entry.results})
      for (ValueType &type : *types)
        type.name = (value++)->name;
  }
  state->times = program.times;
  state->times.link = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::unique_ptr<Executable>(new Executable(std::move(state)));
}

std::pair<std::unique_ptr<Executable>, Diagnostics> Executable::load(DiskCache &cache, llvm::StringRef key) {
  std::optional<std::string> value = cache.lookup(key);
  std::optional<CompiledProgram> program = value ? decodeProgram(*value) : std::nullopt;
  if (!program)
    return {};
  llvm::Expected<std::unique_ptr<Executable>> linked = link(*program);
  if (linked)
    return {std::move(*linked), std::move(program->diagnostics)};
  llvm::consumeError(linked.takeError()); // compilation reports the error
  return {};
}

static llvm::Error refuseTarget(const CPUTarget &target) {
  if (hostRuns(target))
    return llvm::Error::success();
  return llvm::createStringError(explainHostRefusal(target));
}

llvm::Expected<std::unique_ptr<Executable>> Executable::create(ModuleOp module, const CompileOptions &options,
                                                               DiskCache *cache) {
  if (llvm::Error error = refuseTarget(*options.target))
    return error;
  std::string key = cache ? makeDiskKey("module", module, options) : "";
  if (!key.empty())
    if (std::unique_ptr<Executable> loaded = load(*cache, key).first)
      return loaded;
  bool isSilent = true;
  ScopedDiagnosticHandler watch(module.getContext(), [&](Diagnostic &) {
    isSilent = false;
    return failure(); // passes it on
  });
  llvm::Expected<CompiledProgram> program = compileProgram(module, options);
  if (!program)
    return program.takeError();
  llvm::Expected<std::unique_ptr<Executable>> executable = link(*program);
  if (executable && !key.empty() && isSilent)
    cache->store(key, encodeProgram(*program));
  return executable;
}

llvm::Expected<std::unique_ptr<Executable>> Executable::createFromText(llvm::StringRef text, llvm::StringRef name,
                                                                       const CompileOptions &options) {
  if (llvm::Error error = refuseTarget(*options.target))
    return error;
  std::string diagnostics;
  auto collect = [&](mlir::DiagnosticSeverity, llvm::StringRef text) { diagnostics += text; };
  llvm::Expected<CompiledProgram> program = compileText(text, name, options, collect);
  if (!program)
    return llvm::createStringError(diagnostics + llvm::toString(program.takeError()));
  return link(*program);
}

llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
Executable::resultShapes(const Entry &entry, llvm::ArrayRef<Buffer> inputs) const {
  const SaccadeEntry &abi = *code(entry.name);
  size_t count = 0;
  for (const ValueType &result : entry.results)
    count += result.shape.size();
  llvm::SmallVector<int64_t> sizes(count, 0);
  ArgumentList arguments(entry, abi, inputs, {});
  if (llvm::Error error = errorOf(saccade_entry_shapes(&abi, arguments.data(), arguments.size(), sizes.data())))
    return error;
  std::vector<llvm::SmallVector<int64_t, 4>> shapes;
  llvm::ArrayRef<int64_t> rest = sizes;
  for (const ValueType &result : entry.results) {
    shapes.emplace_back(rest.take_front(result.shape.size()));
    rest = rest.drop_front(result.shape.size());
  }
  return shapes;
}

llvm::Error Executable::call(const Entry &entry, llvm::ArrayRef<Buffer> inputs, llvm::ArrayRef<Buffer> outputs) const {
  const SaccadeEntry &abi = *code(entry.name);
  ArgumentList arguments(entry, abi, inputs, outputs);
  return errorOf(saccade_entry_call(&abi, arguments.data(), arguments.size()));
}
