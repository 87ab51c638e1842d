//===- GradientKernel.cpp - A gradient in registers of tensor cores -----------===//
//
// The layout of accumulators is that of an LHS operand, so weights and gradients of scores go from one product to the
// next in registers (FlashAttention-2; Dao 2023). For the gradients of keys and values, scores are computed with keys
// as rows for this reason.
//
//===----------------------------------------------------------------------===//
#include "GradientKernel.h"
#include "../BufferAnalysis.h"
#include "../SharedMemory.h"
#include "MMA.h"
#include "PairFragment.h"
#include "SharedTile.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "saccade/Support/Kernels.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// Rows of a tile, and columns of a half of a tile.
static constexpr int64_t tileRows = 64, halfColumns = 32, halves = 2;
static constexpr int64_t maxDepth = 128, maxSumRegisters = 128;

/// Why the registers of a CTA do not hold the tiles of `step`; empty if they do.
static std::string findRegisterObstacle(const GradientStep &step) {
  auto isWithin = [&](unsigned loop, int64_t most) {
    std::optional<int64_t> bound = boundOfExtent(step.pairs, loop);
    return bound && *bound <= most;
  };
  if (!isWithin(step.rowLoop, tileRows) || !isWithin(step.columnLoop(), halves * halfColumns))
    return llvm::formatv("tiles have more than {0} x {1} pairs", tileRows, halves * halfColumns);
  SmallVector<PositionMatrix> matrices;
  for (const std::optional<GradientStep::Product> &input : step.inputs)
    if (input)
      matrices.append({input->row, input->column});
  int64_t registers = 0;
  for (const GradientStep::Sum &sum : step.sums) {
    matrices.push_back(sum.column);
    registers += sum.column.columns / 2;
  }
  for (const PositionMatrix &matrix : matrices) {
    if (matrix.columns > maxDepth)
      return llvm::formatv("head size {0} exceeds {1}", matrix.columns, maxDepth);
    if (matrix.columns % 16 != 0)
      return llvm::formatv("head size {0} is not a multiple of 16", matrix.columns);
  }
  return registers <= maxSumRegisters ? "" : llvm::formatv("sums need {0} registers of a thread", registers).str();
}

bool device::fitsRegisters(const GradientStep &step, std::string *obstacle) {
  std::string found = findRegisterObstacle(step);
  if (obstacle)
    *obstacle = found;
  return found.empty();
}

namespace {

/// An input of the elementwise op that is a vector along the columns.
struct ColumnVector {
  Value memref;
  int64_t offset; ///< of the first half in shared memory, in bytes
};

class GradientKernel {
public:
  GradientKernel(OpBuilder &builder, GradientStep &step)
      : builder(builder), step(step), atStep(builder, step.pairs.getLoc(), builder.getF32Type()) {}

  void run() {
    plan();
    step.hoistRows();
    builder.setInsertionPoint(step.outermost);
    prepareRows();
    // With a loop around the step, the first half of the next tile is copied during the second one of a tile.
    loop = dyn_cast<scf::ForOp>(step.pairs->getParentOp());
    if (loop && !(step.outermost->isAncestor(loop) && collectColumnOps()))
      loop = nullptr;
    if (loop)
      copyFirstTile();
    builder.setInsertionPoint(step.pairs);
    computeTile();
    builder.setInsertionPointAfter(step.outermost);
    SharedTile::wait(atStep); // copies of rows without a tile of columns
    for (auto [sum, registers] : llvm::zip_equal(step.sums, sumRegisters))
      for (linalg::GenericOp store : sum.stores)
        storeSum(store, registers);
    step.erase();
  }

private:
  using Values = SmallVector<Value>;

  //===--- Shared memory ---===//

  /// Places the matrices of rows, then both halves of the matrices and vectors of columns.
  void plan() {
    auto place = [&](SmallVectorImpl<std::pair<PositionMatrix, int64_t>> &places, const PositionMatrix &matrix,
                     int64_t rows) {
      if (llvm::none_of(places, [&](const auto &each) { return each.first == matrix; })) {
        places.push_back({matrix, bytes});
        bytes += SharedTile::bytes(rows, matrix.columns);
      }
    };
    for (auto &input : step.inputs)
      if (input)
        place(rowPlaces, input->row, tileRows);
    int64_t halfStart = bytes;
    for (auto &input : step.inputs)
      if (input)
        place(columnPlaces, input->column, halfColumns);
    for (GradientStep::Sum &sum : step.sums)
      place(columnPlaces, sum.column, halfColumns);
    used = step.usedResults();
    for (Value vector : step.columnVectors()) {
      vectors.push_back({vector, bytes});
      bytes += halfColumns * 4;
    }
    halfBytes = bytes - halfStart;
    bytes += (halves - 1) * halfBytes;
  }

