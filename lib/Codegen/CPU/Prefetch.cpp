//===- Prefetch.cpp - Prefetching the next tile -------------------------------===//
//
// The operands of the next step are computed by cloning the computation of the current ones with other loop counters.
//
//===----------------------------------------------------------------------===//
#include "Prefetch.h"
#include "Microkernel.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"

using namespace mlir;
using namespace saccade::cpu;

/// The loop over the work items of the task around `op`, or null.
static scf::ForOp findItems(Operation *op) {
  auto task = op->getParentOfType<func::FuncOp>();
  if (!task || !task->hasAttr("attn.task") || task.getNumArguments() < 3)
    return nullptr;
  // Its last arguments are begin, end and scratch memory.
  Value begin = task.getArguments().drop_back(2).back();
  for (auto loop = op->getParentOfType<scf::ForOp>(); loop; loop = loop->getParentOfType<scf::ForOp>())
    if (loop.getLowerBound() == begin)
      return loop;
  return nullptr;
}

NextStep::NextStep(Emitter &e, Operation *op, bool isNested) : e(e) {
  items = findItems(op);
  auto loop = op->getParentOfType<scf::ForOp>();
  if (!loop)
    return;
  for (; loop && loop != items; loop = loop->getParentOfType<scf::ForOp>())
    tiles.push_back(loop);
  if (!isNested && items && tiles.size() > 1)
    return;
  if (!isNested && tiles.size() > 1)
    tiles.resize(1);
  Value yes = arith::ConstantOp::create(e.b, e.loc, e.b.getBoolAttr(true));
  Value no = arith::ConstantOp::create(e.b, e.loc, e.b.getBoolAttr(false));
  auto advanced = [&](scf::ForOp loop) {
    return e.b.createOrFold<arith::AddIOp>(e.loc, loop.getInductionVar(), loop.getStep());
  };
  Value hasTile = no, hasItem = no;
  isNewItem = yes;
  // Whether the loops inside of each one are at their ends, its next counter, and whether it has one.
  SmallVector<Value> isAtEnd, nextTiles, isWithin;
  for (scf::ForOp tile : tiles) {
    isAtEnd.push_back(isNewItem);
    nextTiles.push_back(advanced(tile));
    isWithin.push_back(e.isLess(nextTiles.back(), tile.getUpperBound()));
    Value moves = e.b.createOrFold<arith::AndIOp>(e.loc, isNewItem, isWithin.back());
    hasTile = e.b.createOrFold<arith::OrIOp>(e.loc, hasTile, moves);
    isNewItem = e.select(isWithin.back(), no, isNewItem);
  }
  if (items) {
    // The last item has no successor; its own index keeps views in bounds.
    Value item = advanced(items);
    hasItem = e.isLess(item, items.getUpperBound());
    Value isNext = e.b.createOrFold<arith::AndIOp>(e.loc, isNewItem, hasItem);
    next.map(items.getInductionVar(), e.select(isNext, item, items.getInductionVar()));
  }
  for (auto [tile, atEnd, nextTile, within] : llvm::reverse(llvm::zip_equal(tiles, isAtEnd, nextTiles, isWithin))) {
    Value first = clone(tile.getLowerBound()), end = clone(tile.getUpperBound());
    if (!first || !end)
      return;
    next.map(tile.getInductionVar(), e.select(atEnd, e.select(within, nextTile, first), tile.getInductionVar()));
  }
  exists = e.b.createOrFold<arith::OrIOp>(e.loc, hasTile, hasItem);
}

/// Clones `value` for the next step. Null unless it consists of arithmetic, views and loads of memory from outside the
/// loops.
Value NextStep::clone(Value value) {
  if (Value known = next.lookupOrNull(value))
    return known;
  Operation *outermost = items ? items : tiles.back();
  Operation *op = value.getDefiningOp();
  if (!outermost->isAncestor(value.getParentBlock()->getParentOp()))
    return value;
  if (!op) {
    auto loop = dyn_cast<scf::ForOp>(value.getParentBlock()->getParentOp());
    bool isInside = loop && loop != outermost && loop.getInductionVar() == value;
    Value first = isInside ? clone(loop.getLowerBound()) : Value();
    if (first)
      next.map(value, first);
    return first;
  }
  if (op->getNumRegions() != 0)
    return nullptr;
  auto load = dyn_cast<memref::LoadOp>(op);
  if (load ? outermost->isAncestor(load.getMemRef().getParentBlock()->getParentOp()) : !isMemoryEffectFree(op))
    return nullptr;
  for (Value operand : op->getOperands())
    if (!clone(operand))
      return nullptr;
  Operation *copy = e.b.clone(*op, next);
  for (auto [old, fresh] : llvm::zip(op->getResults(), copy->getResults()))
    next.map(old, fresh);
  return next.lookup(value);
}

Value NextStep::view(Value operand) {
  Value result = exists ? clone(operand) : Value();
  return result == operand ? Value() : result;
}

