//===- Executable.cpp - A program compiled into this process ------------------===//
//
// Everything that can be wrong with a call is found here or in the program's own shape function, before compiled
// code touches memory.
//
//===----------------------------------------------------------------------===//
#include "saccade/JIT/Executable.h"
#include "Linker.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Target/Target.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include <chrono>

using namespace mlir;
using namespace saccade;

struct Executable::State {
  struct Code {
    const char *(*call)(void **arguments);
    const char *(*shapes)(void **arguments, int64_t *sizes);
  };

  std::vector<Entry> entries;
  std::vector<Code> code; ///< of the entry of the same index
  CompileTimes times;
  size_t codeBytes = 0;
  std::unique_ptr<llvm::orc::LLJIT> jit;

  const Code &codeOf(const Entry &entry) const { return code[&entry - entries.data()]; }
};

namespace {

/// Seconds since the last call, for a stage that has just ended.
class StopWatch {
public:
  double lap() {
    Clock::time_point now = Clock::now();
    double seconds = std::chrono::duration<double>(now - start).count();
    start = now;
    return seconds;
  }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
};

/// The arguments of a compiled entry: descriptors as MLIR lays them out, and pointers to them.
class ArgumentList {
public:
  void add(const ValueType &type, const Buffer &buffer) {
    if (!type.isTensor) {
      pointers.push_back(buffer.data);
      return;
    }
    // {allocated, aligned, offset, sizes[rank], strides[rank]}, all words of eight bytes
    auto &words = descriptors.emplace_back();
    auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer.data));
    words.append({address, address, 0});
    words.append(buffer.sizes.begin(), buffer.sizes.end());
    words.append(buffer.strides.begin(), buffer.strides.end());
    pointers.push_back(words.data());
  }
  explicit ArgumentList(size_t count) { descriptors.reserve(count); }
  void **data() { return pointers.data(); }

private:
  std::vector<llvm::SmallVector<int64_t, 11>> descriptors; ///< never reallocated: `pointers` point into it
  llvm::SmallVector<void *> pointers;
};

} // namespace

static std::string shapeText(llvm::ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleave(shape, os, "x");
  return shape.empty() ? "no extents" : text;
}

/// Compares a buffer with what the type (or `wanted`, where known) says of it.
static llvm::Error checkBuffer(const Entry &entry, llvm::StringRef role, size_t i, const ValueType &type,
                               const Buffer &buffer, llvm::ArrayRef<int64_t> wanted) {
  auto refuse = [&](const llvm::Twine &what) {
    return llvm::createStringError("entry '" + entry.name + "': " + role + " #" + llvm::Twine(i) + " (" + type.str() +
                                   ") " + what);
  };
  if (!type.isTensor)
    return buffer.data ? llvm::Error::success() : refuse("is missing");
  if (buffer.sizes.size() != wanted.size() || buffer.strides.size() != wanted.size())
    return refuse("is given a tensor with " + llvm::Twine(buffer.sizes.size()) + " dimensions");
  bool isEmpty = false;
  for (auto [extent, expected] : llvm::zip_equal(buffer.sizes, wanted)) {
    if (extent < 0 || (!ShapedType::isDynamic(expected) && extent != expected))
      return refuse("is given a tensor of shape " + shapeText(buffer.sizes));
    isEmpty |= extent == 0;
  }
  return buffer.data || isEmpty ? llvm::Error::success() : refuse("is missing its data");
}

static llvm::Error checkInputs(const Entry &entry, llvm::ArrayRef<Buffer> inputs) {
  if (inputs.size() != entry.arguments.size())
    return llvm::createStringError("entry '" + entry.name + "' takes " + llvm::Twine(entry.arguments.size()) +
                                   " arguments, " + llvm::Twine(inputs.size()) + " are given: " + entry.signature());
  for (auto [i, input] : llvm::enumerate(inputs))
    if (llvm::Error error = checkBuffer(entry, "argument", i, entry.arguments[i], input, entry.arguments[i].shape))
      return error;
  return llvm::Error::success();
}

Executable::Executable(std::unique_ptr<State> state) : state(std::move(state)) {}
Executable::~Executable() = default;

llvm::ArrayRef<Entry> Executable::entries() const { return state->entries; }
const CompileTimes &Executable::compileTimes() const { return state->times; }
size_t Executable::codeBytes() const { return state->codeBytes; }

const Entry *Executable::lookup(llvm::StringRef name) const {
  for (const Entry &entry : state->entries)
    if (entry.name == name)
      return &entry;
  return nullptr;
}

