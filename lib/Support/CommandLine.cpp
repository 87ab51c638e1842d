//===- CommandLine.cpp - Command-line parser of the tools ---------------------===//
//
// Follows GNU conventions: --name=VALUE, --name VALUE, -o VALUE; "--" ends the options; "-" is standard input.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/CommandLine.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Format.h"

using namespace saccade;
using llvm::StringRef;

std::string saccade::versionLine() { return "Saccade " SACCADE_VERSION " (LLVM " LLVM_VERSION_STRING ")"; }

CommandLine::CommandLine(StringRef tool, StringRef usage, StringRef overview)
    : tool(tool), usage(usage), overview(overview) {}

void CommandLine::flag(StringRef name, StringRef help, bool &into) {
  options.push_back({name.str(), "", help.str(), Kind::Flag, [&into](StringRef) { return into = true; }});
}

void CommandLine::value(StringRef name, StringRef metavar, StringRef help, Setter set, StringRef expected) {
  options.push_back({name.str(), metavar.str(), help.str(), Kind::Value, std::move(set), expected.str()});
}

void CommandLine::value(StringRef name, StringRef metavar, StringRef help, std::string &into) {
  value(name, metavar, help, [&into](StringRef value) {
    into = value.str();
    return true;
  });
}

void CommandLine::value(StringRef name, StringRef metavar, StringRef help, std::vector<std::string> &into) {
  value(name, metavar, help, [&into](StringRef value) {
    into.push_back(value.str());
    return true;
  });
}

void CommandLine::optionalValue(StringRef name, StringRef metavar, StringRef help, Setter set, StringRef expected) {
  options.push_back({name.str(), metavar.str(), help.str(), Kind::OptionalValue, std::move(set), expected.str()});
}

void CommandLine::passThrough(StringRef prefix, StringRef metavar, StringRef help, std::vector<std::string> &into) {
  options.push_back({prefix.str(), metavar.str(), help.str(), Kind::PassThrough, [&into](StringRef argument) {
                       into.push_back(argument.str());
                       return true;
                     }});
}

const CommandLine::Option *CommandLine::find(StringRef name) const {
  auto it = llvm::find_if(options, [&](const Option &option) {
    return option.kind == Kind::PassThrough ? name.starts_with(option.name) : option.name == name;
  });
  return it == options.end() ? nullptr : &*it;
}

ExitCode CommandLine::usageError(const llvm::Twine &message) const {
  llvm::errs() << tool << ": error: " << message << "\nTry '" << tool << " --help'.\n";
  return ExitUsage;
}

std::optional<ExitCode> CommandLine::unknown(StringRef argument) const {
  StringRef name = argument.ltrim('-').split('=').first;
  const Option *nearest = nullptr;
  unsigned best = 3; // suggest options within two edits
  for (const Option &option : options)
    if (unsigned distance = name.edit_distance(option.name); distance < best) {
      best = distance;
      nearest = &option;
    }
  std::string hint = nearest ? "; did you mean '--" + nearest->name + "'?" : "";
  return usageError("unknown option '" + argument + "'" + hint);
}

std::optional<ExitCode> CommandLine::parse(llvm::ArrayRef<const char *> arguments) {
  bool optionsEnded = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    StringRef argument = arguments[i];
    if (optionsEnded || argument == "-" || !argument.starts_with("-")) {
      if (!input || !input->empty())
        return usageError("expected one input, got '" + argument + "' as well");
      *input = argument.str();
      continue;
    }
    if (argument == "--") {
      optionsEnded = true;
      continue;
    }
    if (argument == "--help" || argument == "-h") {
      printHelp(llvm::outs());
      return ExitSuccess;
    }
    if (argument == "--version") {
      llvm::outs() << tool << ": " << versionLine() << '\n';
      return ExitSuccess;
    }
    // -oFILE; everything else is --name=VALUE.
    bool isShort = !argument.starts_with("--") && argument.size() >= 2 && find(argument.substr(1, 1));
    auto [name, given] =
        isShort ? std::pair(argument.substr(1, 1), argument.substr(2)) : argument.ltrim('-').split('=');
    bool hasValue = isShort ? !given.empty() : argument.contains('=');
    const Option *option = find(name);
    if (!option)
      return unknown(argument);
    if (option->kind == Kind::Flag && hasValue)
      return usageError("option '--" + name + "' takes no value");
    if (option->kind == Kind::Value && !hasValue) {
      if (i + 1 == arguments.size())
        return usageError("option '" + argument + "' requires a value: " + option->metavar);
      given = arguments[++i];
    }
    if (option->kind == Kind::PassThrough)
      given = argument;
    if (!option->set(given))
      return usageError("option '" + argument + "': '" + given + "' is not " +
                        (option->expected.empty() ? option->metavar : option->expected));
  }
  if (input && input->empty())
    return usageError("no input is given");
  return std::nullopt;
}

void CommandLine::printHelp(llvm::raw_ostream &os) const {
  os << tool << ": " << overview << "\n\nUsage: " << tool << ' ' << usage << "\n\nOptions:\n";
  auto line = [&](const llvm::Twine &option, StringRef help) {
    std::string left = option.str();
    os << "  " << llvm::left_justify(left, 36);
    if (left.size() >= 36)
      os << "\n  " << std::string(36, ' ');
    os << help << '\n';
  };
  for (const Option &option : options) {
    StringRef dashes = option.name.size() == 1 ? "-" : "--", between = option.name.size() == 1 ? " " : "=";
    switch (option.kind) {
    case Kind::Flag:
      line(dashes + option.name, option.help);
      break;
    case Kind::Value:
      line(dashes + option.name + between + option.metavar, option.help);
      break;
    case Kind::PassThrough:
      line(dashes + option.name + option.metavar, option.help);
      break;
    case Kind::OptionalValue:
      line(dashes + option.name + "[=" + option.metavar + "]", option.help);
      break;
    }
  }
  line("--help", "Show this text");
  line("--version", "Show the versions of Saccade and of LLVM");
  os << "\nExit codes: 0 success; 1 invalid input; 2 invalid command line; 3 a file could not be read or written;\n"
        "4 unsupported target or feature; 5 --check found a difference; 70 a bug in Saccade.\n";
}
