//===- JoinTargets.cpp - The code of a program for several targets -----------===//
//
// Links the host code of one program for several CPU targets and GPU architectures. Works on LLVM IR, in which symbols
// of several compilations can still be made internal before they are linked into one object; every function has the
// target attributes of its own compilation.
//
//===----------------------------------------------------------------------===//
#include "saccade/Target/SharedLibrary.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Transforms/IPO/ConstantMerge.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"

using namespace llvm;

static std::string tableSymbol(StringRef entry) { return ("__saccade_entry_" + entry).str(); }

/// The table for a further target; another name than that of any entry, which may have any characters.
static std::string tableSymbol(StringRef entry, size_t number) {
  return ("__saccade_target_" + Twine(number) + "_" + entry).str();
}

/// Sets `next` or `gpu`, the last two fields of a table.
static void setField(GlobalVariable &table, bool isGPU, Constant *value) {
  auto *content = cast<ConstantStruct>(table.getInitializer());
  SmallVector<Constant *> fields;
  for (const Use &field : content->operands())
    fields.push_back(cast<Constant>(field));
  fields[fields.size() - (isGPU ? 1 : 2)] = value;
  table.setInitializer(ConstantStruct::get(content->getType(), fields));
}

/// Stores equal constants of several targets, such as weights and messages, once.
static void mergeConstants(Module &module) {
  for (GlobalVariable &global : module.globals())
    if (global.hasLocalLinkage() && global.isConstant())
      global.setUnnamedAddr(GlobalValue::UnnamedAddr::Global); // no code compares addresses of constants
  ModuleAnalysisManager nothing;
  ConstantMergePass().run(module, nothing);
}

Error saccade::joinTargets(Module &into, std::vector<std::unique_ptr<Module>> others, size_t firstGPU,
                           ArrayRef<std::string> entries) {
  if (others.empty())
    return Error::success();
  // The last table in the chain of each entry.
  std::map<std::string, GlobalVariable *> last;
  for (const std::string &entry : entries)
    last[entry] = into.getNamedGlobal(tableSymbol(entry));
  for (auto [i, other] : enumerate(others)) {
    size_t number = i + 1;
    // Keep only the tables external, under unique names.
    for (GlobalValue &global : other->global_values())
      if (!global.isDeclaration())
        global.setLinkage(GlobalValue::InternalLinkage);
    for (const std::string &entry : entries) {
      GlobalVariable *table = other->getNamedGlobal(tableSymbol(entry));
      table->setName(tableSymbol(entry, number));
      table->setLinkage(GlobalValue::ExternalLinkage);
    }
    ModuleAnalysisManager nothing;
    GlobalDCEPass().run(*other, nothing);
    if (Linker::linkModules(into, std::move(other)))
      return createStringError("the host code of two targets cannot be linked");
    for (const std::string &entry : entries) {
      GlobalVariable *table = into.getNamedGlobal(tableSymbol(entry, number));
      table->setLinkage(GlobalValue::InternalLinkage);
      if (number == firstGPU)
        setField(*into.getNamedGlobal(tableSymbol(entry)), /*isGPU=*/true, table);
      else
        setField(*last[entry], /*isGPU=*/false, table);
      last[entry] = table;
    }
  }
  mergeConstants(into);
  return Error::success();
}