  SharedTile rowTile(Emitter &e, const PositionMatrix &matrix) {
    return {e, shared, placeOf(rowPlaces, matrix), step.element, tileRows, matrix.columns};
  }
  SharedTile columnTile(Emitter &e, const PositionMatrix &matrix, int64_t half) {
    return {e, shared, placeOf(columnPlaces, matrix) + half * halfBytes, step.element, halfColumns, matrix.columns};
  }
  static int64_t placeOf(ArrayRef<std::pair<PositionMatrix, int64_t>> places, const PositionMatrix &matrix) {
    return llvm::find_if(places, [&](const auto &each) { return each.first == matrix; })->second;
  }

  GlobalMatrix globalOf(Emitter &e, const PositionMatrix &matrix, const IRMapping &clones) {
    return {e, clones.lookupOrDefault(matrix.memref), matrix.rowDim, matrix.columnDim, Values(2, e.index(0))};
  }

  /// Copies half `half` of the columns, without waiting. `clones` maps them to those of another tile.
  void copyHalf(Emitter &e, int64_t half, const IRMapping &clones) {
    for (auto &[matrix, offset] : columnPlaces) {
      GlobalMatrix global = globalOf(e, matrix, clones);
      SharedTile tile = columnTile(e, matrix, half);
      // Prepared copies would take registers that the sums need.
      tile.copy(e, {global, global.isAligned(e, 16), {}, {}, {}, {}}, e.i32(half * halfColumns));
    }
    Value thread = e.thread();
    for (const ColumnVector &vector : vectors)
      e.ifElse(e.isLess(thread, e.i32(halfColumns)), [&] {
        GlobalMatrix global(e, clones.lookupOrDefault(vector.memref));
        Value column = e.add(e.toIndex(thread), half * halfColumns), isInside = e.isLess(column, global.rows);
        Value target = addressOf(e, vector, half, thread);
        NVVM::CpAsyncOp::create(e.b, e.loc, target, global.address(e, column, e.index(0)), 4,
                                NVVM::LoadCacheModifierKind::CA, e.select(isInside, e.i32(4), e.i32(0)));
      });
    SharedTile::commit(e);
  }

  Value addressOf(Emitter &e, const ColumnVector &vector, int64_t half, Value column) {
    Value start = e.advance(shared, e.b.getI8Type(), static_cast<int32_t>(vector.offset + half * halfBytes));
    return e.advance(start, e.b.getF32Type(), column);
  }

  /// Computes the place of this thread: here and not before a loop, where it would take registers.
  void locateThread(Emitter &e) {
    Value thread = e.optimizationBarrier(e.thread()), lane = e.rem(thread, 32);
    warpRow = e.mul(e.div(thread, 32), 16);
    place = {e.add(warpRow, e.div(lane, 4)), e.mul(e.rem(lane, 4), 2)};
  }

  //===--- Around the loops ---===//

  /// Clears the sums and copies the rows, before the loops over tiles.
  void prepareRows() {
    Emitter e(builder, step.pairs.getLoc(), builder.getF32Type());
    shared = getDynamicShared(e, bytes);
    for (GradientStep::Sum &sum : step.sums) {
      auto type = MemRefType::get({sum.column.columns / 2}, e.b.getF32Type());
      OpBuilder atStart = OpBuilder::atBlockBegin(&step.pairs->getParentOfType<func::FuncOp>().getBody().front());
      Value registers = memref::AllocaOp::create(atStart, e.loc, type);
      for (int64_t i = 0; i < type.getDimSize(0); ++i)
        e.store(e.scalar(0.0), registers, i);
      sumRegisters.push_back(registers);
    }
    e.barrier(); // other ops of the kernel may have read the same memory
    for (auto &[matrix, offset] : rowPlaces) {
      GlobalMatrix global = globalOf(e, matrix, {});
      SharedTile tile = rowTile(e, matrix);
      tile.copy(e, tile.prepare(e, global), e.i32(0));
    }
    SharedTile::commit(e);
  }

