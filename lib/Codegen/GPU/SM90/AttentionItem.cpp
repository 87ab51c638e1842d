//===- AttentionItem.cpp - A work item of attention on sm_90a -----------------===//
//
// The body of a kernel becomes the two sides of a branch, one for each role of a warpgroup. Each is a loop over items.
//
//===----------------------------------------------------------------------===//
#include "AttentionItem.h"
#include "../SM80/FinalizeRows.h"
#include "../SharedMemory.h"
#include "PartialState.h"
#include "Roles.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Whether the keys after the last one that a length permits do not exist, so that bulk copies fill their rows and
/// those of their values with zeros. Values have the length of keys, which each call checks (`ShapeChecks`).
static bool endsWithTensor(AccumulateOp step, const MappedOperand &key, const MappedOperand &value) {
  if (key.pages || value.pages)
    return false;
  if (std::optional<int64_t> length = getConstantIntValue(step.getKvLen()))
    return key.type.getDimSize(key.rowDim) == *length;
  auto dim = step.getKvLen().getDefiningOp<memref::DimOp>();
  auto parameter = dim ? dyn_cast<BlockArgument>(dim.getSource()) : BlockArgument();
  return parameter && int64_t(parameter.getArgNumber()) == key.argument && dim.getConstantIndex() == key.rowDim;
}

/// Whether tiles of `operand`, a tile of keys or values, start at multiples of the rows of a box in its pages: they
/// start at multiples of their rows, counted from the position of key 0 of the sequence.
static bool isAligned(AccumulateOp step, Value operand) {
  LoadPagesOp pages = findPages(operand);
  Value first = step.getAt().empty() ? Value() : Position::of(step.getAt()).key;
  return !pages || (first ? first == pages.getBegin() : isZeroInteger(pages.getBegin()));
}

StringRef device::findItemObstacle(AccumulateOp step, const AttentionState *state) {
  // The weights of a final step need a second pass over the keys.
  if (step.getFinal())
    return "keys are read more than once";
  Type element = getElementTypeOrSelf(step.getQuery());
  if (getElementTypeOrSelf(step.getKey()) != element || getElementTypeOrSelf(step.getValue()) != element)
    return "keys or values have another type than queries";
  for (auto [tile, dims] : {std::pair(step.getKey(), step.getKeyDims()), {step.getValue(), step.getValueDims()}})
    if (LoadPagesOp pages = findPages(tile))
      if (isMappable(pages.getPool(), pages.getDims()) && !isMappable(tile, dims))
        return "the number of keys of a page is not a multiple of eight";
  // Queries are copied once, before a loop that contains the step.
  bool areQueriesReadable = state
                                ? isMappable(step.getQuery(), step.getQueryDims()) && hasKnownPosition(step.getQuery())
                                : hasPartialState(step);
  if (!areQueriesReadable || !isMappable(step.getKey(), step.getKeyDims()) ||
      !isMappable(step.getValue(), step.getValueDims()))
    return "no tensor map describes an operand";
  if (!isAligned(step, step.getKey()) || !isAligned(step, step.getValue()))
    return "tiles of keys start at any position of a page";
  // Both roles execute the other ops, so these must not write. Those that write tiles in pages are erased.
  SmallVector<Operation *> erased = {step};
  for (Value tile : {step.getKey(), step.getValue()})
    if (LoadPagesOp pages = findPages(tile))
      erased.push_back(pages);
  auto kernel = step->getParentOfType<func::FuncOp>();
  WalkResult others = kernel.walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
    if (llvm::is_contained(erased, op))
      return WalkResult::skip();
    bool isOfState =
        state ? op == state->finalize || llvm::is_contained(state->inits, op) || llvm::is_contained(state->buffers, op)
              : isOfPartialState(op, step);
    // Ops with regions may have effects of their own too, as linalg ops have.
    bool isContainer = op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() && !isa<MemoryEffectOpInterface>(op);
    bool isPlain = isOfState || isContainer || isa<func::FuncOp, memref::AllocOp>(op) ||
                   op->hasTrait<OpTrait::IsTerminator>() || isMemoryEffectFree(op) ||
                   hasSingleEffect<MemoryEffects::Read>(op);
    return isPlain ? WalkResult::advance() : WalkResult::interrupt();
  });
  return others.wasInterrupted() ? "another op of the kernel writes memory" : "";
}

/// Erases the state and its ops in the producer's copy of the body.
static void eraseState(const AttentionState &state, const IRMapping &copies) {
  auto erase = [&](Operation *op) { copies.lookup(op)->erase(); };
  erase(state.finalize);
  for (linalg::LinalgOp init : state.inits)
    erase(init);
  for (memref::AllocOp buffer : state.buffers) {
    Operation *copy = copies.lookup(buffer.getOperation());
    for (Operation *view : llvm::make_early_inc_range(copy->getUsers()))
      view->erase();
    copy->erase();
  }
}

