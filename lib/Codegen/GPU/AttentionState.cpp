//===- AttentionState.cpp - The softmax states of a kernel --------------------===//
//
// After bufferization a state is a set of buffers that several ops access. Kernels keep each thread's part in private
// memory with constant indices, which LLVM promotes to registers.
//
//===----------------------------------------------------------------------===//
#include "AttentionState.h"
#include "ComputedRows.h"
#include "KernelFamily.h"
#include "OutputEpilogue.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "saccade/Support/Kernels.h"
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

Type AttentionState::element() const {
  return steps.empty() ? Type() : getElementTypeOrSelf(AccumulateOp(steps.front()).getQuery());
}
FloatType AttentionState::accumulatorType() const {
  return cast<FloatType>(memref::AllocOp(acc).getType().getElementType());
}
int64_t AttentionState::depth() const {
  AccumulateOp step = steps.front();
  return getStaticDimSize(step.getKey(), step.getKeyDims(), Dim::Depth);
}
int64_t AttentionState::valueDepth() const {
  FinalizeOp end = finalize;
  return getStaticDimSize(end.getOutput(), end.getOutputDims(), Dim::Depth);
}
int64_t AttentionState::rows() const { return cast<MemRefType>(memref::AllocOp(acc).getType()).getDimSize(0); }

/// Returns the buffer that `value` is or is a subview of.
static memref::AllocOp bufferOf(Value value) {
  if (auto view = value.getDefiningOp<memref::SubViewOp>())
    value = view.getSource();
  return value.getDefiningOp<memref::AllocOp>();
}

/// Buffers up to this size are initialized by unrolled stores. The accumulator, which is promoted to registers, is not
/// larger.
static constexpr int64_t maxUnrolled = 256;

namespace {

/// Collects the buffers and ops of a state.
class Collector {
public:
  explicit Collector(AttentionState &state) : state(state) {}

  LogicalResult run() {
    for (Value part : state.finalize->getOperands().take_front(3 + state.finalize.getOthers().size()))
      add(part);
    // `collect` may append buffers.
    for (unsigned i = 0; i < state.buffers.size(); ++i)
      if (failed(collect(state.buffers[i])))
        return failure();
    auto isBefore = [](AccumulateOp x, AccumulateOp y) {
      Operation *ancestor = x->getParentOfType<func::FuncOp>().getBody().front().findAncestorOpInBlock(*x);
      Operation *other = y->getParentOfType<func::FuncOp>().getBody().front().findAncestorOpInBlock(*y);
      return ancestor->isBeforeInBlock(other);
    };
    llvm::sort(state.steps, isBefore);
    return success();
  }

private:
  void add(Value value) {
    memref::AllocOp buffer = bufferOf(value);
    if (buffer && !llvm::is_contained(state.buffers, buffer))
      state.buffers.push_back(buffer);
  }

  LogicalResult collect(memref::AllocOp buffer) {
    for (Operation *user : buffer->getUsers()) {
      if (auto view = dyn_cast<memref::SubViewOp>(user)) {
        for (Operation *inner : view->getUsers())
          if (failed(collectInit(inner)))
            return failure();
      } else if (auto step = dyn_cast<AccumulateOp>(user)) {
        if (!llvm::is_contained(state.steps, step))
          state.steps.push_back(step);
        for (Value part : step.getDpsInits())
          add(part);
      } else if (isa<FinalizeOp>(user)) {
        if (user != state.finalize)
          return user->emitOpError("finalizes a part of another state, which is not supported on GPUs");
      } else if (failed(collectInit(user))) {
        return failure();
      }
    }
    return success();
  }

  LogicalResult collectInit(Operation *user) {
    if (!isa<linalg::FillOp, linalg::CopyOp>(user))
      return user->emitOpError("modifies a state of attention, which is not supported on GPUs");
    auto init = cast<linalg::LinalgOp>(user);
    if (!llvm::is_contained(state.inits, init))
      state.inits.push_back(init);
    for (Value operand : user->getOperands())
      add(operand);
    return success();
  }

