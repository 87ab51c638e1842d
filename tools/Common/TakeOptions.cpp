//===- TakeOptions.cpp - Options that are read before llvm::cl ----------------===//
#include "TakeOptions.h"
#include "llvm/ADT/STLExtras.h"

void saccade::takeOptions(std::vector<char *> &arguments,
                          std::initializer_list<std::pair<llvm::StringRef, std::vector<std::string> *>> values) {
  std::vector<char *> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    llvm::StringRef argument = arguments[i];
    auto [name, value] = argument.ltrim('-').split('=');
    const auto *known = llvm::find_if(values, [&, name = name](auto &each) { return each.first == name; });
    if (!argument.starts_with("-") || known == values.end())
      rest.push_back(arguments[i]);
    else if (argument.contains('='))
      known->second->push_back(value.str());
    else if (i + 1 < arguments.size())
      known->second->emplace_back(arguments[++i]);
  }
  arguments = std::move(rest);
}
