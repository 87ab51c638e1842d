//===- Signatures.cpp - Names and types of a program's entries ----------------===//
//
// Reads the signatures of public functions before compilation, or from an attribute of the module afterwards.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/Signatures.h"
#include "saccade/Dialect/Attn/Analysis/NameValues.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace saccade::attn;

static constexpr llvm::StringLiteral entriesAttr = "attn.entries";

Signature Signature::of(func::FuncOp function) {
  SmallVector<int64_t> updatedBy;
  BitVector isDropped(function.getNumResults());
  for (std::optional<unsigned> result : getUpdatingResults(function)) {
    updatedBy.push_back(result ? int64_t(*result) : -1);
    if (result)
      isDropped.set(*result);
  }
  unsigned inputs = function.getNumArguments();
  SmallVector<std::string> values;
  for (auto [i, name] : llvm::enumerate(nameValues(function)))
    if (i < inputs || !isDropped[i - inputs])
      values.push_back(name);
  SmallVector<Type> results;
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    if (!isDropped[i])
      results.push_back(type);
  return {function.getName().str(), values,
          FunctionType::get(function.getContext(), function.getArgumentTypes(), results), function.getLoc(), updatedBy};
}

std::optional<Signature> Signature::from(DictionaryAttr entry, Location loc) {
  auto name = entry.getAs<StringAttr>("name");
  auto names = entry.getAs<ArrayAttr>("names");
  auto type = entry.getAs<TypeAttr>("type");
  auto updatedBy = entry.getAs<DenseI64ArrayAttr>("updated_by");
  auto functionType = type ? dyn_cast<FunctionType>(type.getValue()) : FunctionType();
  if (!name || !names || !functionType || (updatedBy && updatedBy.size() != functionType.getNumInputs()) ||
      names.size() != functionType.getNumInputs() + functionType.getNumResults())
    return std::nullopt;
  Signature signature{name.str(), {}, functionType, loc, SmallVector<int64_t>(functionType.getNumInputs(), -1)};
  if (updatedBy)
    signature.updatedBy.assign(updatedBy.asArrayRef().begin(), updatedBy.asArrayRef().end());
  for (StringRef value : names.getAsValueRange<StringAttr>())
    signature.values.push_back(value.str());
  return signature;
}

DictionaryAttr Signature::toAttribute() const {
  Builder b(loc.getContext());
  SmallVector<StringRef> names(values.begin(), values.end());
  NamedAttrList attributes;
  attributes.append("name", b.getStringAttr(name));
  attributes.append("names", b.getStrArrayAttr(names));
  attributes.append("type", TypeAttr::get(type));
  if (llvm::any_of(updatedBy, [](int64_t result) { return result >= 0; }))
    attributes.append("updated_by", b.getDenseI64ArrayAttr(updatedBy));
  return attributes.getDictionary(b.getContext());
}

/// The attributes of entries, in order. A lowered entry has a second function with the same attribute.
static SmallVector<Attribute> getEntryAttributes(ModuleOp program) {
  SmallVector<Attribute> entries;
  for (Operation &function : program.getOps())
    if (Attribute entry = function.getAttr("attn.entry"); entry && !llvm::is_contained(entries, entry))
      entries.push_back(entry);
  return entries;
}

SmallVector<Signature> saccade::attn::getSignatures(ModuleOp program) {
  SmallVector<Signature> signatures;
  auto recorded = program->getAttrOfType<ArrayAttr>(entriesAttr);
  for (Attribute attribute : recorded ? SmallVector<Attribute>(recorded.getValue()) : getEntryAttributes(program))
    if (auto entry = dyn_cast<DictionaryAttr>(attribute))
      if (std::optional<Signature> signature = Signature::from(entry, program.getLoc()))
        signatures.push_back(std::move(*signature));
  if (recorded || !signatures.empty())
    return signatures;
  for (auto function : program.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isExternal())
      signatures.push_back(Signature::of(function));
  return signatures;
}

void saccade::attn::recordSignatures(ModuleOp program) {
  if (!program->hasAttr(entriesAttr))
    program->setAttr(entriesAttr, ArrayAttr::get(program.getContext(), getEntryAttributes(program)));
}