  /// Collects the ops of the loop on which the operands along columns depend, in order; returns false if they cannot be
  /// cloned.
  bool collectColumnOps() {
    auto need = [&](auto &&need, Value value) -> bool {
      Operation *op = value.getDefiningOp();
      if (!op)
        return true;
      if (op->getBlock() != loop.getBody())
        return !loop->isAncestor(op);
      if (!isPure(op) || op->getNumRegions() != 0 ||
          !llvm::all_of(op->getOperands(), [&](Value operand) { return need(need, operand); }))
        return false;
      columnOps.insert(op);
      return true;
    };
    return llvm::all_of(columnPlaces, [&](const auto &place) { return need(need, place.first.memref); }) &&
           llvm::all_of(vectors, [&](const ColumnVector &vector) { return need(need, vector.memref); });
  }

  /// Copies the first half of the tile of columns that starts at `begin`, if there is one.
  void copyFirstHalf(Emitter &e, Value begin) {
    e.ifElse(e.isLess(begin, loop.getUpperBound()), [&] {
      IRMapping clones;
      clones.map(loop.getInductionVar(), begin);
      for (Operation *op : columnOps)
        e.b.clone(*op, clones);
      copyHalf(e, 0, clones);
    });
  }

  void copyFirstTile() {
    builder.setInsertionPoint(loop);
    Emitter e(builder, step.pairs.getLoc(), builder.getF32Type());
    // Without rows no tile waits for the copy, and that of the next query head of a group would be to the same place.
    Value rows = globalOf(e, rowPlaces.front().first, {}).rows;
    e.ifElse(e.isLess(e.index(0), rows), [&] { copyFirstHalf(e, loop.getLowerBound()); });
  }

  //===--- A tile of pairs ---===//

  void computeTile() {
    Emitter &e = atStep;
    Values sizes;
    for (Range range : linalg::LinalgOp(step.pairs).createLoopRanges(e.b, e.loc))
      sizes.push_back(getValueOrCreateConstantIndexOp(e.b, e.loc, range.size));
    lastRow = e.toI32(e.add(sizes[step.rowLoop], -1));
    // Without rows, positions would be before the first element of a tensor.
    e.ifElse(e.isLess(e.index(0), sizes[step.rowLoop]), [&] { computeColumns(sizes[step.columnLoop()]); });
  }

  void computeColumns(Value columns) {
    Emitter &e = atStep;
    Value hasSecond = e.isLess(e.index(halfColumns), columns);
    lastColumn = e.toI32(e.add(columns, -1));
    if (!loop) {
      e.barrier(); // the last tile has been read
      copyHalf(e, 0, {});
    } else {
      SharedTile::wait(e);
      e.barrier(); // also for the second half of the last tile, which is copied to now
    }
    e.ifElse(hasSecond, [&] { copyHalf(e, 1, {}); });
    if (!loop) {
      SharedTile::wait(e);
      e.barrier();
    }
    computeHalf(0, columns);
    if (loop) {
      SharedTile::wait(e);
      e.barrier();
      copyFirstHalf(e, e.add(loop.getInductionVar(), loop.getStep()));
    }
    e.ifElse(hasSecond, [&] { computeHalf(1, columns); });
  }

  void computeHalf(int64_t half, Value columns) {
    Emitter &e = atStep;
    locateThread(e);
    SmallVector<Values> products;
    for (auto &input : step.inputs)
      products.push_back(input ? computeProduct(*input, half) : Values());
    Value isWhole = e.isAtMost(e.index((half + 1) * halfColumns), columns);
    PairFragment fragment{place, half * halfColumns, halfColumns, lastRow, lastColumn};
    auto evaluate = [&](bool isWhole) {
      Values results;
      auto ofVector = [&](OpOperand &operand, int64_t offset) { return loadVector(operand, offset, half); };
      for (Values &each : fragment.evaluate(e, step, used, products, isWhole, ofVector))
        llvm::append_range(results, each);
      return results;
    };
    Values all = e.choose(isWhole, [&] { return evaluate(true); }, [&] { return evaluate(false); });
    size_t words = halfColumns / 4;
    for (auto [sum, registers] : llvm::zip_equal(step.sums, sumRegisters))
      addSum(sum, registers, ArrayRef(all).slice((llvm::find(used, sum.result) - used.begin()) * words, words), half);
  }

