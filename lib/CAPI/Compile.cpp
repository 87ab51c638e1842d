//===- Compile.cpp - Compilation through the C API ----------------------------===//
//
// Diagnostics are collected during compilation and passed to the handler on the caller's thread with no lock held, so
// that a handler may call any function of the API.
//
//===----------------------------------------------------------------------===//
#include "State.h"
#include "saccade/JIT/CompiledProgram.h"
#include "saccade/Pipeline/Explain.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/RunPipeline.h"
#include "saccade/Pipeline/Source.h"
#include "saccade/Target/Device.h"
#include "saccade/Target/Target.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include <cstdlib>
#include <cstring>
#include <new>

using namespace mlir;
using namespace saccade;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Compilation
//===----------------------------------------------------------------------===//

namespace {

/// A program to compile and its diagnostics.
struct Request {
  StringRef source = {}, name = {};
  CompileOptions options = {.target = lookupCPUTarget("portable")}; // parseOptions selects the host
  std::vector<std::pair<SaccadeSeverity, std::string>> diagnostics = {};

  DiagnosticSink sink() {
    return [this](DiagnosticSeverity severity, StringRef text) {
      // The enumerators have equal values; `text` contains the notes of the diagnostic.
      diagnostics.emplace_back(static_cast<SaccadeSeverity>(severity), text.rtrim().str());
    };
  }
};

} // namespace

static_assert(int(DiagnosticSeverity::Warning) == SACCADE_WARNING && int(DiagnosticSeverity::Error) == SACCADE_ERROR &&
              int(DiagnosticSeverity::Remark) == SACCADE_REMARK);

/// Checks the common arguments of compilations; calls `refuse` for invalid ones.
static SaccadeResult makeRequest(const SaccadeContext *context, const char *source, size_t size, const char *name,
                                 const SaccadeOption *options, size_t count, Request &request) {
  constexpr size_t maxBytes = size_t(1) << 30;
  const char *missing = !context              ? "context"
                        : (!source && size)   ? "source"
                        : (!options && count) ? "array of options"
                                              : nullptr;
  if (missing)
    return refuse(SACCADE_VALUE_ERROR, llvm::Twine("the ") + missing + " is NULL");
  if (size > maxBytes)
    return refuse(SACCADE_VALUE_ERROR,
                  "the source has " + llvm::Twine(size) + " bytes, expected at most " + llvm::Twine(maxBytes));
  request.source = StringRef(source, size);
  request.name = name ? name : "program";
  return parseOptions(llvm::ArrayRef(options, count), request.options);
}

/// Passes the diagnostics to the handler and returns the result of the request; errors become the last message.
static SaccadeResult finish(SaccadeContext *context, Request &request, llvm::Error error) {
  std::string message;
  if (error) {
    std::string text = llvm::toString(std::move(error));
    auto isError = [](const auto &diagnostic) { return diagnostic.first == SACCADE_ERROR; };
    // The error does not repeat diagnostics, and is reported only if there are none.
    if (llvm::none_of(request.diagnostics, isError))
      request.diagnostics.emplace_back(SACCADE_ERROR, text.empty() ? "the program was refused" : text);
    auto errors = llvm::make_filter_range(request.diagnostics, isError);
    message = llvm::join(llvm::make_second_range(errors), "\n");
  }
  SaccadeDiagnosticHandler handler;
  void *user;
  {
    std::lock_guard guard(context->lock);
    handler = context->handler;
    user = context->user;
  }
  if (handler)
    for (const auto &[severity, text] : request.diagnostics)
      handler(severity, text.c_str(), user);
  return message.empty() ? succeed() : refuse(SACCADE_COMPILE_ERROR, message);
}

