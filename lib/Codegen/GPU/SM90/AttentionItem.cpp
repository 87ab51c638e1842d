//===- AttentionItem.cpp - A work item of attention on sm_90a -----------------===//
//
// The body of a kernel becomes the two sides of a branch, one for each role of a warpgroup.
//
//===----------------------------------------------------------------------===//
#include "AttentionItem.h"
#include "../SM80/FinalizeRows.h"
#include "../SharedMemory.h"
#include "Roles.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Whether the keys after the last one that a length permits do not exist, so that bulk copies fill their rows and
/// those of their values with zeros. Values have the length of keys, which each call checks (`ShapeChecks`).
static bool endsWithTensor(AccumulateOp step, const MappedOperand &key) {
  if (std::optional<int64_t> length = getConstantIntValue(step.getKvLen()))
    return key.type.getDimSize(key.rowDim) == *length;
  auto dim = step.getKvLen().getDefiningOp<memref::DimOp>();
  auto parameter = dim ? dyn_cast<BlockArgument>(dim.getSource()) : BlockArgument();
  return parameter && parameter.getArgNumber() == key.argument && dim.getConstantIndex() == key.rowDim;
}

bool device::isAttentionItem(const AttentionState &state) {
  AccumulateOp step = state.steps.front();
  // The weights of a final step need a second pass over the keys.
  if (state.steps.size() != 1 || step.getFinal())
    return false;
  Type element = state.element();
  if (getElementTypeOrSelf(step.getKey()) != element || getElementTypeOrSelf(step.getValue()) != element)
    return false;
  // Queries are copied once, before a loop that contains the step.
  if (!isMappable(step.getQuery(), step.getQueryDims()) || !hasKnownPosition(step.getQuery()) ||
      !isMappable(step.getKey(), step.getKeyDims()) || !isMappable(step.getValue(), step.getValueDims()))
    return false;
  // Both roles execute the other ops, so these must not write.
  auto kernel = step->getParentOfType<func::FuncOp>();
  WalkResult others = kernel.walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
    if (op == step)
      return WalkResult::skip();
    bool isOfState =
        op == state.finalize || llvm::is_contained(state.inits, op) || llvm::is_contained(state.buffers, op);
    bool isPlain = isOfState || isa<func::FuncOp>(op) || op->hasTrait<OpTrait::IsTerminator>() ||
                   op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() || isMemoryEffectFree(op) ||
                   hasSingleEffect<MemoryEffects::Read>(op);
    return isPlain ? WalkResult::advance() : WalkResult::interrupt();
  });
  return !others.wasInterrupted();
}

/// The op in the block of a role that contains `op`.
static Operation *topLevel(Operation *op, Block *block) { return block->findAncestorOpInBlock(*op); }

