//===- GradientItem.cpp - A work item of a gradient on sm_90a -----------------===//
#include "GradientItem.h"
#include "../BufferAnalysis.h"
#include "../LiveRanges.h"
#include "../SM80/GradientKernel.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

//===----------------------------------------------------------------------===//
// Kernels that have the form
//===----------------------------------------------------------------------===//

std::optional<GradientItem> GradientItem::match(func::FuncOp kernel, int64_t sharedBytes, std::string &obstacle) {
  SmallVector<GradientStep> steps;
  kernel.walk([&](linalg::GenericOp op) {
    std::optional<GradientStep> step = GradientStep::match(op);
    if (step && fitsRegisters(*step))
      steps.push_back(*step);
  });
  if (steps.empty())
    return std::nullopt;
  GradientItem item(kernel, steps.front(), sharedBytes);
  obstacle = steps.size() > 1 ? "the kernel has several gradients" : item.findObstacle().str();
  return obstacle.empty() ? std::optional(item) : std::nullopt;
}

StringRef GradientItem::findObstacle() {
  if (step.outermost->getBlock() != &kernel.getBody().front())
    return "rows are copied in a loop";
  for (Operation *op = step.pairs; op != step.outermost; op = op->getParentOp())
    if (!isa<scf::ForOp, scf::IfOp>(op->getParentOp()) || op->getParentOp()->getNumResults() != 0)
      return "its loops have results";
  GradientLayout layout(step, sharedBytes);
  if (!layout.fits())
    return "two tiles of columns do not fit in shared memory";
  for (ArrayRef<GradientLayout::Tile> tiles : {ArrayRef(layout.rowTiles), ArrayRef(layout.columnTiles)})
    for (const GradientLayout::Tile &tile : tiles)
      if (!isMappable(tile.matrix.memref, tile.matrix.columnDim))
        return "an operand has no tensor map";
  return hasOnlyStep() ? "" : "another op of the kernel writes memory";
}

/// Whether other ops than the step write nothing but zeros to results before it. Both roles execute the others.
bool GradientItem::hasOnlyStep() {
  llvm::SmallPtrSet<Operation *, 16> known = {step.pairs};
  for (std::optional<GradientStep::Product> &input : step.inputs)
    if (input)
      known.insert({input->op, input->fill});
  for (GradientStep::Sum &sum : step.sums) {
    known.insert({sum.op, sum.fill});
    known.insert(sum.stores.begin(), sum.stores.end());
  }
  WalkResult others = kernel.walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
    if (known.contains(op))
      return WalkResult::skip();
    auto fill = dyn_cast<linalg::FillOp>(op);
    if (fill && !isShared(fill.getDpsInits()[0]) && fill->getBlock() == step.outermost->getBlock() &&
        fill->isBeforeInBlock(step.outermost)) {
      fills.push_back(fill);
      return WalkResult::skip();
    }
    bool isAround = !isa<linalg::LinalgOp>(op) && op->hasTrait<OpTrait::HasRecursiveMemoryEffects>();
    bool isPlain = isa<func::FuncOp, memref::AllocOp>(op) || op->hasTrait<OpTrait::IsTerminator>() || isAround ||
                   isMemoryEffectFree(op) || hasSingleEffect<MemoryEffects::Read>(op);
    return isPlain ? WalkResult::advance() : WalkResult::interrupt();
  });
  return !others.wasInterrupted();
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

void GradientItem::emit() {
  step.hoistRows();
  GradientLayout layout(step, sharedBytes);
  SmallVector<MappedMatrix> matrices;
  for (ArrayRef<GradientLayout::Tile> tiles : {ArrayRef(layout.rowTiles), ArrayRef(layout.columnTiles)})
    for (const auto &[matrix, offset] : tiles)
      matrices.push_back({mapOperand(matrix.memref, matrix.rowDim, matrix.columnDim), Value()});
  SmallVector<BoxedOperand> boxed;
  for (const MappedMatrix &matrix : matrices)
    boxed.push_back({matrix.operand, GradientLayout::rows});
  KernelRoles roles(kernel, step.pairs.getLoc());
  Emitter &e = roles.e;
  SmallVector<Value> sums;
  for (GradientStep::Sum &sum : step.sums)
    sums.push_back(roles.allocate(sum.column.columns / 2, e.type));
  roles.allocateShared(layout.bytes());
  for (auto [matrix, map] : llvm::zip_equal(matrices, addTensorMaps(kernel, boxed)))
    matrix.map = map;
  kernel->setAttr(threadsAttr, e.b.getI64IntegerAttr(GradientLayout::threads));
  kernel->setAttr(familyAttr, e.b.getStringAttr("sm_90a, gradient"));
  roles.initBarriers([&] {
    Mbarrier{e.add(roles.shared, layout.rowBarrier())}.init(e, 1);
    // A stage is read by the warps of one warpgroup.
    Ring(e.add(roles.shared, layout.barriers()), layout.stages)
        .init(e, GradientLayout::groupThreads / 32, layout.writers());
  });
  roles.emit(
      layout.producerRegisters(), layout.consumerRegisters(), [&] { produce(roles, layout, matrices); },
      [&] { consume(roles, layout, sums); });
}

void GradientItem::produce(KernelRoles &roles, const GradientLayout &layout, MutableArrayRef<MappedMatrix> matrices) {
  Emitter &e = roles.e;
  OpBuilder::InsertionGuard guard(e.b);
  IRMapping copies = roles.copyBody();
  std::optional<GradientStep> copy = GradientStep::match(cast<linalg::GenericOp>(copies.lookup(step.pairs)));
  assert(copy && "the step of a copy of the body does not match");
  GradientLayout ofCopy(*copy, sharedBytes);
  for (MappedMatrix &matrix : matrices)
    matrix.operand = matrix.operand.in(copies);
  GradientProducer producer(e.b, *copy, ofCopy, roles.shared, roles.steps);
  OpBuilder::InsertPoint end = e.b.saveInsertionPoint();
  e.b.setInsertionPoint(copy->outermost);
  producer.copyRows(matrices.take_front(layout.rowTiles.size()));
  e.b.setInsertionPoint(copy->pairs);
  producer.copyColumns(matrices.drop_front(layout.rowTiles.size()));
  copy->erase();
  for (linalg::FillOp fill : fills)
    copies.lookup(fill)->erase();
  if (step.outermost != step.pairs)
    hideIndices(e, copies.lookup(step.outermost));
  e.b.restoreInsertionPoint(end);
  producer.endTiles();
  if (!layout.vectors.empty())
    SharedTile::wait(e);
}

void GradientItem::consume(KernelRoles &roles, const GradientLayout &layout, ArrayRef<Value> sums) {
  OpBuilder &b = roles.e.b;
  OpBuilder::InsertionGuard guard(b);
  roles.moveBody();
  GradientConsumer consumer(b, step, layout, roles.shared, sums);
  for (linalg::FillOp fill : fills) {
    b.setInsertionPoint(fill);
    consumer.fill(fill);
    fill->erase();
  }
  b.setInsertionPoint(step.outermost);
  consumer.start();
  consumer.computeTiles();
  consumer.exchangeSums();
  // Places of results would take registers in the loop over tiles.
  for (GradientStep::Sum &sum : step.sums)
    for (linalg::GenericOp store : sum.stores)
      recomputeOperands(roles.e, store, /*ofParameters=*/layout.partColumns < layout.columns);
  for (unsigned n = 0; n < sums.size(); ++n)
    consumer.storeSum(n);
  Operation *loops = step.outermost == step.pairs ? nullptr : step.outermost;
  step.erase();
  if (loops)
    loops->erase();
}
