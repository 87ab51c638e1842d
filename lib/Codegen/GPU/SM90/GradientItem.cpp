//===- GradientItem.cpp - A work item of a gradient on sm_90a -----------------===//
//
// The body of a kernel becomes the two sides of a branch, one for each role of a warpgroup.
//
//===----------------------------------------------------------------------===//
#include "GradientItem.h"
#include "../BufferAnalysis.h"
#include "../LiveRanges.h"
#include "../SM80/GradientKernel.h"
#include "../SharedMemory.h"
#include "GradientRoles.h"
#include "mlir/IR/IRMapping.h"
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
  Location loc = step.pairs.getLoc();
  Block *body = &kernel.getBody().front();
  OpBuilder b(body, body->begin());
  Emitter e{b, loc, b.getF32Type()};
  step.hoistRows();
  GradientLayout layout(step, sharedBytes);
  SmallVector<MappedOperand> operands;
  for (ArrayRef<GradientLayout::Tile> tiles : {ArrayRef(layout.rowTiles), ArrayRef(layout.columnTiles)})
    for (const auto &[matrix, offset] : tiles)
      operands.push_back(mapOperand(matrix.memref, matrix.rowDim, matrix.columnDim));

  // The roles are the sides of a branch; the body moves to one and is copied to the other.
  SmallVector<Operation *> ops;
  for (Operation &op : body->without_terminator())
    ops.push_back(&op);
  b.setInsertionPoint(body->getTerminator());
  Value steps = memref::AllocaOp::create(b, loc, MemRefType::get({1}, b.getI32Type()));
  SmallVector<Value> sums;
  for (GradientStep::Sum &sum : step.sums)
    sums.push_back(memref::AllocaOp::create(b, loc, MemRefType::get({sum.column.columns / 2}, b.getF32Type())));
  Value pointer = getDynamicShared(e, layout.bytes(), WarpgroupShape::tileAlignment);
  Value shared = LLVM::PtrToIntOp::create(b, loc, b.getI32Type(), pointer);
  Value isProducer = e.isLess(e.thread(), e.i32(GradientLayout::groupThreads));
  e.ifElse(e.isEqual(e.thread(), e.i32(0)), [&] {
    Mbarrier{e.add(shared, layout.rowBarrier())}.init(e, 1);
    // A stage is read by the warps of one warpgroup.
    Ring(e.add(shared, layout.barriers()), layout.stages).init(e, GradientLayout::groupThreads / 32, layout.writers());
    NVVM::FenceMbarrierInitOp::create(b, loc);
  });
  e.barrier();
  e.store(e.i32(0), steps, 0);
  auto roles = scf::IfOp::create(b, loc, isProducer, /*withElseRegion=*/true);
  Block *producing = roles.thenBlock(), *computing = roles.elseBlock();
  IRMapping copies;
  b.setInsertionPoint(producing->getTerminator());
  for (Operation *op : ops)
    b.clone(*op, copies);
  for (Operation *op : ops)
    op->moveBefore(computing->getTerminator());

  SmallVector<BoxedOperand> boxed;
  for (const MappedOperand &operand : operands)
    boxed.push_back({operand, GradientLayout::rows});
  SmallVector<Value> maps = addTensorMaps(kernel, boxed);
  kernel->setAttr(threadsAttr, b.getI64IntegerAttr(GradientLayout::threads));
  kernel->setAttr(familyAttr, b.getStringAttr("sm_90a, gradient"));

  // The producer: its first warp copies, the others only take part in setmaxnreg.
  {
    std::optional<GradientStep> copy = GradientStep::match(cast<linalg::GenericOp>(copies.lookup(step.pairs)));
    assert(copy && "the step of a copy of the body does not match");
    GradientLayout ofCopy(*copy, sharedBytes);
    SmallVector<MappedMatrix> matrices;
    for (auto [operand, map] : llvm::zip_equal(operands, maps))
      matrices.push_back({operand.in(copies), map});
    ArrayRef<MappedMatrix> ofRows = ArrayRef(matrices).take_front(layout.rowTiles.size());
    b.setInsertionPoint(copy->outermost);
    GradientProducer producer(b, *copy, ofCopy, shared, steps);
    producer.copyRows(ofRows);
    b.setInsertionPoint(copy->pairs);
    producer.copyColumns(ArrayRef(matrices).drop_front(ofRows.size()));
    copy->erase();
    for (linalg::FillOp fill : fills)
      copies.lookup(fill)->erase();
    if (step.outermost != step.pairs)
      hideIndices(e, copies.lookup(step.outermost));
    b.setInsertionPoint(producing->getTerminator());
    producer.endTiles();
    if (!layout.vectors.empty())
      SharedTile::wait(e);
    b.setInsertionPointToStart(producing);
    NVVM::SetMaxRegisterOp::create(b, loc, layout.producerRegisters(), NVVM::SetMaxRegisterAction::decrease);
    auto firstWarp = scf::IfOp::create(b, loc, e.isLess(e.thread(), e.i32(32)));
    for (Operation *op = firstWarp->getNextNode(); op != producing->getTerminator();) {
      Operation *next = op->getNextNode();
      op->moveBefore(firstWarp.thenBlock()->getTerminator());
      op = next;
    }
  }

  // The consumers.
  b.setInsertionPointToStart(computing);
  NVVM::SetMaxRegisterOp::create(b, loc, layout.consumerRegisters(), NVVM::SetMaxRegisterAction::increase);
  GradientConsumer consumer(b, step, layout, shared, sums);
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
      recomputeOperands(e, store, /*ofParameters=*/layout.partColumns < layout.columns);
  for (unsigned n = 0; n < sums.size(); ++n)
    consumer.storeSum(n);
  Operation *loops = step.outermost == step.pairs ? nullptr : step.outermost;
  step.erase();
  if (loops)
    loops->erase();
}