SaccadeResult saccade_compile(SaccadeContext *context, const char *source, size_t size, const char *name,
                              const SaccadeOption *options, size_t num_options, SaccadeModule **module) {
  if (!module)
    return refuse(SACCADE_VALUE_ERROR, "the pointer for the module is NULL");
  *module = nullptr;
  Request request;
  if (SaccadeResult result = makeRequest(context, source, size, name, options, num_options, request))
    return result;
  if (!hostRuns(*request.options.target))
    return refuse(SACCADE_UNSUPPORTED, explainHostRefusal(*request.options.target));
  bool hasStack = true;
  std::shared_ptr<DiskCache> disk = diskCache(context);
  std::string key = KernelCache::makeKey(request.source, request.name, request.options), diskKey;
  auto load = [&]() -> KernelCache::Program {
    if (disk)
      diskKey = makeDiskKey("program", request.source, request.name, request.options);
    if (diskKey.empty())
      return nullptr;
    auto [program, diagnostics] = Executable::load(*disk, diskKey);
    for (const auto &[severity, text] : diagnostics)
      request.sink()(severity, text);
    return std::move(program);
  };
  auto compile = [&]() -> llvm::Expected<KernelCache::Program> {
    std::optional<llvm::Expected<CompiledProgram>> compiled;
    hasStack = runOnLargeStack(request.source.size(), [&] {
      compiled.emplace(compileText(request.source, request.name, request.options, request.sink()));
    });
    if (!hasStack)
      return llvm::createStringError("no memory for a thread to compile on");
    if (!*compiled)
      return compiled->takeError();
    llvm::Expected<KernelCache::Program> linked = Executable::link(**compiled);
    if (linked && !diskKey.empty())
      disk->store(diskKey, encodeProgram(**compiled));
    return linked;
  };
  llvm::Expected<KernelCache::Program> program = context->cache.get(key, load, compile);
  if (!program) {
    if (hasStack)
      return finish(context, request, program.takeError());
    return refuse(SACCADE_OUT_OF_MEMORY, llvm::toString(program.takeError()));
  }
  *module = createModule(std::move(*program));
  return finish(context, request, llvm::Error::success());
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

static llvm::Error printStage(Request &request, StringRef stage, llvm::raw_pwrite_stream &os) {
  Source source;
  if (failed(source.parse(llvm::MemoryBuffer::getMemBufferCopy(request.source, request.name), request.sink())))
    return llvm::createStringError("the program could not be parsed");
  bool isMLIR = llvm::is_contained(stageNames(), stage);
  if (isMLIR)
    request.options.stopAfter = stage.str();
  if (failed(runPipeline(source.module(), request.options)))
    return llvm::createStringError("the program was refused");
  if (isMLIR) {
    source.module().print(os);
    return llvm::Error::success();
  }
  const GPUTarget *device = request.options.device;
  if (stage == "ptx") {
    FailureOr<std::string> ptx = emitPTX(source.module(), *device);
    if (failed(ptx))
      return llvm::createStringError("the kernels could not be translated to PTX");
    os << *ptx;
    return llvm::Error::success();
  }
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> translated = device ? translateDevice(source.module(), context, *device)
                                                    : translate(source.module(), context, *request.options.target);
  if (!translated)
    return llvm::createStringError("the program could not be translated to LLVM IR");
  if (stage == "asm")
    return emitAssembly(*translated, *request.options.target, os);
  printLLVM(*translated, os);
  return llvm::Error::success();
}

/// Runs `print` on a thread with a large stack and returns its output in *text.
static SaccadeResult makeText(SaccadeContext *context, Request &request, char **text,
                              llvm::function_ref<llvm::Error(llvm::raw_pwrite_stream &)> print) {
  llvm::SmallString<0> printed;
  llvm::raw_svector_ostream os(printed);
  std::optional<llvm::Error> error;
  if (!runOnLargeStack(request.source.size(), [&] { error.emplace(print(os)); }))
    return refuse(SACCADE_OUT_OF_MEMORY, "no memory for a thread to compile on");
  SaccadeResult result = finish(context, request, std::move(*error));
  if (result != SACCADE_OK)
    return result;
  *text = static_cast<char *>(std::malloc(printed.size() + 1));
  if (!*text)
    return refuse(SACCADE_OUT_OF_MEMORY, "no memory for the text of " + llvm::Twine(printed.size()) + " bytes");
  std::memcpy(*text, printed.c_str(), printed.size() + 1);
  return result;
}

SaccadeResult saccade_print_stage(SaccadeContext *context, const char *source, size_t size, const char *name,
                                  const SaccadeOption *options, size_t num_options, const char *stage, char **text) {
  if (!text || !stage)
    return refuse(SACCADE_VALUE_ERROR, llvm::Twine("the ") + (text ? "stage" : "pointer for the text") + " is NULL");
  *text = nullptr;
  Request request;
  if (SaccadeResult result = makeRequest(context, source, size, name, options, num_options, request))
    return result;
  llvm::SmallVector<StringRef> stages = stageNames();
  stages.append({"llvm", request.options.device ? "ptx" : "asm"});
  if (!llvm::is_contained(stages, stage))
    return refuse(SACCADE_VALUE_ERROR,
                  "there is no stage '" + llvm::Twine(stage) + "', expected one of " + llvm::join(stages, ", "));
  return makeText(context, request, text, [&](llvm::raw_pwrite_stream &os) { return printStage(request, stage, os); });
}

static llvm::Error printExplanation(Request &request, std::vector<GivenSize> sizes, ExplainForm form,
                                    llvm::raw_pwrite_stream &os) {
  Source source;
  if (failed(source.parse(llvm::MemoryBuffer::getMemBufferCopy(request.source, request.name), request.sink())))
    return llvm::createStringError("the program could not be parsed");
  std::unique_ptr<Explanation> explanation = Explanation::create(source.module(), request.options, std::move(sizes));
  if (!explanation || failed(runPipeline(source.module(), request.options)))
    return llvm::createStringError("the program was refused");
  explanation->addKernels(source.module());
  for (const std::string &size : explanation->unusedSizes())
    request.diagnostics.emplace_back(SACCADE_WARNING, "no attention uses the size '" + size + "'");
  Explanation::print(explanation, form, os);
  return llvm::Error::success();
}

static SaccadeResult explain(SaccadeContext *context, const char *source, size_t size, const char *name,
                             const SaccadeOption *options, size_t num_options, const char *sizes, ExplainForm form,
                             char **text) {
  if (!text)
    return refuse(SACCADE_VALUE_ERROR, "the pointer for the text is NULL");
  *text = nullptr;
  Request request;
  if (SaccadeResult result = makeRequest(context, source, size, name, options, num_options, request))
    return result;
  llvm::Expected<std::vector<GivenSize>> given = parseGivenSizes(sizes ? sizes : "");
  if (!given)
    return refuse(SACCADE_VALUE_ERROR, llvm::toString(given.takeError()));
  return makeText(context, request, text,
                  [&](llvm::raw_pwrite_stream &os) { return printExplanation(request, std::move(*given), form, os); });
}

SaccadeResult saccade_explain(SaccadeContext *context, const char *source, size_t size, const char *name,
                              const SaccadeOption *options, size_t num_options, const char *sizes, char **text) {
  return explain(context, source, size, name, options, num_options, sizes, ExplainForm::Text, text);
}

SaccadeResult saccade_explain_json(SaccadeContext *context, const char *source, size_t size, const char *name,
                                   const SaccadeOption *options, size_t num_options, const char *sizes, char **text) {
  return explain(context, source, size, name, options, num_options, sizes, ExplainForm::JSON, text);
}

void saccade_text_free(char *text) { std::free(text); }
