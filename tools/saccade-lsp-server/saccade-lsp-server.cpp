//===- saccade-lsp-server.cpp - Language server for programs ------------------===//
//
// MLIR's language server with the dialects of Saccade: editors show errors, definitions, uses and the ops of programs.
//
//===----------------------------------------------------------------------===//
#include "../Common/TakeOptions.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/Plugins.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/Support/CommandLine.h"

using namespace saccade;

static int run(int argc, char **argv) {
  std::vector<char *> arguments(argv, argv + argc);
  std::vector<std::string> plugins;
  if (ExitCode code = takeOptions("saccade-lsp-server", arguments, {{"load-dialect-plugin", &plugins}}))
    return code;
  CompileOptions options;
  if (ExitCode code = loadPlugins("saccade-lsp-server", PluginKind::Dialect, plugins, options))
    return code;
  // Listed by --help; takeOptions has read it.
  llvm::cl::list<std::string> plugin("load-dialect-plugin", llvm::cl::value_desc("FILE"),
                                     llvm::cl::desc("Load dialects from a shared library"));
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << "saccade-lsp-server: " << versionLine() << '\n'; });
  mlir::DialectRegistry registry;
  registerDialects(registry);
  registerPluginDialects(registry);
  bool isFailed = failed(mlir::MlirLspServerMain(static_cast<int>(arguments.size()), arguments.data(), registry));
  return isFailed ? ExitInvalidInput : ExitSuccess;
}

extern "C" int saccade_lsp_server_main(int argc, char **argv) {
  return runTool({argv, static_cast<size_t>(argc)}, [&] { return run(argc, argv); });
}