/// Into L2: L1 would evict the line before its use, and its few miss buffers are needed by the current step. On Zen 4,
/// prefetching into L1 costs up to 10 % of attention and 30 % of decode.
void saccade::cpu::emitPrefetchAt(Emitter &e, Value memref, ValueRange at, bool isWrite) {
  memref::PrefetchOp::create(e.b, e.loc, memref, at, isWrite, /*localityHint=*/2, /*isDataCache=*/true);
}

void saccade::cpu::emitPrefetch(Emitter &e, Value matrix, Value row, Value column, bool isWrite) {
  emitPrefetchAt(e, matrix, {row, column}, isWrite);
}

/// Whether a view is one of memory that the task allocates.
static bool isScratch(Value view) {
  while (auto producer = view.getDefiningOp<ViewLikeOpInterface>())
    view = producer.getViewSource();
  return view.getDefiningOp<memref::AllocOp>() != nullptr;
}

/// Clones the views and the arithmetic of `value` that follow `op` in its block. Null if there is another op.
static Value cloneBefore(Emitter &e, Operation *op, Value value, IRMapping &clones) {
  if (Value known = clones.lookupOrNull(value))
    return known;
  Operation *producer = value.getDefiningOp();
  if (!producer || producer->getBlock() != op->getBlock() || producer->isBeforeInBlock(op))
    return value;
  if (!isMemoryEffectFree(producer) || producer->getNumRegions() != 0)
    return nullptr;
  for (Value operand : producer->getOperands()) {
    Value clone = cloneBefore(e, op, operand, clones);
    if (!clone)
      return nullptr;
    clones.map(operand, clone);
  }
  return e.b.clone(*producer, clones)->getResult(cast<OpResult>(value).getResultNumber());
}

/// `matrix` and the views of its first rows and columns.
static SmallVector<Value> viewsOfFirst(Value matrix) {
  SmallVector<Value> views = {matrix};
  for (Operation *user : matrix.getUsers())
    if (auto view = dyn_cast<memref::SubViewOp>(user); view && view.getType().getRank() == 2 &&
                                                       llvm::all_of(view.getMixedOffsets(), isZeroInteger) &&
                                                       llvm::all_of(view.getMixedStrides(), isOneInteger))
      views.push_back(view);
  return views;
}

SmallVector<Value> saccade::cpu::emitEpilogueMatrices(Emitter &e, Operation *op, Value result,
                                                      llvm::DenseSet<Operation *> *done) {
  SmallVector<Value> matrices, views = viewsOfFirst(result);
  IRMapping clones;
  llvm::SetVector<Operation *> users;
  for (Value view : views)
    users.insert_range(view.getUsers());
  for (Operation *user : users) {
    auto epilogue = dyn_cast<linalg::LinalgOp>(user);
    if (!epilogue || user == op || user->getBlock() != op->getBlock() || user->isBeforeInBlock(op) ||
        epilogue.getNumLoops() != 2 || epilogue.getNumParallelLoops() != 2)
      continue;
    auto isAtElement = [&](OpOperand &operand) { return epilogue.getMatchingIndexingMap(&operand).isIdentity(); };
    if (!llvm::all_of(user->getOpOperands(),
                      [&](OpOperand &each) { return !llvm::is_contained(views, each.get()) || isAtElement(each); }))
      continue;
    if (done && !done->insert(user).second)
      continue;
    for (OpOperand &operand : user->getOpOperands())
      if (isa<MemRefType>(operand.get().getType()) && isAtElement(operand) && !isScratch(operand.get()))
        if (Value matrix = cloneBefore(e, op, operand.get(), clones))
          matrices.push_back(matrix);
  }
  return matrices;
}

static bool hasMatmulAfter(Operation *op) {
  for (Operation *next = op->getNextNode(); next; next = next->getNextNode())
    if (next->walk([](Operation *each) {
              return each->hasAttr(saccade::tileMatmulAttr) ? WalkResult::interrupt() : WalkResult::advance();
            })
            .wasInterrupted())
      return true;
  return false;
}

/// The matrices that the next step of loop `step` copies, in itself or in loops inside of it, or converts, and those of
/// `multiplied` that are views in it, in `parts` parts. `inner`, an op or loop of the step, is not visited.
static NextMatrices emitNextMatricesOf(Emitter &e, scf::ForOp step, Operation *inner, int64_t parts,
                                       ArrayRef<Value> multiplied) {
  NextMatrices next;
  SmallVector<linalg::LinalgOp> copies;
  auto visit = [&](linalg::LinalgOp copy) {
    bool isCopy = isa<linalg::CopyOp>(copy) || copy->getBlock() == step.getBody();
    if (isCopy && copy.getNumDpsInputs() == 1 && copy.getNumDpsInits() == 1 && copy.getNumParallelLoops() == 2)
      copies.push_back(copy);
  };
  for (Operation &each : *step.getBody())
    if (&each != inner)
      each.walk(visit);
  std::optional<NextStep> following;
  auto addView = [&](Value from, Operation *user, int64_t rows) {
    auto type = dyn_cast<MemRefType>(from.getType());
    if (!type || type.getRank() != 2 || type.isDynamicDim(1) || isScratch(from) || ShapedType::isDynamic(rows))
      return;
    if (!following)
      following.emplace(e, step.getBody()->findAncestorOpInBlock(*user), /*isNested=*/true);
    if (Value view = following->view(from)) {
      next.views.push_back(view);
      int64_t bits = type.getElementTypeBitWidth();
      int64_t lines = llvm::divideCeil(type.getDimSize(1) * bits, cacheLine * 8) * rows;
      next.share = std::max<int64_t>(next.share, llvm::divideCeil(lines, parts));
    }
  };
  for (linalg::LinalgOp copy : copies)
    if (auto whole = dyn_cast<MemRefType>(getBaseMemory(copy.getDpsInits()[0]).getType());
        whole && whole.hasStaticShape())
      addView(copy.getDpsInputs()[0], copy, whole.getDimSize(0));
  for (Value matrix : multiplied)
    if (auto type = dyn_cast<MemRefType>(matrix.getType());
        type && type.getRank() == 2 && matrix.getParentBlock() == step.getBody())
      addView(matrix, step.getBody()->getTerminator(), type.getDimSize(0));
  return next;
}

