//===- saccade-reduce.cpp - Makes a failing program small ---------------------===//
//
// MLIR's reducer with the dialects and passes of Saccade, and with patterns that remove ops and clauses of attention.
//
//===----------------------------------------------------------------------===//
#include "../Common/TakeOptions.h"
#include "ReductionPatterns.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/Plugins.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/Support/CommandLine.h"

using namespace saccade;

/// Prints `file:line:column: error: message`.
static void print(mlir::Diagnostic &diagnostic, llvm::raw_ostream &os) {
  if (auto location = llvm::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
    os << location.getFilename().getValue() << ':' << location.getLine() << ':' << location.getColumn() << ": ";
  os << (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Note ? "note: " : "error: ") << diagnostic << '\n';
}

static int run(int argc, char **argv) {
  std::vector<char *> arguments(argv, argv + argc);
  std::vector<std::string> passPlugins, dialectPlugins;
  if (ExitCode code = takeOptions("saccade-reduce", arguments,
                                  {{"load-pass-plugin", &passPlugins}, {"load-dialect-plugin", &dialectPlugins}}))
    return code;
  CompileOptions options;
  for (auto [kind, paths] : {std::pair(PluginKind::Pass, &passPlugins), {PluginKind::Dialect, &dialectPlugins}})
    if (ExitCode code = loadPlugins("saccade-reduce", kind, *paths, options))
      return code;
  registerPasses();
  // Listed by --help; takeOptions has read them.
  llvm::cl::list<std::string> passPlugin("load-pass-plugin", llvm::cl::value_desc("FILE"),
                                         llvm::cl::desc("Load passes from a shared library"));
  llvm::cl::list<std::string> dialectPlugin("load-dialect-plugin", llvm::cl::value_desc("FILE"),
                                            llvm::cl::desc("Load dialects from a shared library"));
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << "saccade-reduce: " << versionLine() << '\n'; });
  mlir::DialectRegistry registry;
  registerDialects(registry);
  registerPluginDialects(registry);
  addReductionPatterns(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  // The reducer also tries invalid programs; their errors do not matter.
  std::string messages;
  llvm::raw_string_ostream os(messages);
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    print(diagnostic, os);
    return mlir::success();
  });
  if (succeeded(mlir::mlirReduceMain(static_cast<int>(arguments.size()), arguments.data(), context)))
    return ExitSuccess;
  llvm::errs() << messages;
  return ExitInvalidInput;
}

extern "C" int saccade_reduce_main(int argc, char **argv) {
  return runTool({argv, static_cast<size_t>(argc)}, [&] { return run(argc, argv); });
}
