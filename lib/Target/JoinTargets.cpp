//===- JoinTargets.cpp - The host code of a target as a part of a library -----===//
//
// Prepares the host code of one program for several CPU targets and GPU architectures for linking into one library.
// Each part becomes an object of its own: LLVM takes less time for several modules than for their sum, and generates
// their code in parallel. What the parts share are the tables of entries, which refer to each other, and large
// constants.
//
//===----------------------------------------------------------------------===//
#include "saccade/Target/SharedLibrary.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Transforms/IPO/ConstantMerge.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"

using namespace llvm;
using namespace saccade;

/// The symbol of the table for the target with this number. Those of further targets are other names than that of any
/// entry, which may have any characters.
static std::string tableSymbol(StringRef entry, size_t number) {
  if (number == 0)
    return ("__saccade_entry_" + entry).str();
  return ("__saccade_target_" + Twine(number) + "_" + entry).str();
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

/// The fields of SaccadeEntry that differ between the targets of a library.
enum Field { RunsOn = 3, Next = 9, GPU = 10 };

static void setField(GlobalVariable &table, Field field, Constant *value) {
  auto *content = cast<ConstantStruct>(table.getInitializer());
  assert(content->getNumOperands() == GPU + 1 && "expected the fields of SaccadeEntry");
  SmallVector<Constant *> fields;
  for (const Use &each : content->operands())
    fields.push_back(cast<Constant>(each));
  fields[field] = value;
  table.setInitializer(ConstantStruct::get(content->getType(), fields));
}

/// Sets the fields of the table of an entry for the target `number`. Tables of other parts become declarations.
static void setFields(GlobalVariable &table, StringRef entry, ArrayRef<LibraryTarget> targets, size_t number) {
  Module &host = *table.getParent();
  auto refer = [&](Field field, size_t to) {
    std::string symbol = tableSymbol(entry, to);
    GlobalVariable *other = host.getNamedGlobal(symbol);
    if (!other) {
      other = new GlobalVariable(host, table.getValueType(), /*isConstant=*/true, GlobalValue::ExternalLinkage,
                                 /*Initializer=*/nullptr, symbol);
      other->setVisibility(GlobalValue::HiddenVisibility);
    }
    setField(table, field, other);
  };
  setField(table, RunsOn, ConstantInt::get(Type::getInt32Ty(host.getContext()), targets[number].cpu->runsOn));
  size_t firstGPU = find_if(targets, [](const LibraryTarget &target) { return target.gpu; }) - targets.begin();
  if (number + 1 < targets.size() && number + 1 != firstGPU)
    refer(Next, number + 1);
  if (number == 0 && firstGPU > 0 && firstGPU < targets.size())
    refer(GPU, firstGPU);
}

/// Makes the table of an entry one for each target of a part.
static void makeTables(Module &host, StringRef entry, const LibraryPart &part) {
  GlobalVariable *first = host.getNamedGlobal(tableSymbol(entry, 0));
  first->setName(tableSymbol(entry, part.first));
  SmallVector<GlobalVariable *> tables = {first};
  for (size_t number : seq(part.first + 1, part.first + part.count)) {
    auto *table = new GlobalVariable(host, first->getValueType(), first->isConstant(), GlobalValue::ExternalLinkage,
                                     first->getInitializer(), tableSymbol(entry, number));
    table->setAlignment(first->getAlign());
    tables.push_back(table);
  }
  for (auto [i, table] : enumerate(tables)) {
    size_t number = part.first + i;
    setFields(*table, entry, part.targets, number);
    if (number > 0)
      table->setVisibility(GlobalValue::HiddenVisibility);
  }
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

/// The linker merges strings and small constants itself.
static constexpr uint64_t leastSharedBytes = 256;

/// Adds the content of an array of numbers to `hash`; false if the constant is another one.
static bool addContent(const Constant &constant, BLAKE3 &hash) {
  if (auto *data = dyn_cast<ConstantDataSequential>(&constant)) {
    hash.update(data->getRawDataValues());
    return true;
  }
  auto *rows = dyn_cast<ConstantArray>(&constant);
  return rows && all_of(rows->operands(), [&](const Use &row) { return addContent(*cast<Constant>(row), hash); });
}

/// Makes the linker keep one copy of equal constants of several parts, such as weights: their symbol is their content.
static void shareConstants(Module &host) {
  for (GlobalVariable &global : host.globals())
    if (global.hasLocalLinkage() && global.isConstant())
      global.setUnnamedAddr(GlobalValue::UnnamedAddr::Global); // no code compares addresses of constants
  ModuleAnalysisManager nothing;
  ConstantMergePass().run(host, nothing);
  for (GlobalVariable &global : host.globals()) {
    if (!global.hasLocalLinkage() || !global.isConstant() || global.hasSection() || !global.hasInitializer())
      continue;
    BLAKE3 hash;
    if (host.getDataLayout().getTypeAllocSize(global.getValueType()) < leastSharedBytes ||
        !addContent(*global.getInitializer(), hash))
      continue;
    std::string symbol = "saccade.constant." + toHex(hash.final<16>(), /*LowerCase=*/true) + "." +
                         utostr(host.getDataLayout().getPreferredAlign(&global).value());
    if (host.getNamedValue(symbol)) // of another type
      continue;
    global.setName(symbol);
    global.setLinkage(GlobalValue::LinkOnceODRLinkage);
    global.setVisibility(GlobalValue::HiddenVisibility);
    global.setComdat(host.getOrInsertComdat(symbol));
  }
}

void saccade::addToLibrary(Module &host, const LibraryPart &part, ArrayRef<std::string> entries) {
  if (part.targets.size() == 1)
    return;
  for (const std::string &entry : entries)
    makeTables(host, entry, part);
  if (part.first > 0) {
    // The wrappers of the first part select the target.
    for (GlobalValue &global : host.global_values())
      if (!global.isDeclaration() && !global.hasHiddenVisibility())
        global.setLinkage(GlobalValue::InternalLinkage);
    ModuleAnalysisManager nothing;
    GlobalDCEPass().run(host, nothing);
  }
  // Profilers tell the code of targets apart.
  for (Function &function : host)
    if (function.hasLocalLinkage())
      function.setName(function.getName() + "." + part.target().name());
  shareConstants(host);
}
