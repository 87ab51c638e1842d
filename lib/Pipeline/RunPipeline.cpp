//===- RunPipeline.cpp - Run the compile pipeline -----------------------------===//
//
// Dumps are implemented as user passes (attn-write-module) that are inserted after every stage.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/RunPipeline.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Dialect/Attn/Derivatives/GradientFunction.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Import/Import.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/Pipeline.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;

/// Inserts attn-write-module after every stage, with files DIR/1-import.mlir and so on.
static LogicalResult addDumps(saccade::CompileOptions &options, Location loc) {
  if (std::error_code error = llvm::sys::fs::create_directories(options.dumpStages))
    return emitError(loc, "cannot create the directory '") << options.dumpStages << "': " << error.message();
  for (auto [i, stage] : llvm::enumerate(saccade::stageNames())) {
    llvm::SmallString<128> path(options.dumpStages);
    llvm::sys::path::append(path, llvm::Twine(i + 1) + "-" + stage + ".mlir");
    options.insertAfter.emplace_back(stage.str(), ("attn-write-module{file=\"" + path + "\"}").str());
  }
  return success();
}

/// The parser allows unregistered ops, or loads tosa, only for programs with ops of a frontend.
static bool hasFrontendOps(MLIRContext *context) {
  return context->allowsUnregisteredDialects() || context->getLoadedDialect("tosa");
}

LogicalResult saccade::importProgram(ModuleOp module) {
  if (hasFrontendOps(module.getContext())) {
    PassManager pm(module.getContext());
    buildImportPipeline(pm);
    if (failed(pm.run(module)))
      return failure();
  }
  return addGradientFunctions(module);
}

LogicalResult saccade::addGradientFunctions(ModuleOp module) {
  auto functions = module.getOps<func::FuncOp>();
  if (llvm::none_of(functions, [](func::FuncOp function) {
        return function->hasAttr(attn::gradientAttr) || function->hasAttr(attn::jvpAttr);
      }))
    return success();
  PassManager pm(module.getContext());
  if (hasFrontendOps(module.getContext()))
    buildImportPipeline(pm);
  buildGradientFunctionsPipeline(pm);
  return pm.run(module);
}

LogicalResult saccade::runPipeline(ModuleOp module, const CompileOptions &requested) {
  CompileOptions options = requested;
  if (!options.dumpStages.empty()) {
    static const bool registered = (registerWriteModule(), true);
    (void)registered;
    if (failed(addDumps(options, module.getLoc())))
      return failure();
  }
  PassManager pm(module.getContext());
  pm.enableVerifier(options.verifyEach);
  if (failed(
          buildCompilePipeline(pm, options, [&](const llvm::Twine &message) { emitError(module.getLoc(), message); })))
    return failure();
  return pm.run(module);
}