llvm::Expected<std::unique_ptr<Executable>> Executable::create(ModuleOp module, const CompileOptions &options) {
  if (!hostRuns(*options.target))
    return llvm::createStringError("this machine cannot run code for target '" + options.target->name + "'");
  auto state = std::make_unique<State>();
  StopWatch watch;
  llvm::Expected<std::vector<Entry>> entries = getEntries(module);
  if (!entries)
    return entries.takeError();
  state->entries = std::move(*entries);
  if (failed(runPipeline(module, options)))
    return llvm::createStringError("the program was refused");
  state->times.pipeline = watch.lap();

  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> translated = translate(module, context, *options.target);
  if (!translated)
    return llvm::createStringError("the program could not be translated to LLVM IR");
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream os(object);
  if (llvm::Error error = emitObject(*translated, *options.target, os))
    return error;
  state->codeBytes = object.size();
  state->times.codegen = watch.lap();

  llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> jit = linkObject(
      std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object), "saccade", /*RequiresNullTerminator=*/false));
  if (!jit)
    return jit.takeError();
  state->jit = std::move(*jit);
  for (const Entry &entry : state->entries) {
    llvm::Expected<llvm::orc::ExecutorAddr> call = state->jit->lookup("saccade_call_" + entry.name);
    if (!call)
      return call.takeError();
    llvm::Expected<llvm::orc::ExecutorAddr> shapes = state->jit->lookup("saccade_shapes_" + entry.name);
    if (!shapes)
      return shapes.takeError();
    state->code.push_back({call->toPtr<const char *(*)(void **)>(), shapes->toPtr<const char *(*)(void **, int64_t *)>()});
  }
  state->times.link = watch.lap();
  return std::unique_ptr<Executable>(new Executable(std::move(state)));
}

llvm::Expected<std::unique_ptr<Executable>> Executable::createFromText(llvm::StringRef source, llvm::StringRef name,
                                                                       const CompileOptions &options) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(source, name), llvm::SMLoc());
  std::string diagnostics;
  llvm::raw_string_ostream os(diagnostics);
  SourceMgrDiagnosticHandler handler(sources, &context, os);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return llvm::createStringError(diagnostics);
  llvm::Expected<std::unique_ptr<Executable>> executable = create(*module, options);
  if (!executable)
    return llvm::createStringError(diagnostics + llvm::toString(executable.takeError()));
  return executable;
}

/// How the extent that a message asks for relates to the one found, where they need not be equal.
static llvm::StringRef relationWords(llvm::StringRef message) {
  if (message.ends_with("no multiple of that of key heads"))
    return "a multiple of ";
  return message.ends_with("is too small for it") ? "at least " : "";
}

llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
Executable::resultShapes(const Entry &entry, llvm::ArrayRef<Buffer> inputs) const {
  if (llvm::Error error = checkInputs(entry, inputs))
    return error;
  ArgumentList arguments(inputs.size());
  for (auto [type, input] : llvm::zip_equal(entry.arguments, inputs))
    arguments.add(type, input);
  size_t count = 2; // room for what a refusal found and wanted
  for (const ValueType &result : entry.results)
    count += result.shape.size();
  llvm::SmallVector<int64_t> sizes(count, 0);
  if (const char *message = state->codeOf(entry).shapes(arguments.data(), sizes.data()))
    return llvm::createStringError("entry '" + entry.name + "': " + message + ": found " + llvm::Twine(sizes[0]) +
                                   ", wanted " + relationWords(message) + llvm::Twine(sizes[1]));
  std::vector<llvm::SmallVector<int64_t, 4>> shapes;
  llvm::ArrayRef<int64_t> rest = sizes;
  for (const ValueType &result : entry.results) {
    shapes.emplace_back(rest.take_front(result.shape.size()));
    rest = rest.drop_front(result.shape.size());
  }
  return shapes;
}

llvm::Error Executable::call(const Entry &entry, llvm::ArrayRef<Buffer> inputs, llvm::ArrayRef<Buffer> outputs) const {
  llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>> shapes = resultShapes(entry, inputs);
  if (!shapes)
    return shapes.takeError();
  if (outputs.size() != entry.results.size())
    return llvm::createStringError("entry '" + entry.name + "' gives " + llvm::Twine(entry.results.size()) +
                                   " results, memory for " + llvm::Twine(outputs.size()) + " is given");
  ArgumentList arguments(inputs.size() + outputs.size());
  for (auto [type, input] : llvm::zip_equal(entry.arguments, inputs))
    arguments.add(type, input);
  for (auto [i, output] : llvm::enumerate(outputs)) {
    if (llvm::Error error = checkBuffer(entry, "result", i, entry.results[i], output, (*shapes)[i]))
      return error;
    arguments.add(entry.results[i], output);
  }
  if (const char *message = state->codeOf(entry).call(arguments.data()))
    return llvm::createStringError("entry '" + entry.name + "': " + message);
  return llvm::Error::success();
}
