//===- Kernels.cpp - Kernels inside of host code ------------------------------===//
//
// The record that the runtime loads kernels from, and several architectures in one program. LLVM IR is the last form in
// which host code of several compilations can become one object with nothing exported twice.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/Kernels.h"
#include "saccade/Runtime/Entry.h"
#include "saccade/Target/Device.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include <cstddef>

using namespace llvm;

/// Bytes as a constant of the module's own.
static Constant *makeBytes(Module &host, StringRef bytes, bool isText) {
  Constant *content = ConstantDataArray::getString(host.getContext(), bytes, /*AddNull=*/isText);
  auto *global = new GlobalVariable(host, content->getType(), /*isConstant=*/true, GlobalValue::InternalLinkage,
                                    content, isText ? "saccade.ptx" : "saccade.cubin");
  global->setAlignment(Align(16));
  return global;
}

void saccade::addKernels(Module &host, const GPUTarget &target, StringRef ptx, StringRef cubin) {
  LLVMContext &context = host.getContext();
  auto *pointer = PointerType::get(context, 0);
  auto *i32 = Type::getInt32Ty(context);
  auto number = [&](int64_t value) -> Constant * { return ConstantInt::get(i32, value); };
  FunctionCallee call = host.getOrInsertFunction("saccade_cuda_call", i32, pointer, i32, pointer, pointer);

  // "sm_90a": the number, and whether it is the architecture alone.
  StringRef digits = target.name.drop_front(strlen("sm_"));
  int64_t architecture = 0;
  bool consumed = !digits.consumeInteger(10, architecture);
  assert(consumed && "an architecture has a number");
  (void)consumed;

  // call, ptx, cubin, architecture, is_arch_specific, cta_threads, reserved, loaded
  auto *type = StructType::get(context, {pointer, pointer, pointer, i32, i32, i32, i32, pointer});
  static_assert(sizeof(SaccadeKernels) == 48 && offsetof(SaccadeKernels, loaded) == 40);
  Constant *null = ConstantPointerNull::get(pointer);
  Constant *fields[] = {cast<Constant>(call.getCallee()),
                        makeBytes(host, ptx, /*isText=*/true),
                        cubin.empty() ? null : makeBytes(host, cubin, /*isText=*/false),
                        number(architecture),
                        number(!digits.empty()),
                        number(threadsPerCTA),
                        number(0),
                        null};
  auto *kernels = new GlobalVariable(host, type, /*isConstant=*/false, GlobalValue::InternalLinkage,
                                     ConstantStruct::get(type, fields), kernelsSymbol + ".defined");
  GlobalVariable *declared = host.getNamedGlobal(kernelsSymbol);
  if (!declared) // nothing can be called
    return;
  declared->replaceAllUsesWith(kernels);
  declared->eraseFromParent();
}

static std::string tableSymbol(StringRef entry) { return ("__saccade_entry_" + entry).str(); }

Error saccade::joinArchitectures(Module &into, std::vector<std::unique_ptr<Module>> others,
                                 ArrayRef<std::string> entries) {
  // Behind the table of an entry, in the order of the architectures.
  std::map<std::string, GlobalVariable *> last;
  for (const std::string &entry : entries)
    last[entry] = into.getNamedGlobal(tableSymbol(entry));
  for (auto [i, other] : enumerate(others)) {
    // Of the others only tables are wanted, under names that meet nothing.
    for (GlobalValue &global : other->global_values())
      if (!global.isDeclaration())
        global.setLinkage(GlobalValue::InternalLinkage);
    for (const std::string &entry : entries) {
      GlobalVariable *table = other->getNamedGlobal(tableSymbol(entry));
      table->setName(tableSymbol(entry) + "." + Twine(i + 1));
      table->setLinkage(GlobalValue::ExternalLinkage);
    }
    ModuleAnalysisManager nothing;
    GlobalDCEPass().run(*other, nothing);
    if (Linker::linkModules(into, std::move(other)))
      return createStringError("the host code of two architectures cannot be joined");
    for (const std::string &entry : entries) {
      GlobalVariable *table = into.getNamedGlobal(tableSymbol(entry) + "." + std::to_string(i + 1));
      table->setLinkage(GlobalValue::InternalLinkage);
      GlobalVariable *&before = last[entry];
      auto *content = cast<ConstantStruct>(before->getInitializer());
      SmallVector<Constant *> fields;
      for (const Use &field : content->operands())
        fields.push_back(cast<Constant>(field));
      fields.back() = table;
      before->setInitializer(ConstantStruct::get(content->getType(), fields));
      before = table;
    }
  }
  return Error::success();
}
