//===- CommandLine.h - Command-line parser of the tools -----------*- C++ -*-===//
//
// Parses the options of one tool from a local table. llvm::cl is global: --help would list the options of all linked
// LLVM libraries, and some option names would conflict with them.
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

/// The exit codes of the tools.
enum ExitCode : int {
  ExitSuccess = 0,
  ExitInvalidInput = 1, ///< invalid program or arguments, after a diagnostic
  ExitUsage = 2,        ///< invalid command line
  ExitFile = 3,         ///< a file could not be read or written
  ExitUnsupported = 4,  ///< unsupported target or feature
  ExitMismatch = 5,     ///< --check found a difference
  ExitNonFinite = 6,    ///< --find-nan found a NaN or an infinity
  ExitInternal = 70,    ///< a bug in Saccade
};

/// "Saccade 0.1.0 (LLVM 22.1.0)"
std::string versionLine();

class CommandLine {
public:
  /// `tool`, `overview` and `usage` (the synopsis after the tool's name) begin the help text.
  CommandLine(llvm::StringRef tool, llvm::StringRef usage, llvm::StringRef overview);

  /// Stores a value; returns false if it is invalid, which is a usage error.
  using Setter = std::function<bool(llvm::StringRef value)>;

  /// --name
  void flag(llvm::StringRef name, llvm::StringRef help, bool &into);
  /// --name=VALUE or --name VALUE; single letters as -n VALUE or -nVALUE. May be given several times.
  /// The error of an invalid value says that it is not `expected`, or not `metavar` if that is empty.
  void value(llvm::StringRef name, llvm::StringRef metavar, llvm::StringRef help, Setter set,
             llvm::StringRef expected = "");
  void value(llvm::StringRef name, llvm::StringRef metavar, llvm::StringRef help, std::string &into);
  void value(llvm::StringRef name, llvm::StringRef metavar, llvm::StringRef help, std::vector<std::string> &into);
  /// --name or --name=VALUE; the setter receives "" without a value.
  void optionalValue(llvm::StringRef name, llvm::StringRef metavar, llvm::StringRef help, Setter set,
                     llvm::StringRef expected = "");
  /// --PREFIX..., with any value after '='; the whole arguments are stored.
  void passThrough(llvm::StringRef prefix, llvm::StringRef metavar, llvm::StringRef help,
                   std::vector<std::string> &into);
  /// The single positional argument.
  void positional(std::string &into) { input = &into; }

  /// Parses the command line. Returns nullopt if the tool should continue; else its exit code: ExitSuccess after --help
  /// or --version, ExitUsage after an error message on stderr.
  std::optional<ExitCode> parse(llvm::ArrayRef<const char *> arguments);

  /// Prints "tool: error: message" and a reference to --help, for invalid combinations of options.
  ExitCode usageError(const llvm::Twine &message) const;

private:
  enum class Kind { Flag, Value, OptionalValue, PassThrough };
  struct Option {
    std::string name, metavar, help;
    Kind kind;
    Setter set;
    std::string expected = {}; ///< values that `set` accepts, if `metavar` does not say it
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
