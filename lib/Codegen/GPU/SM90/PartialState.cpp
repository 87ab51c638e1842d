//===- PartialState.cpp - Items of split-KV on sm_90a -------------------------===//
//
// Queries are copied by the threads that compute: no tensor map describes the rows of several heads, since their number
// and that of the queries are known at run time only.
//
//===----------------------------------------------------------------------===//
#include "PartialState.h"
#include "../ComputedRows.h"
#include "../OutputEpilogue.h"
#include "Ring.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::device;

static constexpr int64_t vectorBytes = 16, vectorElements = 8;
static constexpr int64_t wordsOfVector = vectorBytes / 4;
/// Lanes of a warp, and columns of a tile of the accumulator, in which a thread holds two adjacent elements of each of
/// two rows.
static constexpr int64_t warpLanes = 32, tileColumns = 8, threadElements = 2;
/// Vectors of a row of a box.
static constexpr int64_t vectors = WarpgroupShape::boxRowBytes / vectorBytes;

/// The only op that initializes the accumulator of `step`; null if there are others, or it is not filled with zeros.
static linalg::FillOp findAccumulatorFill(AccumulateOp step) {
  linalg::FillOp fill;
  for (Operation *user : step.getAcc().getUsers()) {
    if (user == step || isa<memref::SubViewOp>(user))
      continue;
    if (fill || !isa<linalg::FillOp>(user) || user->getBlock() != step->getBlock() || !user->isBeforeInBlock(step))
      return {};
    fill = cast<linalg::FillOp>(user);
  }
  return fill && matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) ? fill : linalg::FillOp();
}

bool device::hasPartialState(AccumulateOp step) {
  int64_t valueDepth = getStaticDimSize(step.getValue(), step.getValueDims(), Dim::Depth);
  // `storeState` writes all columns of the fragments.
  if (cast<MemRefType>(step.getAcc().getType()).getDimSize(1) < SharedTile::paddedColumns(valueDepth))
    return false;
  // The roles have a copy of the body each, so that of the accumulator is used by one of them only.
  return isa<func::FuncOp>(step->getParentOp()) && step.getAcc().getDefiningOp() && step.getDpsInits().size() == 3 &&
         findAccumulatorFill(step) && !findPages(step.getQuery()) && !findComputation(step.getQuery());
}

bool device::isOfPartialState(Operation *op, AccumulateOp step) {
  if (auto fill = dyn_cast<linalg::FillOp>(op)) {
    if (fill == findAccumulatorFill(step))
      return true;
    // Sinks are in the rows of a head.
    auto isPart = [&](Value filled) { return filled == step.getMax() || filled == step.getSum(); };
    Value filled = fill.getOutputs()[0];
    auto view = filled.getDefiningOp<memref::SubViewOp>();
    return isPart(filled) || (view && isPart(view.getSource()));
  }
  if (auto update = dyn_cast<linalg::GenericOp>(op))
    return findEpilogue(update.getDpsInits()[0]) == update;
  auto end = dyn_cast<FinalizeOp>(op);
  return end && end.getOthers().empty();
}

void device::erasePartialState(Block &block, AccumulateOp step) {
  block.walk([&](Operation *op) {
    if (isOfPartialState(op, step))
      op->erase();
  });
}

void device::initPartialState(Block &block, AccumulateOp step, int64_t barrier) {
  findAccumulatorFill(step)->erase();
  block.walk([&](linalg::FillOp fill) {
    OpBuilder b(fill);
    Emitter e{b, fill.getLoc(), b.getF32Type()};
    Value part = fill.getOutputs()[0], value = fill.getInputs()[0];
    assert(cast<MemRefType>(part.getType()).getRank() == 1 && "only maxima and sums are left");
    e.loop(e.thread(), e.toI32(e.size(part, 0)), WarpgroupShape::groupThreads,
           [&](Value row) { e.storeShared(value, part, {e.toIndex(row)}); });
    NamedBarrier{e.i32(barrier), WarpgroupShape::groupThreads}.wait(e);
    fill->erase();
  });
}

namespace {

/// Copies queries to shared memory, 16 bytes at a time if they are aligned.
class QueryRows {
public:
  QueryRows(const Emitter &e, AccumulateOp step, const WarpgroupShape &shape, Value tile)
      : e(e), shape(shape), tile(tile), query(this->e, step.getQuery(), step.getQueryDims()),
        // Opaque to LLVM, which would compute places before the loop over items.
        thread(this->e.optimizationBarrier(this->e.thread())) {}

  void run() {
    if (shape.depth % vectorElements != 0)
      return copyElements();
    e.ifElse(query.isAligned(e, vectorBytes), [&] { copyVectors(); }, [&] { copyElements(); });
  }

private:
  /// The address of vector `vector` (i32) of row `row` (i32) of a box. The swizzle is that of the operands of wgmma.
  /// Vector v of row r is stored at place v xor (r mod 8).
  Value placeOf(Value row, Value vector) {
    Value swizzled = arith::XOrIOp::create(e.b, e.loc, vector, e.rem(row, vectors));
    return e.add(e.add(tile, e.mul(row, WarpgroupShape::boxRowBytes)), e.mul(swizzled, vectorBytes));
  }

