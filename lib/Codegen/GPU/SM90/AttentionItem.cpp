//===- AttentionItem.cpp - A work item of attention on sm_90a -----------------===//
//
// The first warpgroup issues bulk copies of keys and values to a ring of stages in shared memory; the others multiply
// them (FlashAttention-3; Shah et al. 2024). Both roles run the same loops over tiles, so that they need no messages
// but the barriers of the stages.
//
//===----------------------------------------------------------------------===//
#include "AttentionItem.h"
#include "../SM80/FinalizeRows.h"
#include "../SM80/MMA.h"
#include "../SharedMemory.h"
#include "../VisibleTiles.h"
#include "Ring.h"
#include "TensorMap.h"
#include "WGMMA.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

/// Whether the keys after the last one that a length permits do not exist, so that bulk copies fill them with zeros.
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

namespace {

/// Common to both roles: shared memory, and the loop over the tiles of keys.
class Role {
public:
  Role(const Emitter &e, AccumulateOp op, const WarpgroupShape &shape, Value shared, Value steps)
      : e(e), op(op), shape(shape), shared(shared), steps(steps), queryFull{this->e.add(shared, shape.barriers())},
        keys(this->e.add(shared, shape.barriers() + 8), shape.stages),
        values(this->e.add(shared, shape.barriers() + 8 + Ring::bytes(shape.stages)), shape.stages) {}

protected:
  Value rowsOf(Value operand, DimsAttr dims) { return e.size(operand, *dims.position(Dim::Seq)); }

  FragmentSoftmax makeSoftmax(const Lane &lane) {
    Fragment fragment{e.add(lane.firstRow, lane.group), lane.column, {}, {}, {}};
    for (int64_t r = 0; r < shape.rowsPerThread(); ++r)
      fragment.rows.push_back(Lane::offset(r));
    for (int64_t tile = 0; tile < shape.keyTiles(); ++tile)
      for (int64_t i = 0; i < 4; ++i) {
        fragment.rowOf.push_back(i / 2);
        fragment.columns.push_back(8 * tile + i % 2);
      }
    return FragmentSoftmax(e, op, fragment, rowsOf(op.getQuery(), op.getQueryDims()),
                           rowsOf(op.getKey(), op.getKeyDims()));
  }

  /// Emits `body` for each tile, the same ones in both roles.
  void forTiles(FragmentSoftmax &softmax, function_ref<void(const KeyTile &)> body) {
    TileLoop loop{rowsOf(op.getQuery(), op.getQueryDims()), rowsOf(op.getKey(), op.getKeyDims()), /*heads=*/{},
                  softmax.getTiles(e, shape.keys()), shape.keys()};
    auto nothing = [](Value) {};
    if (softmax.testsTiles())
      return forEachVisibleTile(e, op, loop, nothing, body);
    forEachTile(e, loop, nothing, [&](Value first) { return softmax.isFull(e, first, shape.keys()); }, body);
  }

  Value step() { return e.load(steps, 0); }
  void nextStep() { e.store(e.add(step(), 1), steps, 0); }
  Value place(int64_t first, int64_t bytes, Value stage) { return e.add(e.add(shared, first), e.mul(stage, bytes)); }
  Value keyTile(Value stage) { return place(shape.keyStage(0), shape.tileBytes(shape.keys(), shape.depth), stage); }
  Value valueTile(Value stage) {
    return place(shape.valueStage(0), shape.tileBytes(shape.keys(), shape.valueDepth), stage);
  }

  Emitter e;
  AccumulateOp op;
  const WarpgroupShape &shape;
  Value shared; ///< i32
  Value steps;  ///< steps of the ring so far, in private memory
  Mbarrier queryFull;
  Ring keys, values;
};

/// Copies operands. One warp runs it, because all lanes together decide which tiles are visible; one lane copies.
class Producer : Role {
public:
  using Role::Role;

  void copyQueries(const MappedOperand &query, Value map) {
    forLeader([&] { copy(query, map, e.i32(0), shape.rows, shape.depth, e.add(shared, shape.queries()), queryFull); });
  }

