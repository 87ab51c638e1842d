//===- TransformOps.cpp - The ops transform.attn ------------------------------===//
//
// Each op checks its targets and calls the function of a pass.
//
//===----------------------------------------------------------------------===//
#include "saccade/Script/TransformOps.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/TransformOps/BufferizationTransformOps.h"
#include "mlir/Dialect/Func/TransformOps/FuncTransformOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/TransformOps/DialectExtension.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/TransformOps/SCFTransformOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Transform/LoopExtension/LoopExtension.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Codegen/GPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Schedule/Passes.h"
#include "saccade/Script/Script.h"
#include "saccade/Support/Kernels.h"
#include "saccade/Support/StageAttributes.h"
#include "saccade/Tiling/Passes.h"

#define GET_OP_CLASSES
#include "saccade/Script/TransformOps.cpp.inc"

using namespace mlir;
using namespace saccade;
using namespace saccade::script;
using transform::TransformResults;
using transform::TransformRewriter;
using transform::TransformState;

namespace {

/// The target of a program; one of both is set.
struct Target {
  const CPUTarget *cpu = nullptr;
  const GPUTarget *gpu = nullptr;

  /// The one that the program is marked with, or the CPU of this machine.
  static Target of(Operation *op) {
    auto name = op->getParentOfType<ModuleOp>()->getAttrOfType<StringAttr>(targetAttr);
    StringRef text = name ? name.getValue() : "host";
    Target target{lookupCPUTarget(text), lookupGPUTarget(text)};
    return target.cpu || target.gpu ? target : Target{lookupCPUTarget("host"), nullptr};
  }
};

/// A failure of a step, whose message follows the name of the step.
DiagnosedSilenceableFailure refuse(Operation *step, Location target, const Twine &message) {
  DiagnosedSilenceableFailure result = emitSilenceableFailure(step->getLoc());
  result << step->getName().getStringRef() << ' ' << message;
  result.attachNote(target) << "the target";
  return result;
}

/// Runs a function of a pass, and returns its errors as a failure of the step.
DiagnosedSilenceableFailure attempt(Operation *step, Operation *target, function_ref<LogicalResult()> apply) {
  // The function may erase the target.
  Location place = target->getLoc();
  std::string reason;
  {
    ScopedDiagnosticHandler handler(step->getContext(), [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
        return failure();
      if (reason.empty())
        reason = diagnostic.str();
      return success();
    });
    if (succeeded(apply()))
      return DiagnosedSilenceableFailure::success();
  }
  return refuse(step, place, "failed: " + (reason.empty() ? std::string("the target is not supported") : reason));
}

/// The same for functions that may fail when they have changed the program.
DiagnosedSilenceableFailure attemptOrAbort(Operation *step, Operation *target, function_ref<LogicalResult()> apply) {
  DiagnosedSilenceableFailure result = attempt(step, target, apply);
  if (result.succeeded())
    return result;
  (void)result.checkAndReport();
  return DiagnosedSilenceableFailure::definiteFailure();
}

/// Applies `apply` to each target, which must be a `TargetOp`; `expected` names it.
template <typename TargetOp>
DiagnosedSilenceableFailure forEach(Operation *step, TransformState &state, StringRef expected,
                                    function_ref<DiagnosedSilenceableFailure(TargetOp)> apply) {
  // The step may erase its targets.
  for (Operation *target : llvm::to_vector(state.getPayloadOps(step->getOperand(0)))) {
    auto op = dyn_cast<TargetOp>(target);
    if (!op)
      return refuse(step, target->getLoc(),
                    "expected " + expected + " instead of '" + target->getName().getStringRef() + "'");
    DiagnosedSilenceableFailure result = apply(op);
    if (!result.succeeded())
      return result;
  }
  return DiagnosedSilenceableFailure::success();
}

bool isInTask(Operation *op) { return op->getParentOfType<scf::ForallOp>() != nullptr; }

/// The effects of a step that changes its targets in place.
void changesInPlace(Operation *step, SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  transform::onlyReadsHandle(step->getOpOperands(), effects);
  transform::modifiesPayload(effects);
}

/// Sets the tile sizes that are given in the schedule of `op`.
DiagnosedSilenceableFailure setTileSizes(Operation *step, attn::AttentionOp op, std::optional<int64_t> rows,
                                         std::optional<int64_t> cols) {
  attn::ScheduleAttr before = op.getScheduleAttr();
  if (!before)
    return refuse(step, op.getLoc(), "expected attention with a schedule, as there is from the stage 'schedule' on");
  auto schedule = attn::ScheduleAttr::get(op.getContext(), rows.value_or(before.getRows()),
                                          cols.value_or(before.getCols()), before.getDepth());
  Target target = Target::of(op);
  if (auto mistake = findMistakeInRows(schedule.getRows(), getElementTypeOrSelf(op.getQuery()), target.cpu, target.gpu))
    return refuse(step, op.getLoc(), "has " + Twine(schedule.getRows()) + " rows, " + *mistake);
  op.setScheduleAttr(schedule);
  return DiagnosedSilenceableFailure::success();
}

/// Adds a parallel loop after those that compute its destinations.
void collectTasks(Value result, llvm::SetVector<Operation *> &tasks) {
  auto loop = result.getDefiningOp<scf::ForallOp>();
  if (!loop || tasks.contains(loop))
    return;
  for (Value destination : loop.getOutputs())
    collectTasks(destination, tasks);
  tasks.insert(loop);
}

} // namespace

