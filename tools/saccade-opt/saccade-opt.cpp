//===- saccade-opt.cpp - Runs passes and pipelines on a module ----------------===//
#include "saccade/Pipeline/Pipeline.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  saccade::registerDialects(registry);
  saccade::registerPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Saccade: runs passes and pipelines on a module\n", registry));
}
