//===- Kernels.cpp - Kernels embedded in host code ----------------------------===//
//
// Embeds kernels in host code and links the host code for several architectures. Works on LLVM IR, in which symbols of
// several compilations can still be made internal before they are linked into one object.
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

/// An internal constant with the given bytes.
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

  // "sm_90a": the number, and a suffix if the code is architecture-specific.
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
  if (!declared) // the program has no entries
    return;
  declared->replaceAllUsesWith(kernels);
  declared->eraseFromParent();
}

static std::string tableSymbol(StringRef entry) { return ("__saccade_entry_" + entry).str(); }

/// The table for a further architecture; another name than that of any entry, which may have any characters.
static std::string tableSymbol(StringRef entry, size_t number) {
  return ("__saccade_architecture_" + Twine(number) + "_" + entry).str();
}

Error saccade::joinArchitectures(Module &into, std::vector<std::unique_ptr<Module>> others,
                                 ArrayRef<std::string> entries) {
  // The last table in the chain of each entry.
  std::map<std::string, GlobalVariable *> last;
  for (const std::string &entry : entries)
    last[entry] = into.getNamedGlobal(tableSymbol(entry));
  for (auto [i, other] : enumerate(others)) {
    // Keep only the tables external, under unique names.
    for (GlobalValue &global : other->global_values())
      if (!global.isDeclaration())
        global.setLinkage(GlobalValue::InternalLinkage);
    for (const std::string &entry : entries) {
      GlobalVariable *table = other->getNamedGlobal(tableSymbol(entry));
      table->setName(tableSymbol(entry, i + 1));
      table->setLinkage(GlobalValue::ExternalLinkage);
    }
    ModuleAnalysisManager nothing;
    GlobalDCEPass().run(*other, nothing);
    if (Linker::linkModules(into, std::move(other)))
      return createStringError("the host code of two architectures cannot be linked");
    for (const std::string &entry : entries) {
      GlobalVariable *table = into.getNamedGlobal(tableSymbol(entry, i + 1));
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