//===----------------------------------------------------------------------===//
// Tiling
//===----------------------------------------------------------------------===//

DiagnosedSilenceableFailure TabulateRelativePositionsOp::apply(TransformRewriter &, TransformResults &,
                                                               TransformState &state) {
  return forEach<attn::ScoringOpInterface>(
      *this, state, "an op with regions of scores", [&](attn::ScoringOpInterface op) -> DiagnosedSilenceableFailure {
        if (isInTask(op))
          return refuse(*this, op.getLoc(), "expected an op that is not in a task");
        tabulateRelativePositions(op);
        return DiagnosedSilenceableFailure::success();
      });
}

void TabulateRelativePositionsOp::getEffects(SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  changesInPlace(*this, effects);
}

DiagnosedSilenceableFailure TileQueriesOp::apply(TransformRewriter &rewriter, TransformResults &results,
                                                 TransformState &state) {
  llvm::SetVector<Operation *> tasks;
  auto tile = [&](attn::AttentionOp op) -> DiagnosedSilenceableFailure {
    if (isInTask(op))
      return refuse(*this, op.getLoc(), "expected attention that is not in a task");
    DiagnosedSilenceableFailure scheduled = setTileSizes(*this, op, getRows(), std::nullopt);
    if (!scheduled.succeeded())
      return scheduled;
    return attempt(*this, op, [&]() -> LogicalResult {
      FailureOr<SmallVector<Value>> values = tileQueries(rewriter, op, /*gpu=*/Target::of(op).gpu != nullptr);
      if (failed(values))
        return failure();
      for (Value value : *values)
        collectTasks(value, tasks);
      return success();
    });
  };
  DiagnosedSilenceableFailure result = forEach<attn::AttentionOp>(*this, state, "'attn.attention'", tile);
  SmallVector<Operation *> tiles;
  for (Operation *task : tasks)
    task->walk([&](attn::AttentionOp op) { tiles.push_back(op); });
  results.set(getOperation()->getResult(0), tiles);
  results.set(getOperation()->getResult(1), tasks.getArrayRef());
  return result;
}

DiagnosedSilenceableFailure TileKeysOp::apply(TransformRewriter &rewriter, TransformResults &results,
                                              TransformState &state) {
  SmallVector<Operation *> loops;
  auto tile = [&](attn::AttentionOp op) -> DiagnosedSilenceableFailure {
    if (!isInTask(op))
      return refuse(*this, op.getLoc(), "expected attention in a task, as transform.attn.tile_queries creates it");
    DiagnosedSilenceableFailure scheduled = setTileSizes(*this, op, getRows(), getCols());
    if (!scheduled.succeeded())
      return scheduled;
    return attempt(*this, op, [&]() -> LogicalResult {
      FailureOr<SmallVector<scf::ForOp, 1>> created = tileKeys(rewriter, op);
      if (failed(created))
        return failure();
      llvm::append_range(loops, *created);
      return success();
    });
  };
  DiagnosedSilenceableFailure result = forEach<attn::AttentionOp>(*this, state, "'attn.attention'", tile);
  results.set(getOperation()->getResult(0), loops);
  return result;
}

//===----------------------------------------------------------------------===//
// Code generation
//===----------------------------------------------------------------------===//

DiagnosedSilenceableFailure LowerAccumulateOp::apply(TransformRewriter &rewriter, TransformResults &,
                                                     TransformState &state) {
  auto lower = [&](attn::AccumulateOp op) -> DiagnosedSilenceableFailure {
    Target target = Target::of(op);
    if (!target.cpu)
      return refuse(*this, op.getLoc(), "expected a program for a CPU");
    if (op->getNumResults() != 0)
      return refuse(*this, op.getLoc(), "expected an op on memory, as there is after the stage 'bufferize'");
    return attemptOrAbort(*this, op, [&] {
      return (op.getUnpacked() ? lowerUnpackedAccumulate : saccade::lowerAccumulate)(op, *target.cpu,
                                                                                     rewriter.getListener());
    });
  };
  return forEach<attn::AccumulateOp>(*this, state, "'attn.accumulate'", lower);
}

void LowerAccumulateOp::getEffects(SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  transform::consumesHandle(getOperation()->getOpOperands(), effects);
  transform::modifiesPayload(effects);
}