  AttentionState &state;
};

} // namespace

FailureOr<SmallVector<AttentionState>> device::findStates(func::FuncOp kernel,
                                                          function_ref<bool(const AttentionState &)> fits) {
  SmallVector<FinalizeOp> ends;
  kernel.walk([&](FinalizeOp op) { ends.push_back(op); });
  SmallVector<AttentionState> states;
  for (FinalizeOp end : ends) {
    OutputEpilogue::join(end);
    AttentionState state;
    state.finalize = end;
    state.acc = end.getAcc().getDefiningOp<memref::AllocOp>();
    state.max = end.getMax().getDefiningOp<memref::AllocOp>();
    state.sum = end.getSum().getDefiningOp<memref::AllocOp>();
    if (!state.acc || !state.max || !state.sum)
      return end.emitOpError("finalizes a state that its kernel does not allocate, which is not supported on GPUs");
    if (failed(Collector(state).run()))
      return failure();
    if (fits(state))
      states.push_back(std::move(state));
  }
  return states;
}

namespace {

/// Emits the initialization of one thread's part of a state, at each op of `inits`.
class Initializer {
public:
  Initializer(const ThreadRows &rows, const AttentionState &state, const llvm::DenseMap<Operation *, Value> &parts)
      : rows(rows), max(state.max), sum(state.sum), isNatural(FinalizeOp(state.finalize).getNaturalMax()),
        parts(parts) {}

  void run(linalg::LinalgOp init) {
    memref::AllocOp buffer = bufferOf(init.getDpsInits()[0]);
    Value to = parts.lookup(buffer);
    if (!to)
      return;
    OpBuilder b(init);
    Type element = cast<MemRefType>(to.getType()).getElementType();
    Emitter e{b, init.getLoc(), isa<FloatType>(element) ? cast<FloatType>(element) : b.getF32Type()};
    Value from = init.getDpsInputs()[0];
    if (isa<MemRefType>(from.getType()))
      from = parts.lookup(bufferOf(from));
    auto view = init.getDpsInits()[0].getDefiningOp<memref::SubViewOp>();
    bool isFirstThreadOnly = buffer == sum && rows.isFirst;
    int64_t count = cast<MemRefType>(to.getType()).getDimSize(0);
    // Bins are indexed dynamically, so they stay in memory and need no unrolling.
    if (count > maxUnrolled && !view && !isFirstThreadOnly && !isa<MemRefType>(from.getType()))
      return (void)e.loop(e.index(0), e.index(count), 1, [&](Value i) { e.store(from, to, {i}); });
    for (int64_t i = 0; i < count; ++i) {
      Value value = isa<MemRefType>(from.getType()) ? e.load(from, i) : from;
      if (isFirstThreadOnly)
        value = e.select(rows.isFirst(e), value, arith::ConstantOp::create(b, e.loc, b.getZeroAttr(value.getType())));
      if (view) {
        assert(count == rows.count && "only per-row buffers are initialized partially");
        Value isInside = e.isLess(rows.rowAt(e, i), e.size(view, 0));
        // The sum of a sink, whose maximum has been set, is relative to the rounded exponent of a natural maximum.
        if (buffer == sum && isNatural)
          value = fromRounded(e, isNatural, e.load(parts.lookup(max), i), value, /*isInverse=*/true);
        value = e.select(isInside, value, e.load(to, i));
      }
      e.store(value, to, i);
    }
  }

private:
  const ThreadRows &rows;
  memref::AllocOp max, sum;
  bool isNatural;
  const llvm::DenseMap<Operation *, Value> &parts;
};

} // namespace

