//===- saccade-opt.cpp - Runs passes and pipelines on a module ----------------===//
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "saccade/Pipeline/Pipeline.h"
#include "saccade/Support/ToolMain.h"
#include "llvm/Support/CommandLine.h"

static int run(int argc, char **argv) {
  mlir::DialectRegistry registry;
  saccade::registerDialects(registry);
  saccade::registerPasses();
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << "saccade-opt: " << saccade::versionLine() << '\n'; });
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Saccade: runs passes and pipelines on a module\n", registry));
}

int main(int argc, char **argv) {
  return saccade::runTool({argv, static_cast<size_t>(argc)}, [&] { return run(argc, argv); });
}
