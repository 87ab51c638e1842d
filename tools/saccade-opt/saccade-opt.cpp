//===- saccade-opt.cpp - Runs passes and pipelines on a module ----------------===//
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Raise/Passes.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Pipeline/Source.h"
#include "saccade/Support/DebugTypes.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/Support/CommandLine.h"

static int run(int argc, char **argv) {
  for (llvm::StringRef argument : llvm::ArrayRef(argv, argc))
    for (llvm::StringRef option : {"load-pass-plugin", "load-dialect-plugin"})
      if (argument.ltrim('-').split('=').first == option)
        if (saccade::ExitCode code = saccade::requirePlugins("saccade-opt"))
          return code;
  mlir::DialectRegistry registry;
  saccade::registerDialects(registry);
  saccade::registerPasses();
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << "saccade-opt: " << saccade::versionLine() << '\n'; });
  mlir::PassPipelineRegistration<> lint("lint",
                                        "Warn about likely mistakes; writes the module, with attention raised, only to "
                                        "the file of -o",
                                        [](mlir::OpPassManager &pm) {
                                          pm.addNestedPass<mlir::func::FuncOp>(
                                              saccade::createRaiseAttention({/*remarks=*/false, /*lint=*/true}));
                                          pm.addPass(saccade::attn::createLint());
                                        });
  llvm::cl::opt<std::string> debugTypes("debug-only", llvm::cl::value_desc("FLAG,..."),
                                        llvm::cl::desc("Print the debug output of these passes, by their flags"));
  auto [input, output] =
      mlir::registerAndParseCLIOptions(argc, argv, "Saccade: runs passes and pipelines on a module\n", registry);
  // As in the other tools: passes on a kernel add globals to the module of all kernels.
  static_cast<llvm::cl::opt<bool> *>(llvm::cl::getRegisteredOptions().lookup("mlir-disable-threading"))->setValue(true);
  if (!debugTypes.empty() && !saccade::setDebugTypes(debugTypes))
    llvm::errs() << "saccade-opt: warning: this build has no debug output\n";
  bool lints = llvm::any_of(llvm::ArrayRef(argv, argc),
                            [](llvm::StringRef argument) { return argument == "--lint" || argument == "-lint"; });
  if (lints && output == "-")
    output = "/dev/null";
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, input, output, registry));
}

extern "C" int saccade_opt_main(int argc, char **argv) {
  return saccade::runTool({argv, static_cast<size_t>(argc)}, [&] { return run(argc, argv); });
}