PrivateState AttentionState::privatize(StringRef family, int64_t accElements, const ThreadRows &rows) {
  auto kernel = acc->getParentOfType<func::FuncOp>();
  std::string name = steps.empty() ? family.str() : nameFamily(family, steps.front());
  kernel->setAttr(familyAttr, StringAttr::get(kernel.getContext(), name));
  OpBuilder b = OpBuilder::atBlockBegin(&kernel.getBody().front());
  llvm::DenseMap<Operation *, Value> parts;
  for (memref::AllocOp buffer : buffers) {
    MemRefType type = buffer.getType();
    bool isTally = type.getRank() == 2 && buffer != acc;
    int64_t count = buffer == acc ? accElements : isTally ? rows.count * type.getDimSize(1) : rows.count;
    // A tally accumulator that is not an operand of finalize is dead.
    if (isTally && !llvm::is_contained(finalize.getOthers(), buffer.getResult()))
      continue;
    parts[buffer] = memref::AllocaOp::create(b, acc.getLoc(), MemRefType::get({count}, type.getElementType()));
  }
  for (linalg::LinalgOp init : inits)
    Initializer(rows, *this, parts).run(init);
  PrivateState result;
  result.acc = parts.lookup(acc), result.max = parts.lookup(max), result.sum = parts.lookup(sum);
  auto partOf = [&](Value value) { return value ? parts.lookup(bufferOf(value)) : Value(); };
  for (Value other : finalize.getOthers())
    result.others.push_back(partOf(other));
  if (steps.empty())
    return result;
  AccumulateOp first = steps.front();
  for (Value tally : first.getTallies())
    result.tallies.push_back(partOf(tally));
  result.rowMax = partOf(first.getRowMax());
  result.argmax = partOf(first.getArgmax());
  return result;
}

std::string device::nameFamily(StringRef family, AccumulateOp step) {
  // Tiles of keys and values that are not in memory, and the tiles that these are computed from.
  SmallVector<Value> tiles = {step.getKey(), step.getValue()};
  bool isComputed = false, isPaged = false;
  for (unsigned i = 0; i < tiles.size(); ++i) {
    isPaged |= bool(findPages(tiles[i]));
    if (linalg::GenericOp op = findComputation(tiles[i])) {
      isComputed = true;
      llvm::append_range(tiles, op.getDpsInputs());
    }
  }
  return (family + (isPaged ? ", in pages" : "") + (isComputed ? ", computed on load" : "")).str();
}

void device::eraseStep(AccumulateOp op) {
  Value key = op.getKey(), value = op.getValue();
  op.erase();
  eraseWriter(key);
  if (value != key)
    eraseWriter(value);
}

void AttentionState::erase() {
  llvm::SmallSetVector<Operation *, 8> views;
  for (memref::AllocOp buffer : buffers)
    for (Operation *user : buffer->getUsers())
      if (isa<memref::SubViewOp>(user))
        views.insert(user);
  for (linalg::LinalgOp init : inits)
    init->erase();
  for (Operation *view : views)
    view->erase();
  for (AccumulateOp step : steps)
    eraseStep(step);
  finalize.erase();
  for (memref::AllocOp buffer : buffers)
    buffer.erase();
}