  /// The accumulators of rows of a warp × columns of a half: eight columns by eight, four each.
  Values computeProduct(GradientStep::Product &product, int64_t half) {
    Emitter &e = atStep;
    SharedTile rows = rowTile(e, product.row), columns = columnTile(e, product.column, half);
    Value lhsAddress = rows.lhsAddress(e, warpRow), rhsAddress = columns.rhsAddress(e, e.i32(0));
    Values sums(halfColumns / 8 * 4, e.scalar(0.0));
    for (int64_t k = 0; k < product.row.columns; k += 16) {
      Values lhs = rows.loadLhs(e, lhsAddress, 0, k);
      for (int64_t column = 0; column < halfColumns; column += 16)
        multiplyPair(sums.begin() + column / 2, lhs, columns.loadRhs(e, rhsAddress, column, k));
    }
    return sums;
  }

  /// Multiplies 16 rows with two RHS fragments of eight columns; `sums` are eight accumulators.
  void multiplyPair(Values::iterator sums, ValueRange lhs, ArrayRef<Value> rhs) {
    for (int64_t part : {0, 1}) {
      Values old(sums + 4 * part, sums + 4 * part + 4);
      llvm::copy(mmaSync(atStep, step.element, lhs, rhs.slice(2 * part, 2), old), sums + 4 * part);
    }
  }

  /// An input of the elementwise op that is a vector along the columns, from shared memory; null for others.
  Value loadVector(OpOperand &operand, int64_t offset, int64_t half) {
    Emitter &e = atStep;
    auto vector = llvm::find_if(vectors, [&](const ColumnVector &each) { return each.memref == operand.get(); });
    if (vector == vectors.end())
      return {};
    Value inHalf = e.add(place.column, offset - half * halfColumns);
    return LLVM::LoadOp::create(e.b, e.loc, e.b.getF32Type(), addressOf(e, *vector, half, inHalf));
  }

  /// sums += weights · columns.
  void addSum(GradientStep::Sum &sum, Value registers, ArrayRef<Value> words, int64_t half) {
    Emitter &e = atStep;
    SharedTile columns = columnTile(e, sum.column, half);
    Value address = columns.rhsTransposedAddress(e, e.i32(0));
    for (int64_t k = 0; k < halfColumns; k += 16)
      for (int64_t column = 0; column < sum.column.columns; column += 16) {
        Values rhs = columns.loadRhsTransposed(e, address, k, column), sums;
        for (int64_t i = 0; i < 8; ++i)
          sums.push_back(e.load(registers, column / 2 + i));
        multiplyPair(sums.begin(), words.slice(k / 4, 4), rhs);
        for (int64_t i = 0; i < 8; ++i)
          e.store(sums[i], registers, column / 2 + i);
      }
  }

  //===--- Results ---===//

  /// Emits the elementwise op that stores a sum.
  void storeSum(linalg::GenericOp store, Value registers) {
    builder.setInsertionPoint(store);
    Emitter e(builder, store.getLoc(), builder.getF32Type());
    locateThread(e);
    storeFragment(e, store, registers, place);
  }

  OpBuilder &builder;
  GradientStep &step;
  Emitter atStep;
  scf::ForOp loop; ///< around the step, if its operands can be computed for the next iteration; else null
  SmallVector<std::pair<PositionMatrix, int64_t>> rowPlaces, columnPlaces;
  SmallVector<ColumnVector> vectors;
  SetVector<Operation *> columnOps; ///< of the loop, on which the operands along columns depend
  SmallVector<unsigned> used;       ///< the results of `pairs` that sums use
  int64_t bytes = 0, halfBytes = 0;
  Value shared, warpRow, lastRow, lastColumn;
  FragmentPlace place;
  SmallVector<Value> sumRegisters;
};

} // namespace

void device::lowerGradient(OpBuilder &b, GradientStep &step) { GradientKernel(b, step).run(); }
