//===- Plugin.cpp - What a tool asks the plugin for ---------------------------===//
#include "Example.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "saccade/Import/Import.h"

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT mlir::PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "ExamplePlugin", "1", [] {
            example::registerLowerQuickGelu();
            example::registerLimitWindow();
          }};
}

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT mlir::DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "ExamplePlugin", "1", [](mlir::DialectRegistry *registry) {
            registry->insert<example::ExampleDialect>();
            example::registerChunks(*registry);
            // The import stage translates programs with ops of the dialect.
            saccade::registerFrontend({"example", /*isRegistered=*/true, example::addLowerQuickGelu});
          }};
}