/// The rows of queries of this warp, which no product reads any more, if those of the results fit.
static std::optional<RowStaging> stagingFor(Emitter &e, FinalizeOp op, const WarpgroupShape &shape, Value shared,
                                            Value thread) {
  if (getElementTypeOrSelf(op.getOutput()) != shape.element || shape.valueDepth % 8 != 0 ||
      shape.boxes(shape.valueDepth) > shape.boxes(shape.depth))
    return std::nullopt;
  Value rows = e.mul(Lane(e, shape, thread).firstRow, shape.boxRowBytes);
  return RowStaging{e.add(e.add(shared, shape.queries()), rows), shape.boxBytes(shape.rows)};
}

namespace {

/// Rewrites the body of a kernel.
class ItemEmitter {
public:
  ItemEmitter(func::FuncOp kernel, AccumulateOp step, AttentionState *state, const WarpgroupShape &shape)
      : kernel(kernel), state(state), shape(shape), body(&kernel.getBody().front()), b(body, body->begin()),
        e{b, step.getLoc(), b.getF32Type()}, step(step) {}

  void run() {
    device::mergeSections(step);
    if (state)
      query = mapOperand(step.getQuery(), step.getQueryDims());
    key = mapOperand(step.getKey(), step.getKeyDims());
    value = mapOperand(step.getValue(), step.getValueDims());
    keysEndWithTensor = endsWithTensor(step, key, value);
    for (Operation &op : body->without_terminator())
      ops.push_back(&op);
    auto isIndex = [](Operation *op) { return isa<NVVM::BlockIdXOp>(op); };
    if (auto *found = llvm::find_if(ops, isIndex); found != ops.end())
      index = cast<NVVM::BlockIdXOp>(*found);

    // The roles are the sides of a branch; the body moves to one and is copied to the other.
    b.setInsertionPoint(body->getTerminator());
    auto allocate = [&](int64_t count, Type type) -> Value {
      return memref::AllocaOp::create(b, e.loc, MemRefType::get({count}, type));
    };
    steps = allocate(1, b.getI32Type());
    pending = {allocate(shape.weightWords(), b.getI32Type()), allocate(shape.rowsPerThread(), e.type)};
    Value pointer = getDynamicShared(e, shape.bytes(), shape.tileAlignment);
    shared = LLVM::PtrToIntOp::create(b, e.loc, b.getI32Type(), pointer);
    SmallVector<BoxedOperand> boxed = {{query, shape.rows}, {key, shape.keys()}, {value, shape.keys()}};
    SmallVector<Value> maps = addTensorMaps(kernel, ArrayRef(boxed).drop_front(state ? 0 : 1));
    ItemScheduler scheduler = makeScheduler();
    kernel->setAttr(threadsAttr, b.getI64IntegerAttr(shape.threads()));
    kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(shape.ctas));
    e.ifElse(e.isEqual(e.thread(), e.i32(0)), [&] {
      WarpgroupRole::initBarriers(e, shape, shared);
      scheduler.init(e);
      NVVM::FenceMbarrierInitOp::create(b, e.loc);
    });
    e.barrier();
    e.store(e.i32(0), steps, 0);
    if (state) {
      emitRolesOfGroups(scheduler, maps);
      state->erase();
    } else {
      e.ifElse(
          e.isAtMost(e.i32(shape.groupThreads), e.thread()), [&] { produce(scheduler, maps); },
          [&] { consumeSplitKV(scheduler); });
      eraseStep(step);
    }
  }

private:
  void emitRolesOfGroups(const ItemScheduler &scheduler, ValueRange maps) {
    e.ifElse(
        e.isLess(e.thread(), e.i32(shape.groupThreads)),
        [&] {
          NVVM::SetMaxRegisterOp::create(b, e.loc, shape.producerRegisters(), NVVM::SetMaxRegisterAction::decrease);
          // The first warp copies, the others only take part in setmaxnreg.
          e.ifElse(e.isLess(e.thread(), e.i32(32)), [&] { produce(scheduler, maps); });
        },
        [&] {
          NVVM::SetMaxRegisterOp::create(b, e.loc, shape.consumerRegisters(), NVVM::SetMaxRegisterAction::increase);
          consume(scheduler);
        });
  }

  /// Adds the number of items and the counter as last parameters.
  ItemScheduler makeScheduler() {
    Value count = body->addArgument(b.getI64Type(), e.loc), counter = body->addArgument(b.getI64Type(), e.loc);
    kernel.setFunctionType(b.getFunctionType(body->getArgumentTypes(), {}));
    kernel->setAttr(itemCounterAttr, b.getUnitAttr());
    count = arith::TruncIOp::create(b, e.loc, b.getI32Type(), count);
    auto pointer = LLVM::LLVMPointerType::get(b.getContext(), globalSpace);
    counter = LLVM::IntToPtrOp::create(b, e.loc, pointer, counter);
    return {e.add(shared, shape.items()), count, counter};
  }

  ItemPlace placeOf(const ItemScheduler::Loop &loop) {
    b.setInsertionPointToStart(loop.body);
    return {shared, loop.place, steps, e.load(steps, 0)};
  }

