//===- NameValues.cpp - Names of the arguments and results of an entry --------===//
//
// MLIR does not keep names of values; the parser stores those of arguments in their locations.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/NameValues.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

/// `name` with characters that C does not allow replaced by '_'; empty if it starts with a digit.
static std::string toIdentifier(StringRef name) {
  if (name.empty() || llvm::isDigit(name.front()))
    return "";
  std::string identifier = name.str();
  for (char &letter : identifier)
    if (!llvm::isAlnum(letter))
      letter = '_';
  return identifier;
}

static std::string nameArgument(BlockArgument argument) {
  std::string name;
  if (auto location = dyn_cast<NameLoc>(argument.getLoc()))
    name = toIdentifier(location.getName());
  return name.empty() ? "arg" + std::to_string(argument.getArgNumber()) : name;
}

static std::string nameResult(Value value, unsigned index, unsigned count) {
  if (auto attention = value ? value.getDefiningOp<saccade::attn::AttentionOp>() : nullptr)
    return value == attention.getOutput()   ? "output"
           : value == attention.getLse()    ? "lse"
           : value == attention.getLseLow() ? "lse_low"
           : value == attention.getRowMax() ? "max"
           : value == attention.getArgmax() ? "argmax"
                                            : "tally";
  return count == 1 ? "result" : "result" + std::to_string(index);
}

SmallVector<std::string> saccade::attn::nameValues(func::FuncOp function) {
  SmallVector<std::string> names;
  for (BlockArgument argument : function.getArguments())
    names.push_back(nameArgument(argument));
  // With branches the last block may have another terminator; such functions are rejected later.
  auto returned = dyn_cast<func::ReturnOp>(function.getBody().back().getTerminator());
  for (unsigned i = 0, count = function.getNumResults(); i < count; ++i) {
    auto given = function.getResultAttrOfType<StringAttr>(i, resultNameAttr);
    names.push_back(given ? given.str() : nameResult(returned ? returned.getOperand(i) : Value(), i, count));
  }

  llvm::StringSet<> taken;
  for (std::string &name : names) {
    std::string free = name;
    for (unsigned i = 1; !taken.insert(free).second; ++i)
      free = name + "_" + std::to_string(i);
    name = free;
  }
  return names;
}
