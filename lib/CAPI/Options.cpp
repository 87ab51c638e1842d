//===- Options.cpp - Named compile options of the C API -----------------------===//
//
// One table with the name, description and setter of each option.
//
//===----------------------------------------------------------------------===//
#include "State.h"
#include "saccade/Pipeline/Pipeline.h"
#include "llvm/ADT/StringExtras.h"

using namespace saccade;
using llvm::StringRef;

namespace {
/// Stores a value; returns the description of the valid values if it is invalid.
using Setter = std::optional<std::string> (*)(StringRef value, CompileOptions &into);

struct OptionRow {
  StringRef name, help;
  Setter set;
};
} // namespace

static std::optional<std::string> setTarget(StringRef value, CompileOptions &into) {
  const CPUTarget *target = lookupCPUTarget(value);
  if (!target)
    return "expected one of " + cpuTargetNames().str();
  into.target = target;
  return std::nullopt;
}

template <bool CompileOptions::*Flag> static std::optional<std::string> setFlag(StringRef value, CompileOptions &into) {
  if (value != "true" && value != "false")
    return "expected true or false";
  into.*Flag = value == "true";
  return std::nullopt;
}

static std::optional<std::string> insertAfter(StringRef value, CompileOptions &into) {
  static const bool registered = (registerPasses(), true);
  (void)registered;
  auto [stage, pipeline] = value.split(':');
  if (pipeline.empty())
    return "expected STAGE:PASSES";
  if (!llvm::is_contained(stageNames(), stage))
    return "expected a stage of " + llvm::join(stageNames(), ", ");
  std::string message;
  llvm::raw_string_ostream os(message);
  mlir::OpPassManager passes(mlir::ModuleOp::getOperationName());
  if (failed(mlir::parsePassPipeline(pipeline, passes, os)))
    return StringRef(message).rtrim().str();
  into.insertAfter.emplace_back(stage.str(), pipeline.str());
  return std::nullopt;
}

static const OptionRow rows[] = {
    {"target",
     "CPU target to compile for: host (the default), portable, v3, v4, v4-bf16; for tests v4-expanded, "
     "v4-bf16-expanded",
     setTarget},
    {"lint", "true: warn about likely mistakes, such as a wrong scale, mask or alignment; false by default",
     setFlag<&CompileOptions::lint>},
    {"remarks", "true: report why a softmax was not raised to attention; false by default",
     setFlag<&CompileOptions::remarks>},
    {"prepack",
     "true: move computations of F on constant arguments only to F__prepack, whose results F takes; false by default",
     setFlag<&CompileOptions::prepack>},
    {"verify", "false: do not verify the program after every pass; true by default",
     setFlag<&CompileOptions::verifyEach>},
    {"insert-after", "STAGE:PASSES: run a pass pipeline after a stage; may be given several times", insertAfter},
};

const char *saccade_option_help(void) {
  static const std::string text = [] {
    std::string lines;
    for (const OptionRow &row : rows)
      lines += (row.name + ": " + row.help + "\n").str();
    return lines;
  }();
  return text.c_str();
}

std::optional<CompileOptions> saccade::parseOptions(llvm::ArrayRef<SaccadeOption> options) {
  CompileOptions parsed;
  auto wrong = [](const llvm::Twine &message) {
    refuse(SACCADE_VALUE_ERROR, message);
    return std::nullopt;
  };
  for (auto [i, option] : llvm::enumerate(options)) {
    if (!option.name)
      return wrong("option #" + llvm::Twine(i) + " has no name");
    StringRef name = option.name;
    const OptionRow *row = llvm::find_if(rows, [&](const OptionRow &row) { return row.name == name; });
    if (row == std::end(rows))
      return wrong("there is no option '" + name + "', expected one of " +
                   llvm::join(llvm::map_range(rows, [](const OptionRow &row) { return row.name; }), ", "));
    if (!option.value)
      return wrong("option '" + name + "' has no value");
    if (std::optional<std::string> expected = row->set(option.value, parsed))
      return wrong("option '" + name + "' has the value '" + option.value + "': " + *expected);
  }
  return parsed;
}