void device::mergeSections(AccumulateOp step) {
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

FailureOr<size_t> device::lowerAttentions(func::FuncOp kernel, const KernelFamily &family) {
  FailureOr<SmallVector<AttentionState>> states =
      findStates(kernel, [&](const AttentionState &state) { return family.fits(state); });
  if (failed(states))
    return failure();
  for (AttentionState &state : *states)
    if (failed(family.emit(kernel, state)))
      return failure();
  return states->size();
}

bool device::hasStateInMemory(func::FuncOp kernel) {
  bool isInMemory = false, isPrivate = false;
  kernel.walk([&](Operation *op) {
    if (auto step = dyn_cast<AccumulateOp>(op))
      (step.getUnpacked() ? isInMemory : isPrivate) = true;
    else if (auto end = dyn_cast<FinalizeOp>(op))
      isInMemory |= !end.getAcc().getDefiningOp<memref::AllocOp>();
    else
      isInMemory |= isa<MergeOp>(op);
  });
  return isInMemory && !isPrivate;
}

PrivateState device::emptyPrivateState(Emitter &e, func::FuncOp kernel, AccumulateOp op, int64_t accElements,
                                       int64_t rows) {
  auto filled = [&](int64_t count, TypedAttr value) {
    OpBuilder atStart = OpBuilder::atBlockBegin(&kernel.getBody().front());
    Value memory = memref::AllocaOp::create(atStart, e.loc, MemRefType::get({count}, value.getType()));
    Value scalar = arith::ConstantOp::create(e.b, e.loc, value);
    // Bins are indexed dynamically, so they stay in memory and need no unrolling.
    if (count > maxUnrolled)
      e.loop(e.index(0), e.index(count), 1, [&](Value i) { e.store(scalar, memory, {i}); });
    else
      for (int64_t i = 0; i < count; ++i)
        e.store(scalar, memory, i);
    return memory;
  };
  TypedAttr zero = e.b.getFloatAttr(e.type, 0.0);
  TypedAttr minusInfinity = e.b.getFloatAttr(e.type, -std::numeric_limits<double>::infinity());
  PrivateState state;
  state.acc = filled(accElements, zero);
  state.max = filled(rows, minusInfinity);
  state.sum = filled(rows, zero);
  for (Value tally : op.getTallies())
    state.tallies.push_back(filled(rows * cast<MemRefType>(tally.getType()).getDimSize(1), zero));
  if (op.getRowMax())
    state.rowMax = filled(rows, minusInfinity);
  if (op.getArgmax())
    state.argmax = filled(rows, e.b.getI64IntegerAttr(-1));
  return state;
}

std::pair<Value, Value> device::reduceMax(Emitter &e, Value max, Value position, int64_t threads) {
  for (int64_t mask = 1; mask < threads; mask *= 2) {
    Value other = e.shuffleXor(max, mask);
    if (position) {
      Value otherPosition = e.shuffleXor(position, mask);
      Value isEqual = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, other, max);
      Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, other, max);
      Value isEarlier = e.compare(arith::CmpIPredicate::slt, otherPosition, position);
      Value takesOther = arith::OrIOp::create(e.b, e.loc, isLarger, e.andi(isEqual, isEarlier));
      position = e.select(takesOther, otherPosition, position);
    }
    max = e.maxf(max, other);
  }
  return {max, position};
}

std::pair<Value, Value> device::reduceRowMax(Emitter &e, const PrivateState &state, int64_t row, int64_t threads) {
  Value max = e.load(state.rowMax, row), position = state.argmax ? e.load(state.argmax, row) : Value();
  return reduceMax(e, max, position, threads);
}

Value device::fromRounded(Emitter &e, bool isNatural, Value max, Value x, bool isInverse) {
  if (!isNatural)
    return x;
  Value error = emitRoundingError(e, max);
  return e.mulf(x, e.exp2(isInverse ? arith::NegFOp::create(e.b, e.loc, error).getResult() : error));
}

LseResults::LseResults(Emitter &e, FinalizeOp op) : op(op) {
  if (op.getLse())
    lse.emplace(e, op.getLse());
  if (op.getLseLow())
    low.emplace(e, op.getLseLow());
}

void LseResults::store(Emitter &e, Value row, Value max, Value sum, bool isRounded) {
  auto storeIn = [&](const GlobalMatrix &matrix, Value x) {
    LLVM::StoreOp::create(e.b, e.loc, x, matrix.address(e, row, e.index(0)));
  };
  if (!op.getNaturalMax())
    return storeIn(*lse, emitLogSumExp(e, max, sum));
  Value log = e.log(sum);
  if (isRounded)
    log = e.fma(emitRoundingError(e, max), e.scalar(std::numbers::ln2), log);
  LogSumExp result = emitNaturalLogSumExp(e, max, log);
  storeIn(*lse, result.lse);
  if (low)
    storeIn(*low, result.low);
}

void device::mergeRowMax(Emitter &e, const State &state, Value row, Value rowMax, Value argmax) {
  Value before = e.load(state.rowMax, {row});
  Value isLarger = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OGT, rowMax, before);
  e.storeShared(e.select(isLarger, rowMax, before), state.rowMax, {row});
  if (argmax)
    e.storeShared(e.select(isLarger, argmax, e.load(state.argmax, {row})), state.argmax, {row});
}
