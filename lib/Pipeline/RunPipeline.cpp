//===- RunPipeline.cpp - Run the compiler's stages on a module ----------------===//
//
// A dump is a user's own pass after every stage, so the pipeline need not know of dumps.
//
//===----------------------------------------------------------------------===//
#include "saccade/Pipeline/RunPipeline.h"
#include "mlir/Pass/PassManager.h"
#include "saccade/Import/Import.h"
#include "saccade/Pipeline/Passes.h"
#include "saccade/Pipeline/Pipeline.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;

/// Adds a writer after every stage, numbered in their order: DIR/1-import.mlir and so on.
static LogicalResult addDumps(saccade::CompileOptions &options, Location loc) {
  if (std::error_code error = llvm::sys::fs::create_directories(options.dumpStages))
    return emitError(loc, "cannot make the folder '") << options.dumpStages << "': " << error.message();
  for (auto [i, stage] : llvm::enumerate(saccade::stageNames())) {
    llvm::SmallString<128> path(options.dumpStages);
    llvm::sys::path::append(path, llvm::Twine(i + 1) + "-" + stage + ".mlir");
    options.insertAfter.emplace_back(stage.str(), ("attn-write-module{file=\"" + path + "\"}").str());
  }
  return success();
}

LogicalResult saccade::importProgram(ModuleOp module) {
  // Ops of a frontend were allowed where the program was read, or a dialect that is imported was found there.
  MLIRContext *context = module.getContext();
  if (!context->allowsUnregisteredDialects() && !context->getLoadedDialect("tosa"))
    return success();
  PassManager pm(module.getContext());
  buildImportPipeline(pm);
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
