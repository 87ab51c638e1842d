//===- Linker.cpp - Links objects into this process ---------------------------===//
//
// Links a compiled object with ORC. The runtime's symbols are defined by address, because they cannot be looked up by
// name if this library is part of a Python module or a plugin.
//
//===----------------------------------------------------------------------===//
#include "Linker.h"
#include "saccade/Runtime/Conversions.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Runtime/Runtime.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"

using namespace llvm;

static orc::SymbolMap runtimeSymbols(orc::LLJIT &jit) {
  orc::SymbolMap symbols;
  auto add = [&](StringRef name, auto *function) {
    symbols[jit.mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(function),
                                          JITSymbolFlags::Exported | JITSymbolFlags::Callable};
  };
  add("saccade_parallel_for", &saccade::checkedParallelFor);
  add("saccade_launch", &saccade::launchKernel);
  add("saccade_allocate", &saccade::checkedAllocate);
  add("saccade_release", &saccade::checkedRelease);
  add("saccade_cuda_call", &saccade::callOnDevice);
  add("saccade_device_allocate", &saccade::allocateOnDevice);
  add("saccade_device_release", &saccade::releaseOnDevice);
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

Expected<std::unique_ptr<orc::LLJIT>> saccade::linkObject(std::unique_ptr<MemoryBuffer> object) {
  Expected<std::unique_ptr<orc::LLJIT>> jit =
      orc::LLJITBuilder()
          // The objects have neither constructors nor thread-local data, so they need no platform support.
          .setPlatformSetUp(orc::setUpInactivePlatform)
          .setObjectLinkingLayerCreator(
              [](orc::ExecutionSession &session) -> Expected<std::unique_ptr<orc::ObjectLayer>> {
                return std::make_unique<orc::ObjectLinkingLayer>(session);
              })
          .create();
  if (!jit)
    return jit.takeError();
  orc::JITDylib &library = (*jit)->getMainJITDylib();
  if (Error error = library.define(orc::absoluteSymbols(runtimeSymbols(**jit))))
    return error;
  if (Error error = (*jit)->addObjectFile(std::move(object)))
    return error;
  return jit;
}