DiagnosedSilenceableFailure MapToGPUOp::apply(TransformRewriter &, TransformResults &results, TransformState &state) {
  SmallVector<Operation *> kernels;
  auto map = [&](func::FuncOp task) -> DiagnosedSilenceableFailure {
    if (!Target::of(task).gpu)
      return refuse(*this, task.getLoc(), "expected a program for a GPU");
    // What is proved between stages does not hold for kernels.
    if (auto next = task->getParentOfType<ModuleOp>()->getAttrOfType<StringAttr>(nextStageAttr))
      return refuse(*this, task.getLoc(),
                    "is a step within the stage 'codegen', and this script runs before the stage '" + next.getValue() +
                        "': expected a script before 'codegen.kernels'");
    if (!task->hasAttr("attn.task") || task.isExternal())
      return refuse(*this, task.getLoc(), "expected a task, a function with 'attn.task' and a body");
    return attemptOrAbort(*this, task, [&]() -> LogicalResult {
      FailureOr<func::FuncOp> kernel = outlineKernel(task);
      if (succeeded(kernel))
        kernels.push_back(*kernel);
      return kernel;
    });
  };
  DiagnosedSilenceableFailure result = forEach<func::FuncOp>(*this, state, "a task", map);
  results.set(getOperation()->getResult(0), kernels);
  return result;
}

LogicalResult LowerAttentionOp::verify() {
  if (!llvm::is_contained({"simt", "sm_80", "sm_90a"}, getFamily()))
    return emitOpError() << "has the unknown family '" << getFamily() << "', expected simt, sm_80 or sm_90a";
  if (getKeys() && (getFamily() != "sm_80" || (*getKeys() != 32 && *getKeys() != 64)))
    return emitOpError() << "has " << static_cast<int64_t>(*getKeys()) << " keys of a step for the family '"
                         << getFamily() << "', expected 32 or 64 for 'sm_80'";
  return success();
}

DiagnosedSilenceableFailure LowerAttentionOp::apply(TransformRewriter &, TransformResults &, TransformState &state) {
  auto lower = [&](func::FuncOp kernel) -> DiagnosedSilenceableFailure {
    const GPUTarget *gpu = Target::of(kernel).gpu;
    if (!kernel->getParentOfType<gpu::GPUModuleOp>() || !kernel->hasAttr(kernelAttr))
      return refuse(*this, kernel.getLoc(), "expected a kernel, as transform.attn.map_to_gpu creates it");
    bool isRun = gpu && (getFamily() == "simt" || (getFamily() == "sm_80" ? gpu->hasAsyncCopy : gpu->hasBulkCopy));
    if (!isRun)
      return refuse(*this, kernel.getLoc(),
                    "has the family '" + getFamily() + "', which the target of the program does not run");
    return attemptOrAbort(*this, kernel, [&] {
      return getFamily() == "simt"    ? lowerAttentionSIMT(kernel)
             : getFamily() == "sm_80" ? lowerAttentionSM80(kernel, getKeys())
                                      : lowerAttentionSM90(kernel, *gpu);
    });
  };
  return forEach<func::FuncOp>(*this, state, "a kernel", lower);
}

void LowerAttentionOp::getEffects(SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  transform::consumesHandle(getOperation()->getOpOperands(), effects);
  transform::modifiesPayload(effects);
}

//===----------------------------------------------------------------------===//
// The extension
//===----------------------------------------------------------------------===//

namespace {
class StepsExtension : public transform::TransformDialectExtension<StepsExtension> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(StepsExtension)

  void init() {
    declareGeneratedDialect<affine::AffineDialect>();
    declareGeneratedDialect<arith::ArithDialect>();
    declareGeneratedDialect<attn::AttnDialect>();
    declareGeneratedDialect<gpu::GPUDialect>();
    declareGeneratedDialect<linalg::LinalgDialect>();
    declareGeneratedDialect<math::MathDialect>();
    declareGeneratedDialect<memref::MemRefDialect>();
    declareGeneratedDialect<NVVM::NVVMDialect>();
    declareGeneratedDialect<scf::SCFDialect>();
    declareGeneratedDialect<tensor::TensorDialect>();
    declareGeneratedDialect<vector::VectorDialect>();
    // registerTransformOps() of the base calls a check that a release build of MLIR does not have.
    addCustomInitializationStep([](MLIRContext *context) {
      insert<
#define GET_OP_LIST
#include "saccade/Script/TransformOps.cpp.inc"
          >(*context->getLoadedDialect<transform::TransformDialect>());
    });
  }

private:
  template <typename... Ops> static void insert(Dialect &dialect) {
    (RegisteredOperationName::insert<Ops>(dialect), ...);
  }
};
} // namespace

void saccade::registerTransformOps(DialectRegistry &registry) {
  registry.insert<transform::TransformDialect>();
  registry.addExtensions<StepsExtension>();
  transform::registerLoopExtension(registry);
  bufferization::registerTransformDialectExtension(registry);
  func::registerTransformDialectExtension(registry);
  linalg::registerTransformDialectExtension(registry);
  scf::registerTransformDialectExtension(registry);
}
