//===- Linker.cpp - Links objects into this process ---------------------------===//
//
// Links a compiled object with ORC's linker alone. LLJIT would create a target machine, for which LLVM's code generator
// must be initialized; a program of the disk cache needs neither. The runtime's symbols are defined by address, because
// they cannot be looked up by name if this library is part of a Python module or a plugin.
//
//===----------------------------------------------------------------------===//
#include "Linker.h"
#include "saccade/JIT/TaskTimes.h"
#include "saccade/Runtime/Conversions.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Runtime/Runtime.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h"

using namespace llvm;

static orc::SymbolMap runtimeSymbols(orc::ExecutionSession &session) {
  orc::SymbolMap symbols;
  auto add = [&](StringRef name, auto *function) {
    symbols[session.intern(name)] = {orc::ExecutorAddr::fromPtr(function),
                                     JITSymbolFlags::Exported | JITSymbolFlags::Callable};
  };
  add("saccade_parallel_for", &saccade::checkedParallelFor);
  add("saccade_threads", &saccade_threads);
  add("saccade_launch", &saccade::launchKernel);
  add("saccade_encode_tensor_map", &saccade::encodeTensorMap);
  add("saccade_allocate", &saccade::checkedAllocate);
  add("saccade_release", &saccade::checkedRelease);
  add("saccade_cuda_call", &saccade::callOnDevice);
  add("saccade_device_allocate", &saccade::allocateOnDevice);
  add("saccade_device_release", &saccade::releaseOnDevice);
  add("saccade_device_constant", &saccade::findDeviceConstant);
  add("saccade_device_counter", &saccade::allocateCounter);
  add("saccade_multiprocessors", &saccade::countMultiprocessors);
  add("saccade_entry_call", &saccade_entry_call);
  add("saccade_entry_shapes", &saccade_entry_shapes);
  add("saccade_entry_last_error", &saccade_entry_last_error);
  add("saccade_entry_target", &saccade_entry_target);
  add("saccade_entry_call_tvm_ffi", &saccade_entry_call_tvm_ffi);
  add("__truncsfbf2", &__truncsfbf2);
  add("__truncdfbf2", &__truncdfbf2);
  add("__truncsfhf2", &__truncsfhf2);
  add("__truncdfhf2", &__truncdfhf2);
  add("__extendhfsf2", &__extendhfsf2);
  return symbols;
}

namespace {
/// Records the names of the tasks of an object, before its symbols are forgotten.
class TaskNamer : public orc::ObjectLinkingLayer::Plugin {
public:
  explicit TaskNamer(std::vector<saccade_task> &tasks) : tasks(tasks) {}

  void modifyPassConfig(orc::MaterializationResponsibility &, jitlink::LinkGraph &,
                        jitlink::PassConfiguration &passes) override {
    // Code refers to local functions by their sections, so the linker would drop these symbols.
    passes.PrePrunePasses.push_back([](jitlink::LinkGraph &graph) {
      for (jitlink::Symbol *symbol : graph.defined_symbols())
        if (isTask(*symbol))
          symbol->setLive(true);
      return Error::success();
    });
    passes.PostAllocationPasses.push_back([this](jitlink::LinkGraph &graph) {
      for (jitlink::Symbol *symbol : graph.defined_symbols()) {
        if (!isTask(*symbol))
          continue;
        auto task = symbol->getAddress().toPtr<saccade_task>();
        tasks.push_back(task);
        saccade::nameTask(task, StringRef(*symbol->getName()).drop_back(saccade::taskRunnerSuffix.size()));
      }
      return Error::success();
    });
  }
  Error notifyFailed(orc::MaterializationResponsibility &) override { return Error::success(); }
  Error notifyRemovingResources(orc::JITDylib &, orc::ResourceKey) override { return Error::success(); }
  void notifyTransferringResources(orc::JITDylib &, orc::ResourceKey, orc::ResourceKey) override {}

private:
  static bool isTask(const jitlink::Symbol &symbol) {
    return symbol.hasName() && symbol.isCallable() && StringRef(*symbol.getName()).ends_with(saccade::taskRunnerSuffix);
  }

  std::vector<saccade_task> &tasks;
};
} // namespace

// The objects have neither constructors nor thread-local data, so they need no platform support.
saccade::LinkedObject::LinkedObject(std::unique_ptr<orc::ExecutorProcessControl> process)
    : session(std::move(process)), layer(session), library(session.createBareJITDylib("program")) {
  layer.addPlugin(std::make_shared<TaskNamer>(tasks));
  session.setErrorReporter([this](Error error) { reported += toString(std::move(error)) + "\n"; });
}

saccade::LinkedObject::~LinkedObject() {
  forgetTasks(tasks);
  consumeError(session.endSession());
}

Expected<std::unique_ptr<saccade::LinkedObject>> saccade::LinkedObject::create(std::unique_ptr<MemoryBuffer> object) {
  auto process = orc::SelfExecutorProcessControl::Create(nullptr, std::make_unique<orc::InPlaceTaskDispatcher>());
  if (!process)
    return process.takeError();
  std::unique_ptr<LinkedObject> linked(new LinkedObject(std::move(*process)));
  auto ofProcess = orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(/*GlobalPrefix=*/'\0');
  if (!ofProcess)
    return ofProcess.takeError();
  linked->library.addGenerator(std::move(*ofProcess));
  if (Error error = linked->library.define(orc::absoluteSymbols(runtimeSymbols(linked->session))))
    return error;
  if (Error error = linked->layer.add(linked->library, std::move(object)))
    return error;
  return linked;
}

Expected<orc::ExecutorAddr> saccade::LinkedObject::lookup(StringRef name) {
  Expected<orc::ExecutorSymbolDef> symbol = session.lookup({&library}, session.intern(name));
  if (!symbol)
    return createStringError(reported + toString(symbol.takeError()));
  return symbol->getAddress();
}