  void copyTiles(const MappedOperand &key, const MappedOperand &value, Value keyMap, Value valueMap) {
    FragmentSoftmax softmax = makeSoftmax(Lane(e, shape));
    forTiles(softmax, [&](const KeyTile &tile) {
      RingPlace ofKeys = keys.at(e, step()), ofValues = values.at(e, step());
      auto fill = [&](const RingPlace &at, const MappedOperand &operand, Value map, int64_t columns, Value target) {
        // Stages are empty at first, as if they had been read in an earlier phase.
        at.empty.wait(e, e.sub(e.i32(1), at.parity));
        forLeader([&] { copy(operand, map, tile.first, shape.keys(), columns, target, at.full); });
      };
      fill(ofKeys, key, keyMap, shape.depth, keyTile(ofKeys.stage));
      fill(ofValues, value, valueMap, shape.valueDepth, valueTile(ofValues.stage));
      nextStep();
    });
  }

private:
  void forLeader(function_ref<void()> body) { e.ifElse(e.isEqual(e.rem(e.thread(), 32), e.i32(0)), body); }

  void copy(const MappedOperand &operand, Value map, Value row, int64_t rows, int64_t columns, Value target,
            const Mbarrier &full) {
    full.expect(e, shape.tileBytes(rows, columns));
    for (int64_t box = 0; box < shape.boxes(columns); ++box)
      copyBox(e, map, operand.coordinates(e, row, box * shape.boxColumns), e.add(target, box * shape.boxBytes(rows)),
              full);
  }
};

/// Computes the rows of a warpgroup.
class Consumer : Role {
public:
  Consumer(const Emitter &e, AccumulateOp op, const WarpgroupShape &shape, Value shared, Value steps,
           const PrivateState &state, bool endsWithTensor)
      : Role(e, op, shape, shared, steps), state(state), lane(this->e, shape), endsWithTensor(endsWithTensor) {}

  void computeTiles() {
    FragmentSoftmax softmax = makeSoftmax(lane);
    Value group = e.div(lane.warp, 4);
    Value rows = e.add(e.add(shared, shape.queries()), e.mul(group, shape.boxBytes(shape.groupRows)));
    // Uniform in the warp, which LLVM cannot know.
    Value queries = tileDescriptor(e, uniform(rows), /*leadingBytes=*/16);
    forTiles(softmax, [&](const KeyTile &tile) {
      RingPlace ofKeys = keys.at(e, step()), ofValues = values.at(e, step());
      ofKeys.full.wait(e, ofKeys.parity);
      SmallVector<Value> scores = waitForGroups(e, 0, startScores(queries, keyTile(ofKeys.stage)));
      release(ofKeys);
      SmallVector<Value> factors =
          softmax.apply(e, scores, tile.first, tile.isFull(), /*visible=*/{}, state,
                        [&](Value x, function_ref<Value(Value, Value)> combine) { return reduceLanes(e, x, combine); });
      SmallVector<Value> weights;
      for (int64_t i = 0, n = scores.size(); i < n; i += 2)
        weights.push_back(packWord(e, shape.element, scores[i], scores[i + 1]));
      ofValues.full.wait(e, ofValues.parity);
      if (!endsWithTensor)
        clearValues(tile.first, valueTile(ofValues.stage));
      SmallVector<Value> sums = waitForGroups(e, 0, startSums(weights, valueTile(ofValues.stage)));
      release(ofValues);
      // The step is accumulated apart from the accumulator, so that rounding errors do not grow with the number of
      // keys.
      for (int64_t i = 0, n = sums.size(); i < n; ++i)
        e.store(e.fma(e.load(state.acc, i), factors[i % 4 / 2], sums[i]), state.acc, i);
      nextStep();
    });
    softmax.clearRows(e, state);
  }

private:
  Value uniform(Value x) { return e.shuffleFrom(x, e.i32(0)); }

  SmallVector<Value> startScores(Value queries, Value tile) {
    SmallVector<std::pair<int64_t, int64_t>> offsets;
    for (int64_t k = 0; k < shape.depth; k += 16) {
      int64_t box = k / shape.boxColumns, inRow = k % shape.boxColumns * 2;
      offsets.push_back({box * shape.boxBytes(shape.rows) + inRow, box * shape.boxBytes(shape.keys()) + inRow});
    }
    return startProduct(e, shape.element, shape.keys(), queries, tileDescriptor(e, tile, /*leadingBytes=*/16), offsets);
  }