  /// Eight lanes copy a part of a row, a warp its 16 rows. All loads come before the stores.
  void copyVectors() {
    auto type = VectorType::get({wordsOfVector}, e.b.getI32Type());
    Value zeros = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(type));
    Lane lane(e, shape, thread);
    Value inWarp = e.rem(thread, warpLanes), vector = e.rem(inWarp, vectors);
    Value start = e.add(lane.firstRow, e.div(inWarp, vectors)), column = e.mul(vector, vectorElements);
    SmallVector<std::pair<Value, Value>> copies; // of words to an address
    for (int64_t first = 0; first < WarpgroupShape::warpRows; first += warpLanes / vectors) {
      Value row = e.add(start, first), exists = e.isLess(e.toIndex(row), query.rows), place = placeOf(row, vector);
      Value source = query.address(e, e.toIndex(row), e.toIndex(column));
      for (int64_t box = 0; box < shape.boxes(shape.depth); ++box) {
        int64_t firstColumn = box * WarpgroupShape::boxColumns;
        Value isInside = exists;
        if (firstColumn + WarpgroupShape::boxColumns > shape.depth)
          isInside = e.andi(exists, e.isLess(column, e.i32(shape.depth - firstColumn)));
        auto load = [&]() -> SmallVector<Value> {
          Value from = e.advance(source, shape.element, static_cast<int32_t>(firstColumn));
          return {LLVM::LoadOp::create(e.b, e.loc, type, from, /*alignment=*/vectorBytes)};
        };
        Value words = e.choose(isInside, load, [&]() -> SmallVector<Value> { return {zeros}; })[0];
        copies.push_back({words, e.add(place, box * shape.boxBytes(shape.rows))});
      }
    }
    for (auto [words, address] : copies)
      LLVM::StoreOp::create(e.b, e.loc, words, e.sharedPointer(address), /*alignment=*/vectorBytes);
  }

  void copyElements() {
    int64_t columns = shape.boxes(shape.depth) * WarpgroupShape::boxColumns;
    Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(shape.element));
    e.loop(thread, e.i32(shape.rows * columns), WarpgroupShape::groupThreads, [&](Value i) {
      Value row = e.div(i, columns), column = e.rem(i, columns);
      Value exists = e.andi(e.isLess(e.toIndex(row), query.rows), e.isLess(column, e.i32(shape.depth)));
      Value element = e.choose(
          exists, [&]() -> SmallVector<Value> { return {query.load(e, e.toIndex(row), e.toIndex(column))}; },
          [&]() -> SmallVector<Value> { return {zero}; })[0];
      Value inBox = e.rem(column, WarpgroupShape::boxColumns);
      Value box = e.mul(e.div(column, WarpgroupShape::boxColumns), shape.boxBytes(shape.rows));
      Value address = e.add(placeOf(row, e.div(inBox, vectorElements)), e.mul(e.rem(inBox, vectorElements), 2));
      LLVM::StoreOp::create(e.b, e.loc, element, e.sharedPointer(e.add(address, box)));
    });
  }

  Emitter e;
  const WarpgroupShape &shape;
  Value tile; ///< i32
  GlobalMatrix query;
  Value thread; ///< i32
};

} // namespace

void device::copyQueryRows(const Emitter &e, AccumulateOp step, const WarpgroupShape &shape, Value tile) {
  QueryRows(e, step, shape, tile).run();
}

void device::storeState(const Emitter &emitter, AccumulateOp step, const PrivateState &state,
                        const WarpgroupShape &shape) {
  Emitter e = emitter;
  Lane lane(e, shape, e.optimizationBarrier(e.thread()));
  Value rows = GlobalMatrix(e, step.getQuery(), step.getQueryDims()).rows;
  SmallVector<MergedRow> merged;
  SmallVector<Value> places, exist;
  for (int64_t r = 0; r < shape.rowsPerThread(); ++r) {
    places.push_back(lane.row(e, r));
    exist.push_back(e.isLess(places[r], rows));
    Value sum = reduceLanes(e, e.load(state.sum, r), [&](Value x, Value y) { return e.addf(x, y); });
    SmallVector<Value> before = e.choose(
        exist[r],
        [&]() -> SmallVector<Value> {
          return {e.load(step.getMax(), {places[r]}), e.load(step.getSum(), {places[r]})};
        },
        [&]() -> SmallVector<Value> { return {e.minusInfinity(), e.scalar(0.0)}; });
    Value max = e.load(state.max, r);
    merged.push_back(
        mergeRow(e, before[0], before[1], max, fromRounded(e, step.getNaturalMax(), max, sum), step.getNaturalMax()));
    merged.back().otherFactor = fromRounded(e, step.getNaturalMax(), max, merged.back().otherFactor);
  }
  // All lanes of a row have read its maximum and sum.
  NVVM::SyncWarpOp::create(e.b, e.loc, e.i32(-1));
  auto pairType = VectorType::get({threadElements}, e.type);
  for (int64_t r = 0; r < shape.rowsPerThread(); ++r) {
    e.ifElse(e.andi(exist[r], lane.isFirst(e)), [&] {
      e.storeShared(merged[r].max, step.getMax(), {places[r]});
      e.storeShared(merged[r].sum, step.getSum(), {places[r]});
    });
    // The state may have rows after the last query, which a merge reads, too.
    Value factor = arith::SelectOp::create(e.b, e.loc, exist[r], merged[r].otherFactor, e.scalar(0.0));
    e.ifElse(e.isLess(places[r], e.size(step.getAcc(), 0)), [&] {
      Value target = GlobalMatrix(e, step.getAcc()).address(e, places[r], e.toIndex(lane.column));
      for (int64_t tile = 0; tile < shape.valueTiles(); ++tile) {
        Value pair = LLVM::PoisonOp::create(e.b, e.loc, pairType);
        for (int64_t i = 0; i < threadElements; ++i) {
          Value x = e.mulf(e.load(state.acc, (tile * 2 + r) * threadElements + i), factor);
          pair = LLVM::InsertElementOp::create(e.b, e.loc, pair, x, e.i32(i));
        }
        LLVM::StoreOp::create(e.b, e.loc, pair, e.advance(target, e.type, static_cast<int32_t>(tileColumns * tile)),
                              /*alignment=*/threadElements * 4);
      }
    });
  }
}