  void produce(const ItemScheduler &scheduler, ValueRange maps) {
    OpBuilder::InsertionGuard guard(b);
    ItemScheduler::Loop loop = scheduler.startLoop(e);
    ItemPlace place = placeOf(loop);
    IRMapping copies;
    if (index)
      copies.map(index.getResult(), loop.item);
    b.setInsertionPointToEnd(loop.body);
    for (Operation *op : ops)
      if (op != index)
        b.clone(*op, copies);
    auto stepCopy = cast<AccumulateOp>(copies.lookup(step.getOperation()));
    b.setInsertionPoint(stepCopy);
    std::optional<MappedQueries> queries;
    if (state)
      queries = {query.in(copies), maps[0]};
    Producer producer(e, stepCopy, shape, place);
    producer.copyTiles(queries, key.in(copies), value.in(copies), maps.take_back(2));
    b.setInsertionPointToEnd(loop.body);
    // The producer is at most one item ahead, for which the scheduler has memory.
    if (queries)
      Producer(e, stepCopy, shape, place).copyQueriesOfNoTile(*queries);
    else
      Producer(e, stepCopy, shape, place).waitForItemBefore();
    scheduler.produceNext(e, loop);
    if (!state)
      erasePartialState(*loop.body, stepCopy);
    eraseStep(stepCopy);
    if (state)
      eraseState(*state, copies);
  }

  /// Moves the body to that of `loop`.
  void moveBody(const ItemScheduler::Loop &loop) {
    for (Operation *op : ops)
      op->moveBefore(loop.body, loop.body->end());
    if (!index)
      return;
    index.replaceAllUsesWith(loop.item);
    index.erase();
  }

  void consume(const ItemScheduler &scheduler) {
    OpBuilder::InsertionGuard guard(b);
    ItemScheduler::Loop loop = scheduler.startLoop(e);
    ItemPlace place = placeOf(loop);
    moveBody(loop);
    auto rowAt = [&](Emitter &e, int64_t r) { return Lane(e, shape).row(e, r); };
    auto isFirst = [&](Emitter &e) { return Lane(e, shape).isFirst(e); };
    PrivateState registers = state->privatize("sm_90a", shape.accElements(), {shape.rowsPerThread(), rowAt, isFirst});
    auto at = [&](Operation *op) {
      b.setInsertionPoint(op);
      return Consumer(e, step, shape, place, pending, registers, keysEndWithTensor);
    };
    at(loop.body->findAncestorOpInBlock(*step)).waitForQueries();
    at(step).computeTiles();
    Consumer consumer = at(state->finalize);
    consumer.finish();
    consumer.resetRowsAfterQueries();
    // The addresses of rows are computed for each item: across the loop over tiles they would take registers.
    Value thread = e.optimizationBarrier(e.thread());
    auto staging = stagingFor(e, state->finalize, shape, shared, thread);
    finalizeRows(e, state->finalize, registers, shape, staging, thread);
    b.setInsertionPointToEnd(loop.body);
    Consumer(e, step, shape, place, pending, registers, keysEndWithTensor).releaseQueries();
    scheduler.consumeNext(e, loop);
  }

  /// Computes items whose state is in memory. Ops that finalize it remain, for the threads of the warpgroup.
  void consumeSplitKV(const ItemScheduler &scheduler) {
    OpBuilder::InsertionGuard guard(b);
    ItemScheduler::Loop loop = scheduler.startLoop(e);
    ItemPlace place = placeOf(loop);
    moveBody(loop);
    kernel->setAttr(familyAttr, b.getStringAttr(nameFamily("sm_90a, split-KV", step)));
    initPartialState(*loop.body, step, Consumer::barrier);
    b.setInsertionPoint(loop.body->findAncestorOpInBlock(*step));
    PrivateState registers = emptyPrivateState(e, kernel, step, shape.accElements(), shape.rowsPerThread());
    Consumer consumer(e, step, shape, place, pending, registers, keysEndWithTensor);
    consumer.loadQueries();
    consumer.computeTiles();
    consumer.finish();
    storeState(e, step, registers, shape);
    // Other threads read the state, and write queries of the next item.
    consumer.meet();
    consumer.releaseQueries();
    b.setInsertionPointToEnd(loop.body);
    scheduler.consumeNext(e, loop);
  }

  func::FuncOp kernel;
  AttentionState *state; ///< null if it is in memory
  const WarpgroupShape &shape;
  Block *body;
  OpBuilder b;
  Emitter e;
  AccumulateOp step;
  MappedOperand query, key, value;
  bool keysEndWithTensor = false;
  SmallVector<Operation *> ops; ///< of the body
  NVVM::BlockIdXOp index;       ///< the number of the item in the body; null if it is not used
  Value shared, steps;
  PendingTile pending;
};

} // namespace

void device::emitAttentionItem(func::FuncOp kernel, AccumulateOp step, AttentionState *state,
                               const WarpgroupShape &shape) {
  ItemEmitter(kernel, step, state, shape).run();
}