SmallVector<NextMatrices> saccade::cpu::emitNextMatrices(Emitter &e, Operation *op, int64_t parts,
                                                         ArrayRef<Value> multiplied) {
  SmallVector<NextMatrices> found;
  scf::ForOp items = findItems(op);
  // The number of `op` among its runs in a step of each loop.
  Value number = e.index(0);
  int64_t runs = 1;
  Operation *inner = op;
  for (auto step = dyn_cast<scf::ForOp>(op->getParentOp()); step && step != items && !hasMatmulAfter(inner);
       inner = step, step = dyn_cast<scf::ForOp>(step->getParentOp())) {
    NextMatrices next = emitNextMatricesOf(e, step, inner, parts * runs, multiplied);
    next.firstPart = e.mul(number, parts);
    if (!next.views.empty())
      found.push_back(next);
    std::optional<APInt> trips = step.getStaticTripCount();
    if (!trips || !isConstantIntValue(step.getLowerBound(), 0) || !isOneInteger(step.getStep()))
      break;
    number = e.add(e.mul(step.getInductionVar(), runs), number);
    runs *= trips->getSExtValue();
  }
  return found;
}

/// The most lines of a part that are prefetched without a loop, whose mispredicted end costs more than a few of them.
static constexpr int64_t maxUnrolledLines = 8;

void saccade::cpu::emitPrefetchPart(Emitter &e, const NextMatrices &next, Value part) {
  Value first = e.mul(e.add(next.firstPart, part), next.share);
  for (Value matrix : next.views) {
    auto type = cast<MemRefType>(matrix.getType());
    int64_t width = cacheLine * 8 / type.getElementTypeBitWidth(), lines = llvm::divideCeil(type.getDimSize(1), width);
    auto prefetchLine = [&](Value line) {
      Value row = e.div(line, lines);
      emitPrefetch(e, matrix, row, e.mul(e.sub(line, e.mul(row, lines)), width));
    };
    if (next.share > maxUnrolledLines) {
      e.loop(first, e.add(first, next.share), 1, prefetchLine);
      continue;
    }
    for (int64_t i = 0; i < next.share; ++i)
      prefetchLine(e.add(first, i));
  }
}

void saccade::cpu::emitPrefetchBlock(Emitter &e, Value matrix, Value row, Value column, int64_t rows, int64_t columns) {
  Type element = cast<MemRefType>(matrix.getType()).getElementType();
  int64_t width = cacheLine * 8 / (element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 64);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; c += width)
      emitPrefetchAt(e, matrix, {e.add(row, r), e.add(column, c)}, /*isWrite=*/false);
}

void saccade::cpu::emitPrefetchPanel(Emitter &e, Value panels, Value panel, Value begin, int64_t count) {
  auto type = cast<MemRefType>(panels.getType());
  int64_t width = cacheLine * 8 / type.getElementTypeBitWidth();
  // The lines have constant distances from the first one, so that their addresses take no instructions.
  SmallVector<OpFoldResult> ones(3, e.b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = {ones[0], e.b.getIndexAttr(count), e.b.getIndexAttr(type.getDimSize(2))};
  Value lines = memref::SubViewOp::create(e.b, e.loc, panels, getAsOpFoldResult(ValueRange{panel, begin, e.index(0)}),
                                          sizes, ones);
  for (int64_t row = 0; row < count; ++row)
    for (int64_t column = 0; column < type.getDimSize(2); column += width)
      emitPrefetchAt(e, lines, {e.index(0), e.index(row), e.index(column)}, /*isWrite=*/false);
}

void saccade::cpu::emitPrefetchRows(Emitter &e, Value matrix, Value begin, Value end, bool isWrite) {
  auto type = cast<MemRefType>(matrix.getType());
  int64_t width = cacheLine * 8 / type.getElementTypeBitWidth();
  e.loop(begin, end, 1, [&](Value row) {
    for (int64_t column = 0; column < type.getDimSize(1); column += width)
      emitPrefetch(e, matrix, row, e.index(column), isWrite);
  });
}
