//===- GradientConsumer.cpp - A warpgroup of a gradient that computes ---------===//
//
// The accumulators of the products of a tile become operands in registers of the sums (FlashAttention-3; Shah et al.
// 2024): for the gradients of keys and values, scores are computed with keys as rows for this reason.
//
//===----------------------------------------------------------------------===//
#include "../LiveRanges.h"
#include "GradientRoles.h"
#include "WGMMA.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

using Shape = WarpgroupShape;

/// The first named barrier is that of all threads, the next one of those that compute, then that of each warpgroup.
static NamedBarrier barrierOfConsumers(Emitter &e) { return {e.i32(1), GradientLayout::computingThreads}; }
static NamedBarrier barrierOfGroup(Emitter &e, Value group) { return {e.add(group, 2), GradientLayout::groupThreads}; }

FragmentPlace GradientConsumer::locate() {
  // At this place and not before a loop, where it would take registers.
  Value thread = e.optimizationBarrier(threadInGroup()), lane = e.rem(thread, 32);
  return {e.add(e.mul(e.div(thread, 32), 16), e.div(lane, 4)), e.mul(e.rem(lane, 4), 2)};
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

void GradientConsumer::start() {
  for (Value memory : sums)
    e.storeAll(Values(cast<MemRefType>(memory.getType()).getDimSize(0), e.scalar(0.0)), memory);
  rowsFull().wait(e, e.i32(0));
}

void GradientConsumer::computeTiles() {
  Type type = e.b.getI32Type();
  auto tiles = scf::WhileOp::create(
      e.b, e.loc, TypeRange{type}, ValueRange{group()},
      [&](OpBuilder &, Location, ValueRange number) {
        RingPlace at = placeOf(number[0]);
        at.full.wait(e, at.parity);
        Value isTile = LLVM::LoadOp::create(e.b, e.loc, type, counter(at.stage, layout.loops.size()));
        scf::ConditionOp::create(e.b, e.loc, e.isEqual(isTile, e.i32(1)), number);
      },
      [&](OpBuilder &, Location, ValueRange number) {
        scf::YieldOp::create(e.b, e.loc, e.add(number[0], GradientLayout::consumers));
      });
  e.b.setInsertionPointToStart(tiles.getAfterBody());
  RingPlace at = placeOf(tiles.getAfterArguments()[0]);
  Values counters;
  for (size_t n = 0; n < layout.loops.size(); ++n)
    counters.push_back(e.toIndex(LLVM::LoadOp::create(e.b, e.loc, e.b.getI64Type(), counter(at.stage, n)).getResult()));
  moveStep(counters);
  computeTile(at);
  hideIndices(e, tiles);
  // The step, before which the loop was made, has moved into it.
  e.b.setInsertionPointAfter(tiles);
}

void GradientConsumer::moveStep(ValueRange counters) {
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitUsesFromAbove = false;
  options.omitBlockArguments = true;
  options.filter = [&](Operation *op) {
    return op == step.pairs || (step.outermost->isProperAncestor(op) && !op->isAncestor(step.pairs));
  };
  SetVector<Operation *> needed;
  auto need = [&](Operation *op) { (void)getBackwardSlice(op, &needed, options); };
  for (std::optional<GradientStep::Product> &input : step.inputs)
    if (input) {
      need(input->fill);
      need(input->op);
    }
  need(step.pairs);
  for (GradientStep::Sum &sum : step.sums)
    need(sum.op);
  for (Operation *op : needed)
    op->moveBefore(e.b.getInsertionBlock(), e.b.getInsertionPoint());
  for (auto [loop, count] : llvm::zip_equal(layout.loops, counters))
    scf::ForOp(loop).getInductionVar().replaceAllUsesWith(count);
}

void GradientConsumer::computeTile(const RingPlace &at) {
  auto [rows, columns] = extents();
  Value isWhole = e.isAtMost(e.index(GradientLayout::columns), columns);
  e.ifElse(isWhole, [] {}, [&, columns = columns] { clearEnd(at, columns); });
  for (int64_t first = 0; first < GradientLayout::columns; first += layout.partColumns)
    computePart(at, first, rows, columns);
  // One arrival of the warp, which has read the stage.
  NVVM::SyncWarpOp::create(e.b, e.loc, e.i32(-1));
  at.empty.arriveIf(e, e.isFirstLane());
}

void GradientConsumer::computePart(const RingPlace &at, int64_t first, Value rows, Value columns) {
  Values started;
  SmallVector<Values> products;
  for (std::optional<GradientStep::Product> &input : step.inputs) {
    products.push_back(input ? startProduct(*input, at.stage, first) : Values());
    llvm::append_range(started, products.back());
  }
  started = waitForGroups(e, 0, started);
  ArrayRef<Value> rest = started;
  for (Values &product : products) {
    size_t count = product.size();
    product = Values(rest.take_front(count));
    rest = rest.drop_front(count);
  }

  FragmentPlace place = locate();
  Value lastRow = e.toI32(e.add(rows, -1)), lastColumn = e.toI32(e.add(columns, -1));
  auto evaluate = [&](bool isWhole) {
    PairFragment fragment{place, first, layout.partColumns, lastRow, lastColumn};
    // Code for whole tiles shares no places with that for others: LLVM would compute them before both, all at once.
    if (isWhole)
      fragment.place = {e.optimizationBarrier(place.row), e.optimizationBarrier(place.column)};
    auto ofVector = [&](OpOperand &operand, int64_t offset) -> Value {
      auto vector = llvm::find_if(layout.vectors, [&](const auto &each) { return each.memref == operand.get(); });
      if (vector == layout.vectors.end())
        return {};
      Value start = vectorElement(*vector, at.stage, fragment.place.column);
      Value element = e.advance(start, e.b.getF32Type(), static_cast<int32_t>(offset));
      return LLVM::LoadOp::create(e.b, e.loc, e.b.getF32Type(), element, /*alignment=*/offset % 2 ? 4 : 8);
    };
    Values words;
    for (Values &each : fragment.evaluate(e, step, layout.used, products, isWhole, ofVector))
      llvm::append_range(words, each);
    return words;
  };
  Value isWhole = e.isAtMost(e.index(first + layout.partColumns), columns);
  Values words = e.choose(isWhole, [&] { return evaluate(true); }, [&] { return evaluate(false); });

  auto wordsOfResult = static_cast<size_t>(layout.partColumns / 4);
  Values added;
  for (auto [sum, memory] : llvm::zip_equal(step.sums, sums)) {
    size_t start = (llvm::find(layout.used, sum.result) - layout.used.begin()) * wordsOfResult;
    ArrayRef<Value> weights = ArrayRef(words).slice(start, wordsOfResult);
    llvm::append_range(added, startSum(sum, memory, at.stage, first, weights));
  }
  added = waitForGroups(e, 0, added);
  rest = added;
  for (Value memory : sums) {
    auto count = static_cast<size_t>(cast<MemRefType>(memory.getType()).getDimSize(0));
    e.storeAll(rest.take_front(count), memory);
    rest = rest.drop_front(count);
  }
}

SmallVector<Value> GradientConsumer::startProduct(GradientStep::Product &product, Value stage, int64_t first) {
  SmallVector<std::pair<int64_t, int64_t>> offsets;
  for (int64_t k = 0; k < product.row.columns; k += 16) {
    int64_t offset = k / Shape::boxColumns * Shape::boxBytes(GradientLayout::rows) + k % Shape::boxColumns * 2;
    offsets.push_back({offset, offset});
  }
  Value columns = e.add(columnTile(product.column, stage), first * Shape::boxRowBytes);
  return device::startProduct(e, step.element, layout.partColumns,
                              tileDescriptor(e, rowTile(product.row), /*leadingBytes=*/16),
                              tileDescriptor(e, columns, /*leadingBytes=*/16), offsets, Advance::Whole);
}

SmallVector<Value> GradientConsumer::startSum(GradientStep::Sum &sum, Value memory, Value stage, int64_t first,
                                              ValueRange words) {
  SmallVector<int64_t> offsets;
  for (int64_t k = first; k < first + layout.partColumns; k += 16)
    offsets.push_back(k * Shape::boxRowBytes);
  Value tile = tileDescriptor(e, columnTile(sum.column, stage), Shape::boxBytes(GradientLayout::columns));
  return addProduct(e, step.element, e.loadAll(memory), words, tile, offsets, Advance::Whole);
}

void GradientConsumer::clearEnd(const RingPlace &at, Value columns) {
  Value end = e.toI32(columns), thread = threadInGroup();
  for (const GradientLayout::Tile &tile : layout.columnTiles)
    if (llvm::any_of(step.sums, [&](const GradientStep::Sum &sum) { return sum.column == tile.matrix; }))
      clearTileRows(e, columnTile(tile.matrix, at.stage), GradientLayout::columns,
                    GradientLayout::tileBytes(tile.matrix), thread, GradientLayout::groupThreads,
                    [&](Value row) { return e.isLess(row, end); });
  // wgmma of all warps of the warpgroup reads what threads have written.
  fenceAsyncProxy(e);
  barrierOfGroup(e, group()).wait(e);
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void GradientConsumer::fill(linalg::FillOp op) {
  Value memref = op.getDpsInits()[0], count = e.i32(1);
  Values sizes;
  for (int64_t dim = 0, rank = cast<MemRefType>(memref.getType()).getRank(); dim < rank; ++dim) {
    sizes.push_back(e.toI32(e.size(memref, dim)));
    count = e.mul(count, sizes.back());
  }
  e.loop(thread(), count, GradientLayout::computingThreads, [&](Value rest) {
    Values position(sizes.size());
    for (size_t dim = sizes.size(); dim-- > 0; rest = e.div(rest, sizes[dim]))
      position[dim] = e.toIndex(dim ? e.rem(rest, sizes[dim]) : rest);
    e.storeShared(op.getInputs()[0], memref, position);
  });
}

Value GradientConsumer::exchanged(unsigned n) {
  int64_t offset = layout.firstStage();
  for (const GradientStep::Sum &sum : ArrayRef(step.sums).take_front(n))
    offset += GradientLayout::rows * sum.column.columns * 4;
  return e.sharedPointer(e.add(e.add(shared, offset), e.mul(threadInGroup(), 4)));
}

void GradientConsumer::exchangeSums() {
  // All warpgroups have read their stages.
  barrierOfConsumers(e).wait(e);
  for (auto [n, memory] : llvm::enumerate(sums))
    e.ifElse(
        isOwner(n), [] {},
        [&, n = n, memory = memory] {
          Value first = exchanged(n);
          for (auto [i, value] : llvm::enumerate(e.loadAll(memory)))
            LLVM::StoreOp::create(
                e.b, e.loc, value,
                e.advance(first, e.b.getF32Type(), static_cast<int32_t>(i * GradientLayout::groupThreads)));
        });
  barrierOfConsumers(e).wait(e);
}

void GradientConsumer::storeSum(unsigned n) {
  e.ifElse(isOwner(n), [&] {
    Value first = exchanged(n);
    for (int64_t i = 0, count = cast<MemRefType>(sums[n].getType()).getDimSize(0); i < count; ++i) {
      Value at = e.advance(first, e.b.getF32Type(), static_cast<int32_t>(i * GradientLayout::groupThreads));
      Value other = LLVM::LoadOp::create(e.b, e.loc, e.b.getF32Type(), at);
      e.store(e.addf(e.load(sums[n], i), other), sums[n], i);
    }
  });
  for (linalg::GenericOp store : step.sums[n].stores) {
    OpBuilder::InsertionGuard guard(e.b);
    e.b.setInsertionPoint(store);
    e.ifElse(isOwner(n), [&] { storeFragment(e, store, sums[n], locate()); });
  }
}
