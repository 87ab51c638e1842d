//===- ApplyScript.cpp - Run a script of the transform dialect ----------------===//
//
// The script is parsed when the pass is initialized, because its dialects must be loaded before passes run.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Linalg/TransformOps/LinalgTransformOps.h"
#include "mlir/Dialect/Transform/IR/TransformDialect.h"
#include "mlir/Dialect/Transform/Transforms/TransformInterpreterUtils.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "saccade/Script/Script.h"
#include "saccade/Support/StageAttributes.h"

namespace saccade {
#define GEN_PASS_DEF_APPLYSCRIPT
#include "saccade/Script/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Refuses what crashes MLIR 22: loops over no dimension.
static LogicalResult verify(ModuleOp script) {
  WalkResult result = script.walk([](transform::TileUsingForallOp op) -> WalkResult {
    bool isCount = !op.getStaticNumThreads().empty() || op.getPackedNumThreads();
    if (isCount || op.getPackedTileSizes() || llvm::any_of(op.getStaticTileSizes(), [](int64_t size) { return size; }))
      return WalkResult::advance();
    return op.emitOpError() << "tiles no dimension, expected a tile size that is not 0";
  });
  return failure(result.wasInterrupted());
}

namespace {
struct ApplyScript : saccade::impl::ApplyScriptBase<ApplyScript> {
  using ApplyScriptBase::ApplyScriptBase;

  LogicalResult initialize(MLIRContext *context) override {
    OwningOpRef<ModuleOp> parsed;
    if (!text.empty())
      parsed = parseSourceString<ModuleOp>(text, context, /*sourceName=*/"script");
    else if (failed(transform::detail::parseTransformModuleFromFile(context, file, parsed)))
      return failure();
    if (!parsed)
      return emitError(UnknownLoc::get(context)) << "there is no script '" << file << "'";
    if (failed(verify(*parsed)))
      return failure();
    text.clear();
    llvm::raw_string_ostream os(text);
    (*parsed)->print(os);
    script = std::make_shared<OwningOpRef<ModuleOp>>(std::move(parsed));
    return success();
  }

  void runOnOperation() override {
    ModuleOp program = getOperation();
    Operation *entry = transform::detail::findTransformEntryPoint(program, **script);
    if (!entry)
      return signalPassFailure();
    // The steps are for this target.
    Attribute before = program->getAttr(targetAttr);
    program->setAttr(targetAttr, StringAttr::get(&getContext(), target));
    if (!nextStage.empty())
      program->setAttr(nextStageAttr, StringAttr::get(&getContext(), nextStage));
    OperationFingerPrint unchanged(program);
    LogicalResult applied =
        transform::applyTransformNamedSequence(program, entry, **script, transform::TransformOptions());
    bool changesNothing = unchanged == OperationFingerPrint(program);
    before ? program->setAttr(targetAttr, before) : void(program->removeAttr(targetAttr));
    program->removeAttr(nextStageAttr);
    if (failed(applied))
      return signalPassFailure();
    if (changesNothing)
      emitWarning(entry->getLoc()) << "the script changes nothing; an op that it matches may be one that the program "
                                      "does not have before this stage";
  }

private:
  std::shared_ptr<OwningOpRef<ModuleOp>> script; ///< shared by copies of the pass
};
} // namespace