/// Replaces a loop over sections of keys that contains the step by one section with all keys, if there are any: the
/// keys of an iteration end at the sum of its induction variable and the step of the loop, or at the end of the loop.
static void mergeSections(AccumulateOp step) {
  auto loop = dyn_cast<scf::ForOp>(step->getParentOp());
  if (!loop || loop.getNumResults())
    return;
  auto isEnd = [&](Operation *op) {
    return isa<arith::AddIOp>(op) && op->getOperands() == ValueRange{loop.getInductionVar(), loop.getStep()};
  };
  SmallVector<Operation *> ends(llvm::make_filter_range(loop.getInductionVar().getUsers(), isEnd));
  if (ends.empty())
    return;
  IRRewriter rewriter(loop);
  for (Operation *end : ends)
    rewriter.replaceOp(end, loop.getUpperBound());
  Value isAny = arith::CmpIOp::create(rewriter, loop.getLoc(), arith::CmpIPredicate::slt, loop.getLowerBound(),
                                      loop.getUpperBound());
  auto section = scf::IfOp::create(rewriter, loop.getLoc(), isAny);
  rewriter.eraseOp(loop.getBody()->getTerminator());
  rewriter.inlineBlockBefore(loop.getBody(), section.thenYield(), loop.getLowerBound());
  rewriter.eraseOp(loop);
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
static std::optional<RowStaging> stagingFor(Emitter &e, FinalizeOp op, const WarpgroupShape &shape, Value shared) {
  if (getElementTypeOrSelf(op.getOutput()) != shape.element || shape.valueDepth % 8 != 0 ||
      shape.boxes(shape.valueDepth) > shape.boxes(shape.depth))
    return std::nullopt;
  Value rows = e.mul(Lane(e, shape).firstRow, shape.boxRowBytes);
  return RowStaging{e.add(e.add(shared, shape.queries()), rows), shape.boxBytes(shape.rows)};
}

void device::emitAttentionItem(func::FuncOp kernel, AttentionState &state, const WarpgroupShape &shape) {
  Location loc = state.finalize.getLoc();
  Block *body = &kernel.getBody().front();
  OpBuilder b(body, body->begin());
  Emitter e{b, loc, b.getF32Type()};
  AccumulateOp step = state.steps.front();
  mergeSections(step);
  MappedOperand query = mapOperand(step.getQuery(), step.getQueryDims());
  MappedOperand key = mapOperand(step.getKey(), step.getKeyDims());
  MappedOperand value = mapOperand(step.getValue(), step.getValueDims());
  bool keysEndWithTensor = endsWithTensor(step, key);

  // The roles are the sides of a branch; the body moves to one and is copied to the other.
  Operation *end = body->getTerminator();
  SmallVector<Operation *> ops;
  for (Operation &op : body->without_terminator())
    ops.push_back(&op);
  b.setInsertionPoint(end);
  auto allocate = [&](int64_t words) -> Value {
    return memref::AllocaOp::create(b, loc, MemRefType::get({words}, b.getI32Type()));
  };
  Value steps = allocate(1), weights = allocate(shape.weightWords());
  Value pointer = getDynamicShared(e, shape.bytes(), shape.tileAlignment);
  Value shared = LLVM::PtrToIntOp::create(b, loc, b.getI32Type(), pointer);
  Value isProducer = e.isLess(e.thread(), e.i32(shape.groupThreads));
  {
    Ring keys(e.add(shared, shape.barriers() + 8), shape.stages);
    Ring values(e.add(shared, shape.barriers() + 8 + Ring::bytes(shape.stages)), shape.stages);
    e.ifElse(e.isEqual(e.thread(), e.i32(0)), [&] {
      Mbarrier{e.add(shared, shape.barriers())}.init(e, 1);
      for (const Ring &ring : {keys, values})
        ring.init(e, shape.warps);
      NVVM::FenceMbarrierInitOp::create(b, loc);
    });
  }
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

  // Tensor maps are the first parameters.
  MLIRContext *context = kernel.getContext();
  SmallVector<Value> maps;
  SmallVector<Attribute> plans;
  for (const MappedOperand *operand : {&query, &key, &value}) {
    int64_t rows = operand == &query ? shape.rows : shape.keys();
    plans.push_back(b.getDenseI64ArrayAttr(operand->plan(rows, shape.boxColumns)));
  }
  for (unsigned i = 0; i < plans.size(); ++i)
    maps.push_back(body->insertArgument(i, LLVM::LLVMPointerType::get(context), loc));
  kernel.setFunctionType(b.getFunctionType(body->getArgumentTypes(), {}));
  kernel->setAttr(tensorMapsAttr, b.getArrayAttr(plans));
  kernel->setAttr(threadsAttr, b.getI64IntegerAttr(shape.threads()));

  // The producer: its first warp copies, the others only take part in setmaxnreg.
  auto stepCopy = cast<AccumulateOp>(copies.lookup(step.getOperation()));
  Operation *before = topLevel(stepCopy, producing);
  auto ofCopy = [&](const MappedOperand &operand) {
    MappedOperand copy = operand;
    for (OpFoldResult &position : copy.position)
      if (auto value = dyn_cast<Value>(position))
        position = copies.lookupOrDefault(value);
    return copy;
  };
  b.setInsertionPoint(before);
  Producer(e, stepCopy, shape, shared, steps).copyQueries(ofCopy(query), maps[0]);
  b.setInsertionPoint(stepCopy);
  Producer(e, stepCopy, shape, shared, steps).copyTiles(ofCopy(key), ofCopy(value), maps[1], maps[2]);
  eraseStep(stepCopy);
  eraseState(state, copies);
  b.setInsertionPointToStart(producing);
  NVVM::SetMaxRegisterOp::create(b, loc, shape.producerRegisters(), NVVM::SetMaxRegisterAction::decrease);
  auto firstWarp = scf::IfOp::create(b, loc, e.isLess(e.thread(), e.i32(32)));
  for (Operation *op = firstWarp->getNextNode(); op != producing->getTerminator();) {
    Operation *next = op->getNextNode();
    op->moveBefore(firstWarp.thenBlock()->getTerminator());
    op = next;
  }

  // The consumers.
  auto rowAt = [&](Emitter &e, int64_t r) { return Lane(e, shape).row(e, r); };
  auto isFirst = [&](Emitter &e) { return Lane(e, shape).isFirst(e); };
  PrivateState privateState = state.privatize("sm_90a", shape.accElements(), {shape.rowsPerThread(), rowAt, isFirst});
  b.setInsertionPointToStart(computing);
  NVVM::SetMaxRegisterOp::create(b, loc, shape.consumerRegisters(), NVVM::SetMaxRegisterAction::increase);
  b.setInsertionPoint(topLevel(step, computing));
  Mbarrier{e.add(shared, shape.barriers())}.wait(e, e.i32(0));
  b.setInsertionPoint(step);
  Consumer(e, step, shape, shared, steps, weights, privateState, keysEndWithTensor).computeTiles();
  b.setInsertionPoint(state.finalize);
  Consumer(e, step, shape, shared, steps, weights, privateState, keysEndWithTensor).finish();
  finalizeRows(e, state.finalize, privateState, shape, stagingFor(e, state.finalize, shape, shared));
  state.erase();
}
