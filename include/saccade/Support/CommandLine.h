//===- CommandLine.h - Options of our tools -----------------------*- C++ -*-===//
//
// A tool's options as a table of its own. LLVM's command-line library is global: every option of every LLVM
// library would turn up in --help, and some of our names are taken there.
//
//===----------------------------------------------------------------------===//
#ifndef SACCADE_SUPPORT_COMMANDLINE_H
#define SACCADE_SUPPORT_COMMANDLINE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace saccade {

/// What a tool's process ends with.
enum ExitCode : int {
  ExitSuccess = 0,
  ExitInvalidInput = 1,     ///< the input was refused, with a diagnostic
  ExitUsage = 2,       ///< the command line was not understood
  ExitFile = 3,        ///< a file could not be read or written
  ExitUnsupported = 4, ///< a target or feature that is not supported
  ExitMismatch = 5,  ///< --check found a difference
  ExitInternal = 70,   ///< a bug of ours
};

/// "Saccade 0.1.0 (LLVM 22.1.0)"
std::string versionLine();

class CommandLine {
public:
  /// `tool` and `overview` head the help text; `usage` shows what the positional argument is.
  CommandLine(llvm::StringRef tool, llvm::StringRef usage, llvm::StringRef overview);

  /// Takes a value; answers false where it makes no sense, which is a usage error.
  using Setter = std::function<bool(llvm::StringRef value)>;

  /// --name
  void flag(llvm::StringRef name, llvm::StringRef help, bool &into);
  /// --name=VALUE or --name VALUE; single letters as -n VALUE or -nVALUE. May be given several times.
  void value(llvm::StringRef name, llvm::StringRef metavar, llvm::StringRef help, Setter set);
  void value(llvm::StringRef name, llvm::StringRef metavar, llvm::StringRef help, std::string &into);
  void value(llvm::StringRef name, llvm::StringRef metavar, llvm::StringRef help, std::vector<std::string> &into);
  /// --name or --name=VALUE; the setter gets "" without a value.
  void optionalValue(llvm::StringRef name, llvm::StringRef metavar, llvm::StringRef help, Setter set);
  /// The one argument that is no option.
  void positional(std::string &into) { input = &into; }

  /// Reads the command line. Nothing where the tool is to go on; else its exit code: done after --help or --version,
  /// usage after an error message on stderr.
  std::optional<ExitCode> parse(llvm::ArrayRef<const char *> arguments);

  /// Prints "tool: error: message" and a hint at --help; for combinations of options that make no sense.
  ExitCode usageError(const llvm::Twine &message) const;

private:
  enum class Kind { Flag, Value, OptionalValue };
  struct Option {
    std::string name, metavar, help;
    Kind kind;
    Setter set;
  };
  const Option *find(llvm::StringRef name) const;
  std::optional<ExitCode> unknown(llvm::StringRef argument) const;
  void printHelp(llvm::raw_ostream &os) const;

  std::string tool, usage, overview;
  std::vector<Option> options;
  std::string *input = nullptr;
};

} // namespace saccade

#endif // SACCADE_SUPPORT_COMMANDLINE_H
