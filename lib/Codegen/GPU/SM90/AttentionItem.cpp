//===- AttentionItem.cpp - A work item of attention on sm_90a -----------------===//
#include "AttentionItem.h"
#include "../OutputEpilogue.h"
#include "../SM80/FinalizeRows.h"
#include "KernelRoles.h"
#include "PartialState.h"
#include "Roles.h"
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
    bool isOfState = state ? op == state->finalize || op == findEpilogue(FinalizeOp(state->finalize).getOutput()) ||
                                 llvm::is_contained(state->inits, op) || llvm::is_contained(state->buffers, op)
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
  if (Operation *epilogue = findEpilogue(FinalizeOp(state.finalize).getOutput()))
    erase(epilogue);
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
  if (findEpilogue(op.getOutput()) || getElementTypeOrSelf(op.getOutput()) != shape.element ||
      shape.valueDepth % 8 != 0 || shape.boxes(shape.valueDepth) > shape.boxes(shape.depth))
    return std::nullopt;
  Value rows = e.mul(Lane(e, shape, thread).firstRow, shape.boxRowBytes);
  return RowStaging{e.add(e.add(shared, shape.queries()), rows), shape.boxBytes(shape.rows)};
}

namespace {

/// Rewrites the body of a kernel. Each role is a loop over items.
class ItemEmitter {
public:
  ItemEmitter(func::FuncOp kernel, AccumulateOp step, AttentionState *state, const WarpgroupShape &shape)
      : kernel(kernel), state(state), shape(shape), step(step),
        query(state ? mapOperand(step.getQuery(), step.getQueryDims()) : MappedOperand()),
        key(mapOperand(step.getKey(), step.getKeyDims())), value(mapOperand(step.getValue(), step.getValueDims())),
        keysEndWithTensor(endsWithTensor(step, key, value)), roles(kernel, step.getLoc()) {}

  void run() {
    pending = {roles.allocate(shape.weightWords(), b.getI32Type()), roles.allocate(shape.rowsPerThread(), e.type)};
    roles.allocateShared(shape.bytes());
    SmallVector<BoxedOperand> boxed = {{query, shape.rows}, {key, shape.keys()}, {value, shape.keys()}};
    SmallVector<Value> maps = addTensorMaps(kernel, ArrayRef(boxed).drop_front(state ? 0 : 1));
    ItemScheduler scheduler = makeScheduler();
    kernel->setAttr(threadsAttr, b.getI64IntegerAttr(shape.threads()));
    kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(shape.ctas));
    roles.initBarriers([&] {
      WarpgroupRole::initBarriers(e, shape, roles.shared);
      scheduler.init(e);
    });
    auto producer = [&] { scheduler.produce(e, [&](const ItemScheduler::Loop &loop) { produce(loop, maps); }); };
    auto consumer = [&] {
      scheduler.consume(e, [&](const ItemScheduler::Loop &loop) { state ? consume(loop) : consumeSplitKV(loop); });
    };
    if (state) {
      roles.emit(shape.producerRegisters(), shape.consumerRegisters(), producer, consumer);
      state->erase();
    } else {
      e.ifElse(e.isAtMost(e.i32(shape.groupThreads), e.thread()), producer, consumer);
      eraseStep(step);
    }
  }

private:
  /// Adds the number of items and the counter as last parameters.
  ItemScheduler makeScheduler() {
    Block &body = kernel.getBody().front();
    Value count = body.addArgument(b.getI64Type(), e.loc), counter = body.addArgument(b.getI64Type(), e.loc);
    kernel.setFunctionType(b.getFunctionType(body.getArgumentTypes(), {}));
    kernel->setAttr(itemCounterAttr, b.getUnitAttr());
    count = arith::TruncIOp::create(b, e.loc, b.getI32Type(), count);
    auto pointer = LLVM::LLVMPointerType::get(b.getContext(), globalSpace);
    counter = LLVM::IntToPtrOp::create(b, e.loc, pointer, counter);
    return {e.add(roles.shared, shape.items()), count, counter};
  }

  ItemPlace placeOf(const ItemScheduler::Loop &loop) {
    return {roles.shared, loop.place, roles.steps, e.load(roles.steps, 0)};
  }

  void produce(const ItemScheduler::Loop &loop, ValueRange maps) {
    ItemPlace place = placeOf(loop);
    IRMapping copies = roles.copyBody(loop.item);
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
    if (!state)
      erasePartialState(*loop.body, stepCopy);
    eraseStep(stepCopy);
    if (state)
      eraseState(*state, copies);
  }

  void consume(const ItemScheduler::Loop &loop) {
    ItemPlace place = placeOf(loop);
    roles.moveBody(loop.item);
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
    auto staging = stagingFor(e, state->finalize, shape, roles.shared, thread);
    finalizeRows(e, state->finalize, registers, shape, staging, thread);
    b.setInsertionPointToEnd(loop.body);
    Consumer(e, step, shape, place, pending, registers, keysEndWithTensor).releaseQueries();
  }

  /// Computes items whose state is in memory. Ops that finalize it remain, for the threads of the warpgroup.
  void consumeSplitKV(const ItemScheduler::Loop &loop) {
    ItemPlace place = placeOf(loop);
    roles.moveBody(loop.item);
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
  }

  func::FuncOp kernel;
  AttentionState *state; ///< null if it is in memory
  const WarpgroupShape &shape;
  AccumulateOp step;
  MappedOperand query, key, value;
  bool keysEndWithTensor;
  KernelRoles roles; ///< after the operands, whose mapping adds ops to the body
  Emitter &e = roles.e;
  OpBuilder &b = e.b;
  PendingTile pending;
};

} // namespace

void device::emitAttentionItem(func::FuncOp kernel, AccumulateOp step, AttentionState *state,
                               const WarpgroupShape &shape) {
  device::mergeSections(step);
  ItemEmitter(kernel, step, state, shape).run();
}
