//===- OutlineTasks.cpp - Outline parallel loops as tasks ---------------------===//
//
// Moves the body of every parallel loop to a private function that runs a range of its iterations. Runs after
// bufferization, because a task captures memory, not tensors.
//
//===----------------------------------------------------------------------===//
#include "NameTasks.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"
#include "saccade/Bufferize/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"

namespace saccade {
#define GEN_PASS_DEF_OUTLINETASKS
#include "saccade/Bufferize/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;

/// Whether the result of `op` is a constant of the program or a view of one.
static bool isConstantMemory(Operation *op) {
  while (auto view = dyn_cast_if_present<ViewLikeOpInterface>(op))
    op = view.getViewSource().getDefiningOp();
  return isa_and_present<memref::GetGlobalOp>(op);
}

/// Whether a task recomputes the results of `op` instead of capturing them: this is cheap, and code generation can
/// match the defining op. A task refers to constants itself, since a GPU has its own copy of them. `capturesShapes`:
/// captures have the shapes that the task reads.
static bool isRecomputed(Operation *op, bool capturesShapes) {
  return op &&
         (op->hasTrait<OpTrait::ConstantLike>() || isConstantMemory(op) || isa<memref::DimOp, memref::CastOp>(op) ||
          (!capturesShapes && isa<memref::ExpandShapeOp, memref::CollapseShapeOp>(op)));
}

/// Splits the values that the body uses from outside into ops to recompute, in def-use order, and values to capture.
static void classify(ValueRange used, bool capturesShapes, llvm::SetVector<Operation *> &recomputed,
                     llvm::SetVector<Value> &captured) {
  for (Value value : used) {
    Operation *op = value.getDefiningOp();
    if (!isRecomputed(op, capturesShapes)) {
      captured.insert(value);
      continue;
    }
    if (recomputed.contains(op))
      continue;
    classify(op->getOperands(), capturesShapes, recomputed, captured);
    recomputed.insert(op);
  }
}

/// The number of iterations along each dimension.
static SmallVector<OpFoldResult> getTripCounts(OpBuilder &builder, scf::ForallOp loop) {
  AffineExpr lower, upper, step;
  bindSymbols(builder.getContext(), lower, upper, step);
  SmallVector<OpFoldResult> counts;
  for (auto [lb, ub, by] : llvm::zip_equal(loop.getMixedLowerBound(), loop.getMixedUpperBound(), loop.getMixedStep())) {
    OpFoldResult count =
        affine::makeComposedFoldedAffineApply(builder, loop.getLoc(), (upper - lower).ceilDiv(step), {lb, ub, by});
    // The upper bound may be below the lower bound; then the trip count is 0.
    if (auto known = getConstantIntValue(count)) {
      counts.push_back(builder.getIndexAttr(std::max<int64_t>(*known, 0)));
      continue;
    }
    Value zero = arith::ConstantIndexOp::create(builder, loop.getLoc(), 0);
    counts.push_back(arith::MaxSIOp::create(builder, loop.getLoc(), cast<Value>(count), zero).getResult());
  }
  return counts;
}

/// Builds the task that runs `loop` and moves the body to it. Its first arguments are `captured`, which includes the
/// dynamic bounds and `counts`.
static func::FuncOp createTask(scf::ForallOp loop, StringRef name, ArrayRef<OpFoldResult> counts,
                               ArrayRef<Operation *> recomputed, ValueRange captured) {
  Location loc = loop.getLoc();
  IRRewriter builder(loop.getContext());
  builder.setInsertionPointAfter(loop->getParentOfType<func::FuncOp>());
  SmallVector<Type> types(captured.getTypes());
  Type index = builder.getIndexType();
  types.append({index, index, MemRefType::get({ShapedType::kDynamic}, builder.getI8Type())});
  auto task = func::FuncOp::create(builder, loc, name, builder.getFunctionType(types, {}));
  task.setPrivate();
  task->setAttr("attn.task", builder.getUnitAttr());

  Block *entry = task.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  IRMapping mapping;
  for (auto [value, argument] : llvm::zip(captured, entry->getArguments()))
    mapping.map(value, argument);
  for (Operation *op : recomputed)
    builder.clone(*op, mapping);
  auto local = [&](OpFoldResult value) -> OpFoldResult {
    return isa<Attribute>(value) ? value : OpFoldResult(mapping.lookup(cast<Value>(value)));
  };
  // A loop with trip count 0 has no work items, but delinearization requires a non-zero basis.
  SmallVector<OpFoldResult> localCounts = llvm::map_to_vector(counts, [&](OpFoldResult count) {
    return isConstantIntValue(count, 0) ? OpFoldResult(builder.getIndexAttr(1)) : local(count);
  });
  SmallVector<OpFoldResult> lower = llvm::map_to_vector(loop.getMixedLowerBound(), local);
  SmallVector<OpFoldResult> step = llvm::map_to_vector(loop.getMixedStep(), local);

  unsigned first = captured.size();
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  auto items = scf::ForOp::create(builder, loc, entry->getArgument(first), entry->getArgument(first + 1), one);
  func::ReturnOp::create(builder, loc);
  builder.setInsertionPointToStart(items.getBody());
  auto position = affine::AffineDelinearizeIndexOp::create(builder, loc, items.getInductionVar(), localCounts);
  AffineExpr i, l, s;
  bindDims(builder.getContext(), i);
  bindSymbols(builder.getContext(), l, s);
  SmallVector<Value> indices;
  for (auto [count, lb, by] : llvm::zip_equal(position.getResults(), lower, step)) {
    OpFoldResult value = affine::makeComposedFoldedAffineApply(builder, loc, l + i * s, {OpFoldResult(count), lb, by});
    indices.push_back(getValueOrCreateConstantIndexOp(builder, loc, value));
  }
  builder.eraseOp(loop.getTerminator());
  builder.inlineBlockBefore(loop.getBody(), items.getBody()->getTerminator(), indices);
  for (auto [value, argument] : llvm::zip(captured, entry->getArguments()))
    replaceAllUsesInRegionWith(value, argument, task.getBody());
  for (Operation *op : recomputed)
    for (Value value : op->getResults())
      replaceAllUsesInRegionWith(value, mapping.lookup(value), task.getBody());
  return task;
}

static LogicalResult outline(scf::ForallOp loop, StringRef name, bool capturesShapes) {
  if (loop->getNumResults() != 0)
    return loop.emitOpError("has tensor results, expected bufferized IR");
  WalkResult nested = loop.getBody()->walk([](scf::ForallOp inner) {
    inner.emitOpError("is nested in another parallel loop, expected one level");
    return WalkResult::interrupt();
  });
  if (nested.wasInterrupted())
    return failure();
  OpBuilder builder(loop);
  Location loc = loop.getLoc();
  SmallVector<OpFoldResult> counts = getTripCounts(builder, loop);
  llvm::SetVector<Value> used, captured;
  getUsedValuesDefinedAbove(loop.getRegion(), used);
  for (ValueRange bounds : {ValueRange(loop.getDynamicLowerBound()), ValueRange(loop.getDynamicStep())})
    used.insert_range(bounds);
  for (OpFoldResult count : counts)
    if (auto value = dyn_cast<Value>(count))
      used.insert(value);
  llvm::SetVector<Operation *> recomputed;
  classify(used.getArrayRef(), capturesShapes, recomputed, captured);

  func::FuncOp task = createTask(loop, name, counts, recomputed.getArrayRef(), captured.getArrayRef());
  Value count = arith::ConstantIndexOp::create(builder, loc, 1);
  for (OpFoldResult extent : counts)
    count = arith::MulIOp::create(builder, loc, count, getValueOrCreateConstantIndexOp(builder, loc, extent));
  attn::LaunchOp::create(builder, loc, task.getName(), captured.getArrayRef(), count);
  loop.erase();
  return success();
}

namespace {

struct OutlineTasks : saccade::impl::OutlineTasksBase<OutlineTasks> {
  using OutlineTasksBase::OutlineTasksBase;

  void runOnOperation() override {
    TaskNames names(getOperation());
    for (auto func : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      SmallVector<scf::ForallOp> loops;
      func.walk<WalkOrder::PreOrder>([&](scf::ForallOp loop) {
        loops.push_back(loop);
        return WalkResult::skip();
      });
      for (scf::ForallOp loop : loops)
        if (failed(outline(loop, names.take(func.getName(), loop), gpu)))
          return signalPassFailure();
    }
  }
};

} // namespace
