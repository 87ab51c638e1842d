//===- PipelineOptions.cpp - Command-line options of the pipeline -------------===//
//
// MLIR's options are those of llvm::cl; only arguments that start with --mlir- get there.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/PipelineOptions.h"
#include "mlir/IR/AsmState.h"
#include "mlir/Support/Timing.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/Plugins.h"
#include "saccade/Support/DebugTypes.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace saccade;

std::optional<Insertion> saccade::parseInsertion(llvm::StringRef text, bool isBefore) {
  auto [point, passes] = text.split(':');
  if (point.empty() || passes.empty())
    return std::nullopt;
  return Insertion{point.str(), passes.str(), isBefore};
}

Insertion saccade::parseScript(llvm::StringRef text) {
  auto [point, file] = text.split(':');
  if (!llvm::is_contained(insertionPoints(), point))
    return {"tiling", "", /*isBefore=*/true, text.str()};
  return {point.str(), "", /*isBefore=*/true, file.str()};
}

void saccade::addPipelineOptions(CommandLine &line, llvm::StringRef tool, PipelineOptions &options,
                                 CompileOptions &compile) {
  for (bool isBefore : {false, true})
    line.value(isBefore ? "insert-before" : "insert-after", "POINT:PASSES",
               isBefore
                   ? "Run a pass pipeline before a stage or step; may be given several times"
                   : "Run a pass pipeline after a stage (tiling) or a step of one (transforms.raise); may be given "
                     "several times",
               [&compile, isBefore](llvm::StringRef text) {
                 std::optional<Insertion> insertion = parseInsertion(text, isBefore);
                 if (insertion)
                   compile.insertions.push_back(*insertion);
                 return insertion.has_value();
               });
  line.value("transform-script", "[POINT:]FILE",
             "Run a script of the transform dialect before a stage or step, 'tiling' by default; may be given several "
             "times",
             [&compile](llvm::StringRef text) {
               compile.insertions.push_back(parseScript(text));
               return !compile.insertions.back().script.empty();
             });
  line.value("load-pass-plugin", "FILE", "Load passes from a shared library", options.passPlugins);
  line.value("load-dialect-plugin", "FILE", "Load dialects from a shared library", options.dialectPlugins);
  line.value("schedule-table", "FILE", "Take tile sizes of attention from a table that saccade-tune has written",
             compile.scheduleTable);
  line.value("dump-stages", "DIR", "Write the module after every stage to a folder", compile.dumpStages);
  line.flag("html", "With --dump-stages, also write stages.html: the stages side by side, with changes marked",
            compile.dumpPage);
  line.flag("verify-each", "Verify the IR after every pass, not only after every stage", compile.verifyEach);
  line.value("debug-only", "FLAG,...", "Print the debug output of these passes, by their flags: attn-raise-attention",
             [tool](llvm::StringRef text) {
               if (!setDebugTypes(text))
                 llvm::errs() << tool << ": warning: this build has no debug output\n";
               return true;
             });
  line.passThrough("mlir-", "...",
                   "Options of MLIR's pass manager: --mlir-timing, --mlir-print-ir-after-all, --mlir-pass-statistics, "
                   "--mlir-pass-pipeline-crash-reproducer=FILE and others",
                   options.mlir);
}

static bool hasMLIROptions = false;

/// Passes the options to llvm::cl. Names of passes are options there, so all passes must be registered.
static std::optional<ExitCode> setMLIROptions(const CommandLine &line, llvm::StringRef tool,
                                              llvm::ArrayRef<std::string> options) {
  hasMLIROptions = true;
  mlir::registerPassManagerCLOptions();
  mlir::registerDefaultTimingManagerCLOptions();
  mlir::registerAsmPrinterCLOptions();
  std::string name = tool.str(), message;
  llvm::SmallVector<const char *> arguments = {name.c_str()};
  for (const std::string &option : options)
    arguments.push_back(option.c_str());
  llvm::raw_string_ostream os(message);
  if (llvm::cl::ParseCommandLineOptions(static_cast<int>(arguments.size()), arguments.data(), "", &os))
    return std::nullopt;
  llvm::StringRef reason = llvm::StringRef(message).split('\n').first.split(".  Try").first;
  reason.consume_front(name);
  return line.usageError(reason.ltrim(": "));
}

std::optional<ExitCode> saccade::applyPipelineOptions(const CommandLine &line, llvm::StringRef tool,
                                                      const PipelineOptions &options, CompileOptions &compile) {
  if (compile.dumpPage && compile.dumpStages.empty())
    return line.usageError("--html goes with --dump-stages=DIR only");
  for (auto [kind, paths] :
       {std::pair(PluginKind::Pass, options.passPlugins), std::pair(PluginKind::Dialect, options.dialectPlugins)})
    if (ExitCode code = loadPlugins(tool, kind, paths, compile))
      return code;
  if (!compile.insertions.empty() || !options.mlir.empty())
    registerPasses();
  for (const Insertion &insertion : compile.insertions)
    if (std::optional<std::string> mistake = findMistake(insertion))
      return line.usageError((!insertion.script.empty() ? "--transform-script: "
                              : insertion.isBefore      ? "--insert-before: "
                                                        : "--insert-after: ") +
                             *mistake);
  for (const Insertion &insertion : compile.insertions)
    if (!insertion.script.empty())
      if (auto script = llvm::MemoryBuffer::getFile(insertion.script))
        addToReproducer(insertion.script, (*script)->getBuffer());
  if (!compile.scheduleTable.empty())
    if (auto table = llvm::MemoryBuffer::getFile(compile.scheduleTable))
      addToReproducer(compile.scheduleTable, (*table)->getBuffer());
  if (options.mlir.empty())
    return std::nullopt;
  return setMLIROptions(line, tool, options.mlir);
}

llvm::LogicalResult saccade::applyMLIROptions(mlir::PassManager &pm) {
  if (!hasMLIROptions)
    return mlir::success();
  mlir::applyDefaultTimingPassManagerCLOptions(pm);
  return mlir::applyPassManagerCLOptions(pm);
}
