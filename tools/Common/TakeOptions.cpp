//===- TakeOptions.cpp - Options that are read before llvm::cl ----------------===//
#include "TakeOptions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

saccade::ExitCode
saccade::takeOptions(llvm::StringRef tool, std::vector<char *> &arguments,
                     std::initializer_list<std::pair<llvm::StringRef, std::vector<std::string> *>> values) {
  std::vector<char *> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    llvm::StringRef argument = arguments[i];
    auto [name, value] = argument.ltrim('-').split('=');
    const auto *known = llvm::find_if(values, [&, name = name](auto &each) { return each.first == name; });
    if (!argument.starts_with("-") || known == values.end()) {
      rest.push_back(arguments[i]);
      continue;
    }
    bool isNext = !argument.contains('=') && i + 1 < arguments.size();
    std::string given = isNext ? arguments[++i] : value.str();
    if (given.empty()) {
      llvm::errs() << tool << ": error: --" << name << " has no value\n";
      return ExitUsage;
    }
    known->second->push_back(std::move(given));
  }
  arguments = std::move(rest);
  return ExitSuccess;
}
