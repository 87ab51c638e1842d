//===- Signatures.cpp - What whoever calls a program is told of it -------------===//
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"

using namespace mlir;
using namespace saccade::attn;

static constexpr llvm::StringLiteral keptAttr = "attn.entries";

SmallVector<Signature> saccade::attn::getSignatures(ModuleOp program) {
  SmallVector<Signature> signatures;
  if (auto kept = program->getAttrOfType<ArrayAttr>(keptAttr)) {
    for (auto entry : kept.getAsRange<DictionaryAttr>()) {
      SmallVector<std::string> values;
      for (StringRef value : entry.getAs<ArrayAttr>("names").getAsValueRange<StringAttr>())
        values.push_back(value.str());
      signatures.push_back({entry.getAs<StringAttr>("name").str(), values,
                            cast<FunctionType>(entry.getAs<TypeAttr>("type").getValue()), program.getLoc()});
    }
    return signatures;
  }
  for (auto function : program.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isExternal())
      signatures.push_back(
          {function.getName().str(), nameValues(function), function.getFunctionType(), function.getLoc()});
  return signatures;
}

void saccade::attn::recordSignatures(ModuleOp program) {
  SmallVector<Attribute> entries;
  for (auto function : program.getOps<func::FuncOp>())
    if (Attribute entry = function->getAttr("attn.entry"))
      entries.push_back(entry);
  program->setAttr(keptAttr, ArrayAttr::get(program.getContext(), entries));
}
