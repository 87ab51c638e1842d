//===- TakeOptions.h - Options that are read before llvm::cl ------*- C++ -*-===//
#ifndef SACCADE_TOOLS_COMMON_TAKEOPTIONS_H
#define SACCADE_TOOLS_COMMON_TAKEOPTIONS_H

#include "saccade/Support/CommandLine.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace saccade {

/// Removes the options with the names of `values` from the command line of `tool` and stores their values. For tools
/// whose other options are those of llvm::cl, which must know all passes and dialects first. Returns ExitUsage after an
/// error on stderr if an option has no value.
ExitCode takeOptions(llvm::StringRef tool, std::vector<char *> &arguments,
                     std::initializer_list<std::pair<llvm::StringRef, std::vector<std::string> *>> values);

} // namespace saccade

#endif // SACCADE_TOOLS_COMMON_TAKEOPTIONS_H