  SmallVector<Value> startSums(ValueRange weights, Value tile) {
    SmallVector<int64_t> offsets;
    for (int64_t k = 0; k < shape.keys(); k += 16)
      offsets.push_back(k * shape.boxRowBytes);
    Value values = tileDescriptor(e, tile, /*leadingBytes=*/shape.boxBytes(shape.keys()));
    return startProduct(e, shape.element, shape.valueTiles() * 8, weights, values, offsets);
  }

  /// Sets the rows of a tile that are not keys of this step to 0. They may be NaN, which a weight of 0 does not remove.
  void clearValues(Value first, Value tile) {
    Value count = e.toI32(rowsOf(op.getKey(), op.getKeyDims()));
    Value begin = e.sub(e.i32(0), first), end = e.sub(count, first);
    Value isWhole = e.andi(e.isAtMost(begin, e.i32(0)), e.isAtMost(e.i32(shape.keys()), end));
    constexpr int64_t vectorBytes = 16;
    int64_t threads = shape.warps * 32, bytes = shape.tileBytes(shape.keys(), shape.valueDepth);
    e.ifElse(
        isWhole, [] {},
        [&] {
          Value thread = e.add(e.thread(), -shape.firstWarp * 32);
          auto vector = VectorType::get({4}, e.b.getI32Type());
          Value zeros = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(vector));
          e.loop(e.mul(thread, vectorBytes), e.i32(bytes), threads * vectorBytes, [&](Value offset) {
            // The swizzle permutes the vectors of a row.
            Value row = e.rem(e.div(offset, shape.boxRowBytes), shape.keys());
            Value isKey = e.andi(e.isAtMost(begin, row), e.isLess(row, end));
            e.ifElse(
                isKey, [] {},
                [&] {
                  auto pointer = LLVM::LLVMPointerType::get(e.b.getContext(), sharedSpace);
                  Value at = LLVM::IntToPtrOp::create(e.b, e.loc, pointer, e.add(tile, offset));
                  LLVM::StoreOp::create(e.b, e.loc, zeros, at, /*alignment=*/vectorBytes);
                });
          });
          // wgmma of both warpgroups reads what threads have written.
          NVVM::FenceProxyOp::create(e.b, e.loc, NVVM::ProxyKind::async_shared,
                                     NVVM::SharedSpaceAttr::get(e.b.getContext(), NVVM::SharedSpace::shared_cta));
          NVVM::BarrierOp::create(e.b, e.loc, TypeRange{}, e.i32(consumerBarrier), e.i32(threads),
                                  NVVM::BarrierReductionAttr(), /*reductionPredicate=*/Value());
        });
  }

  /// One arrival of the warp, which has waited for its products.
  void release(const RingPlace &at) {
    e.ifElse(e.isEqual(e.rem(e.thread(), 32), e.i32(0)), [&] { at.empty.arrive(e); });
  }

  /// The named barrier of the warpgroups that compute; 0 is that of all threads.
  static constexpr int64_t consumerBarrier = 1;

  const PrivateState &state;
  Lane lane;
  bool endsWithTensor;
};

} // namespace

/// The op in the block of a role that contains `op`.
static Operation *topLevel(Operation *op, Block *block) { return block->findAncestorOpInBlock(*op); }

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

void device::emitAttentionItem(func::FuncOp kernel, AttentionState &state, const WarpgroupShape &shape) {
  Location loc = state.finalize.getLoc();
  Block *body = &kernel.getBody().front();
  OpBuilder b(body, body->begin());
  Emitter e{b, loc, b.getF32Type()};
  AccumulateOp step = state.steps.front();
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
  Value steps = memref::AllocaOp::create(b, loc, MemRefType::get({1}, b.getI32Type()));
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
  kernel->setAttr(threadsAttr, b.getI64IntegerAttr(shape.threads));

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
  NVVM::SetMaxRegisterOp::create(b, loc, shape.producerRegisters, NVVM::SetMaxRegisterAction::decrease);
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
  NVVM::SetMaxRegisterOp::create(b, loc, shape.consumerRegisters, NVVM::SetMaxRegisterAction::increase);
  b.setInsertionPoint(topLevel(step, computing));
  Mbarrier{e.add(shared, shape.barriers())}.wait(e, e.i32(0));
  b.setInsertionPoint(step);
  Consumer(e, step, shape, shared, steps, privateState, keysEndWithTensor).computeTiles();
  b.setInsertionPoint(state.finalize);
  finalizeRows(e, state.finalize, privateState, shape);
  state.erase();
}
