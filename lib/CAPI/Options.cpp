//===- Options.cpp - Named compile options of the C API -----------------------===//
//
// One table with the name, description and setter of each option.
//
//===----------------------------------------------------------------------===//
#include "State.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/PipelineOptions.h"
#include "saccade/Pipeline/Plugins.h"
#include "saccade/Runtime/CUDA.h"
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
  into.device = lookupGPUTarget(value);
  const CPUTarget *target = lookupCPUTarget(into.device ? "host" : value);
  if (!target)
    return ("expected one of " + cpuTargetNames() + ", " + gpuTargetNames() + ", cuda, or cuda:N for the GPU N").str();
  into.target = target;
  return std::nullopt;
}

/// The CUDA ordinal of "cuda" or "cuda:1"; nullopt for other targets.
static std::optional<int32_t> parseOrdinal(StringRef target) {
  int32_t ordinal = 0;
  if (target == "cuda")
    return 0;
  if (!target.consume_front("cuda:") || target.getAsInteger(10, ordinal) || ordinal < 0)
    return std::nullopt;
  return ordinal;
}

/// Selects the newest target that the GPU `ordinal` runs.
static SaccadeResult setTargetOfGPU(StringRef name, int32_t ordinal, CompileOptions &into) {
  int32_t capability = 0;
  std::string subject = ("target '" + name + "'").str();
  if (SaccadeStatus status = saccade_cuda_capability(subject.c_str(), ordinal, &capability))
    return refuse(static_cast<SaccadeResult>(status), saccade_entry_last_error());
  into.target = lookupCPUTarget("host");
  if ((into.device = newestGPUTarget(capability)))
    return SACCADE_OK;
  return refuse(SACCADE_UNSUPPORTED, subject + ": cuda:" + llvm::Twine(ordinal) + " is sm_" + llvm::Twine(capability) +
                                         ", expected one that runs " + gpuTargetNames().split(',').first);
}

template <bool CompileOptions::*Flag> static std::optional<std::string> setFlag(StringRef value, CompileOptions &into) {
  if (value != "true" && value != "false")
    return "expected true or false";
  into.*Flag = value == "true";
  return std::nullopt;
}

template <bool isBefore> static std::optional<std::string> insert(StringRef value, CompileOptions &into) {
  registerPasses();
  std::optional<Insertion> insertion = parseInsertion(value, isBefore);
  if (!insertion)
    return "expected POINT:PASSES";
  if (std::optional<std::string> mistake = findMistake(*insertion))
    return mistake;
  into.insertions.push_back(std::move(*insertion));
  return std::nullopt;
}

static std::optional<std::string> insertScript(StringRef value, CompileOptions &into) {
  Insertion insertion = parseScript(value);
  if (insertion.script.empty())
    return "expected [POINT:]FILE";
  if (std::optional<std::string> mistake = findMistake(insertion))
    return mistake;
  into.insertions.push_back(std::move(insertion));
  return std::nullopt;
}

template <PluginKind kind> static std::optional<std::string> load(StringRef value, CompileOptions &into) {
  llvm::Error error = loadPlugin(kind, value, into);
  return error ? std::optional(llvm::toString(std::move(error))) : std::nullopt;
}

static std::optional<std::string> setScheduleTable(StringRef value, CompileOptions &into) {
  into.scheduleTable = value.str();
  return std::nullopt;
}

static const OptionRow rows[] = {
    {"target", "", setTarget}, // its help has the names of the tables
    {"lint", "true: warn about likely mistakes, such as a wrong scale, mask or alignment; false by default",
     setFlag<&CompileOptions::lint>},
    {"remarks", "true: report why a softmax was not raised to attention; false by default",
     setFlag<&CompileOptions::remarks>},
    {"prepack",
     "true: move computations of F on constant arguments only to F__prepack, whose results F takes; CPU only; false by "
     "default",
     setFlag<&CompileOptions::prepack>},
    {"verify", "true: verify the program after every pass, not only after every stage; false by default",
     setFlag<&CompileOptions::verifyEach>},
    {"insert-after",
     "POINT:PASSES: run a pass pipeline after a stage (tiling) or a step of one (transforms.raise); may be given "
     "several "
     "times",
     insert</*isBefore=*/false>},
    {"insert-before", "POINT:PASSES: run a pass pipeline before a stage or a step; may be given several times",
     insert</*isBefore=*/true>},
    {"transform-script",
     "[POINT:]FILE: run a script of the transform dialect before a stage or step, 'tiling' by default; may be given "
     "several times",
     insertScript},
    {"schedule-table", "FILE: take tile sizes of attention from a table that saccade-tune has written",
     setScheduleTable},
    {"load-pass-plugin",
     "FILE: load passes from a shared library, before they are inserted; may be given several times",
     load<PluginKind::Pass>},
    {"load-dialect-plugin", "FILE: load dialects from a shared library; may be given several times",
     load<PluginKind::Dialect>},
};

const char *saccade_option_help(void) {
  static const std::string text = [] {
    std::string lines =
        ("target: CPU target to compile for: " + cpuTargetNames() + "; or GPU target: " + gpuTargetNames() +
         ", cuda:N for the GPU N of this machine, cuda for its first; the default is host\n")
            .str();
    for (const OptionRow &row : llvm::drop_begin(rows))
      lines += (row.name + ": " + row.help + "\n").str();
    return lines;
  }();
  return text.c_str();
}

SaccadeResult saccade::parseOptions(llvm::ArrayRef<SaccadeOption> options, CompileOptions &into) {
  auto wrong = [](const llvm::Twine &message) { return refuse(SACCADE_VALUE_ERROR, message); };
  StringRef target = "host";
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
    if (name == "target")
      target = option.value;
    // The driver is asked only for the target that applies, below.
    if (name == "target" && parseOrdinal(target))
      continue;
    if (std::optional<std::string> expected = row->set(option.value, into))
      return wrong("option '" + name + "' has the value '" + option.value + "': " + *expected);
  }
  // Not earlier, since this may ask for the permission to use tile registers.
  if (target == "host")
    into.target = lookupCPUTarget("host");
  if (std::optional<int32_t> ordinal = parseOrdinal(target))
    if (SaccadeResult result = setTargetOfGPU(target, *ordinal, into))
      return result;
  if (into.device && into.prepack)
    return wrong("option 'prepack' has the value 'true': expected false for target '" + target + "'");
  return SACCADE_OK;
}
