//===- Signatures.cpp - Names and types of a program's entries ----------------===//
//
// Reads the signatures of public functions before compilation, or from an attribute of the module afterwards.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"

using namespace mlir;
using namespace saccade::attn;

static constexpr llvm::StringLiteral entriesAttr = "attn.entries";

SmallVector<Signature> saccade::attn::getSignatures(ModuleOp program) {
  SmallVector<Signature> signatures;
  if (auto recorded = program->getAttrOfType<ArrayAttr>(entriesAttr)) {
    for (auto entry : recorded.getAsRange<DictionaryAttr>()) {
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
  program->setAttr(entriesAttr, ArrayAttr::get(program.getContext(), entries));
}
