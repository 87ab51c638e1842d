//===- TensorCoreMatmul.cpp - Matmuls on tensor cores -------------------------===//
//
// LHS and RHS tiles are double-buffered: the copy of the next tiles overlaps with the multiplication of the current
// ones, with one barrier per step. A reduced dimension of at most 128 elements takes one step. Buffers of the kernel
// that are whole blocks, such as those of a chunk of linear attention, are not copied.
//
//===----------------------------------------------------------------------===//
#include "TensorCoreMatmul.h"
#include "../BufferAnalysis.h"
#include "../ElementOp.h"
#include "../SharedMemory.h"
#include "MMA.h"
#include "SharedTile.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Dialect/Attn/Analysis/Memory.h"
#include "saccade/Support/Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// The largest block of a CTA, and the K step of a loop and of a matmul without one.
static constexpr int64_t maxBlock = 64, maxWideBlock = 128, loopDepth = 64, maxDepth = 128;

/// Whether a buffer is a parameter of the kernel or a constant, that is, in global memory.
static bool isGlobal(Value buffer) {
  Value root = getBaseMemory(buffer);
  return root.getDefiningOp<memref::GetGlobalOp>() ||
         (isa<BlockArgument>(root) && isa<func::FuncOp>(root.getParentBlock()->getParentOp()));
}

namespace {

/// How a CTA divides a matmul: four warps compute a block of `rows` × `columns`, `depth` steps of K at a time.
struct Blocking {
  int64_t rows, columns, depth;
  int64_t warpRows, warpColumns;             ///< of the block of a warp, multiples of 16
  int64_t steps;                             ///< of K that are multiplied, a multiple of 16
  bool hasOneRow, hasOneColumn, hasOneDepth; ///< whether there is one block along m, n and K

  /// `m`, `n`, `k`: constants that the extents do not exceed, if known.
  Blocking(std::optional<int64_t> m, std::optional<int64_t> n, std::optional<int64_t> k) {
    auto sizeOf = [](std::optional<int64_t> bound, int64_t max) -> int64_t { return bound && *bound <= 32 ? 32 : max; };
    rows = sizeOf(m, maxBlock);
    columns = sizeOf(n, rows == 32 && n && *n > maxBlock ? maxWideBlock : maxBlock);
    hasOneRow = m && *m <= rows, hasOneColumn = n && *n <= columns, hasOneDepth = k && *k <= maxDepth;
    depth = hasOneDepth ? std::max<int64_t>(32, llvm::PowerOf2Ceil(*k)) : loopDepth;
    steps = hasOneDepth ? llvm::alignTo(std::max<int64_t>(*k, 1), 16) : depth;
    int64_t warpsAlongRows = columns == maxWideBlock ? 1 : 2;
    warpRows = rows / warpsAlongRows, warpColumns = columns / (4 / warpsAlongRows);
  }

  int64_t mTiles() const { return warpRows / 16; }
  int64_t nTiles() const { return warpColumns / 8; }
  int64_t warpsAlongColumns() const { return columns / warpColumns; }
};

class TensorCoreMatmul {
public:
  TensorCoreMatmul(const Emitter &e, linalg::LinalgOp op, linalg::ContractionDimensions dims)
      : e(e), op(op), m(dims.m.back()), n(dims.n.back()), k(dims.k.front()),
        element(getElementTypeOrSelf(op.getDpsInputs()[0])),
        blocking(boundOfExtent(op, m), boundOfExtent(op, n), boundOfExtent(op, k)) {}

  void run() {
    for (Range range : op.createLoopRanges(e.b, e.loc))
      sizes.push_back(getValueOrCreateConstantIndexOp(e.b, e.loc, range.size));
    positions.resize(sizes.size());
    isResultZero = takeZeroFill(op);
    // Addresses that depend on the thread are computed here, not before an outer loop, where they would take registers.
    Value thread = e.optimizationBarrier(e.thread()), warp = e.div(thread, 32), lane = e.rem(thread, 32);
    warpRow = e.mul(e.div(warp, blocking.warpsAlongColumns()), blocking.warpRows);
    warpColumn = e.mul(e.rem(warp, blocking.warpsAlongColumns()), blocking.warpColumns);
    laneRow = e.div(lane, 4);
    laneColumn = e.mul(e.rem(lane, 4), 2);
    SmallVector<unsigned> around;
    op.getParallelDims(around);
    llvm::erase_if(around, [&](unsigned loop) { return loop == m || loop == n; });
    loopAround(around);
  }

private:
  void loopAround(ArrayRef<unsigned> rest) {
    if (!rest.empty()) {
      e.loop(e.index(0), sizes[rest.front()], 1, [&](Value position) {
        positions[rest.front()] = position;
        loopAround(rest.drop_front());
      });
      return;
    }
    // Operands may be contiguous along K or along their other loop; a copy is asynchronous if rows are contiguous.
    auto isAlong = [&](OpOperand &operand, unsigned loop) {
      AffineMap map = op.getMatchingIndexingMap(&operand);
      return map.getResults().back() == getAffineDimExpr(loop, map.getContext());
    };
    OpOperand &lhsOperand = *op.getDpsInputOperand(0), &rhsOperand = *op.getDpsInputOperand(1);
    isLhsTransposed = isAlong(lhsOperand, m), isRhsRowMajor = isAlong(rhsOperand, n);
    GlobalMatrix lhs = isLhsTransposed ? matrixOf(lhsOperand, k, m) : matrixOf(lhsOperand, m, k);
    GlobalMatrix rhs = isRhsRowMajor ? matrixOf(rhsOperand, k, n) : matrixOf(rhsOperand, n, k);
    lhsPitch = pitchInPlace(lhsOperand, m, blocking.rows), rhsPitch = pitchInPlace(rhsOperand, n, blocking.columns);
    auto overBlocks = [&](unsigned loop, bool isOne, int64_t size, function_ref<void(Value)> body) {
      isOne ? body(e.index(0)) : e.loop(e.index(0), sizes[loop], size, body);
    };
    overBlocks(m, blocking.hasOneRow, blocking.rows, [&](Value firstRow) {
      overBlocks(n, blocking.hasOneColumn, blocking.columns,
                 [&](Value firstColumn) { computeBlock(lhs, rhs, firstRow, firstColumn); });
    });
  }

  /// An operand as a matrix with the given row and column loop, at the current positions of the batch loops.
  GlobalMatrix matrixOf(OpOperand &operand, unsigned rowLoop, unsigned columnLoop) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    unsigned row = 0, column = 0;
    SmallVector<Value> at;
    for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
      unsigned loop = cast<AffineDimExpr>(expr).getPosition();
      if (loop == rowLoop)
        row = dim;
      else if (loop == columnLoop)
        column = dim;
      at.push_back(loop == rowLoop || loop == columnLoop ? e.index(0) : positions[loop]);
    }
    return GlobalMatrix(e, operand.get(), row, column, at);
  }

  /// The elements between two rows of a matrix operand in shared memory whose fragments can be loaded where they are,
  /// as its loop over rows or columns, `outer`, and that of K have whole blocks of `size` and whole steps; else 0.
  int64_t pitchInPlace(OpOperand &operand, unsigned outer, int64_t size) {
    auto type = cast<MemRefType>(operand.get().getType());
    SmallVector<int64_t> strides;
    int64_t offset = 0;
    if (!isShared(operand.get()) || type.getRank() != 2 || failed(type.getStridesAndOffset(strides, offset)) ||
        strides[1] != 1 || !blocking.hasOneDepth)
      return 0;
    std::optional<int64_t> extent = getConstantIntValue(sizes[outer]), steps = getConstantIntValue(sizes[k]);
    auto isMultiple = [](std::optional<int64_t> x, int64_t of) {
      return x && !ShapedType::isDynamic(*x) && *x % of == 0;
    };
    bool isWhole = isMultiple(extent, size) && isMultiple(steps, 16);
    // Rows of a fragment are 16-byte aligned.
    return isWhole && isMultiple(strides[0], 8) && isMultiple(offset, 8) ? strides[0] : 0;
  }

  void computeBlock(const GlobalMatrix &lhs, const GlobalMatrix &rhs, Value firstRow, Value firstColumn) {
    // A tile has `rows` × `depth` elements, in either order.
    auto shapeOf = [&](int64_t extent, bool isAlongSteps) {
      return isAlongSteps ? std::pair(extent, blocking.depth) : std::pair(blocking.depth, extent);
    };
    auto [lhsRows, lhsColumns] = shapeOf(blocking.rows, !isLhsTransposed);
    auto [rhsRows, rhsColumns] = shapeOf(blocking.columns, !isRhsRowMajor);
    int64_t lhsBytes = lhsPitch ? 0 : SharedTile::bytes(lhsRows, lhsColumns);
    int64_t rhsBytes = rhsPitch ? 0 : SharedTile::bytes(rhsRows, rhsColumns);
    int64_t bytes = lhsBytes + rhsBytes;
    Value shared = bytes ? getDynamicShared(e, blocking.hasOneDepth ? bytes : 2 * bytes) : Value();
    auto tileInPlace = [&](const GlobalMatrix &matrix, Value first, bool isAlongSteps, int64_t pitch) {
      Value none = e.index(0);
      Value base = isAlongSteps ? matrix.address(e, first, none) : matrix.address(e, none, first);
      return SharedTile(base, element, 0, 0, pitch);
    };
    auto tilesOf = [&, lhsRows = lhsRows, lhsColumns = lhsColumns, rhsRows = rhsRows,
                    rhsColumns = rhsColumns](int64_t i) {
      return std::pair(lhsPitch ? tileInPlace(lhs, firstRow, !isLhsTransposed, lhsPitch)
                                : SharedTile(e, shared, i * bytes, element, lhsRows, lhsColumns),
                       rhsPitch ? tileInPlace(rhs, firstColumn, !isRhsRowMajor, rhsPitch)
                                : SharedTile(e, shared, i * bytes + lhsBytes, element, rhsRows, rhsColumns));
    };
    Value isLhsAligned = lhs.isAligned(e, 16), isRhsAligned = rhs.isAligned(e, 16);
    auto copyTile = [&](int64_t i, Value step) {
      auto [lhsTile, rhsTile] = tilesOf(i);
      auto copy = [&](const SharedTile &tile, const GlobalMatrix &matrix, Value isAligned, Value first, Value end,
                      bool isAlongSteps) {
        if (isAlongSteps)
          tile.copyPart(e, matrix, isAligned, first, end, step, sizes[k]);
        else
          tile.copyPart(e, matrix, isAligned, step, sizes[k], first, end);
      };
      if (!lhsPitch)
        copy(lhsTile, lhs, isLhsAligned, firstRow, sizes[m], !isLhsTransposed);
      if (!rhsPitch)
        copy(rhsTile, rhs, isRhsAligned, firstColumn, sizes[n], !isRhsRowMajor);
      SharedTile::commit(e);
    };
    SmallVector<Value> zeros(blocking.mTiles() * blocking.nTiles() * 4, e.scalar(0.0)), sums = zeros;
    auto multiplyStep = [&](int64_t i, SmallVector<Value> &running) {
      auto [lhsTile, rhsTile] = tilesOf(i);
      multiplyTiles(lhsTile, rhsTile, running);
    };
    if (!bytes) {
      multiplyStep(0, sums);
      return storeBlock(firstRow, firstColumn, sums);
    }
    // Wait for the last reads of shared memory.
    e.barrier();
    copyTile(0, e.index(0));
    auto waitForCopies = [&] {
      SharedTile::wait(e);
      e.barrier();
    };
    if (blocking.hasOneDepth) {
      waitForCopies();
      multiplyStep(0, sums);
    } else {
      sums = e.loop(e.index(0), sizes[k], 2 * blocking.depth, zeros, [&](Value step, ValueRange carried) {
        // The steps of an iteration are accumulated apart: the rounding error of one chain would grow with its length.
        SmallVector<Value> running(zeros);
        for (int64_t i : {0, 1}) {
          waitForCopies();
          // After the barrier the other tiles are not read. Out-of-bounds steps fill them with zeros.
          copyTile(1 - i, e.add(step, (i + 1) * blocking.depth));
          multiplyStep(i, running);
        }
        for (auto [sum, before] : llvm::zip_equal(running, carried))
          sum = e.addf(before, sum);
        return running;
      });
      SharedTile::wait(e);
    }
    storeBlock(firstRow, firstColumn, sums);
  }

  void multiplyTiles(const SharedTile &lhs, const SharedTile &rhs, SmallVector<Value> &sums) {
    Value first = e.i32(0);
    Value lhsAddress = isLhsTransposed ? lhs.lhsTransposedAddress(e, first, warpRow) : lhs.lhsAddress(e, warpRow);
    Value rhsAddress = isRhsRowMajor ? rhs.rhsTransposedAddress(e, first, warpColumn) : rhs.rhsAddress(e, warpColumn);
    for (int64_t step = 0; step < blocking.steps; step += 16) {
      SmallVector<SmallVector<Value>> rows;
      for (int64_t mTile = 0; mTile < blocking.mTiles(); ++mTile)
        rows.push_back(isLhsTransposed ? lhs.loadLhsTransposed(e, lhsAddress, step, 16 * mTile)
                                       : lhs.loadLhs(e, lhsAddress, 16 * mTile, step));
      for (int64_t tile = 0; tile < blocking.nTiles(); tile += 2) {
        SmallVector<Value> columns = isRhsRowMajor ? rhs.loadRhsTransposed(e, rhsAddress, step, 8 * tile)
                                                   : rhs.loadRhs(e, rhsAddress, 8 * tile, step);
        for (int64_t mTile = 0; mTile < blocking.mTiles(); ++mTile)
          for (int64_t half : {0, 1}) {
            auto first = sums.begin() + (mTile * blocking.nTiles() + tile + half) * 4;
            SmallVector<Value> old(first, first + 4);
            llvm::copy(mmaSync(e, element, rows[mTile], ArrayRef(columns).slice(2 * half, 2), old), first);
          }
      }
    }
  }

  /// Adds the sums of a thread to the result, or stores them if the result is zero. Blocks that are within the result
  /// need no bounds check of an element.
  void storeBlock(Value firstRow, Value firstColumn, ArrayRef<Value> sums) {
    // Positions in the block are 32 bits wide.
    auto remaining = [&](unsigned loop, Value first, int64_t size) {
      return e.toI32(e.min(e.sub(sizes[loop], first), e.index(size)));
    };
    Value rowsLeft = remaining(m, firstRow, blocking.rows), columnsLeft = remaining(n, firstColumn, blocking.columns);
    Value row = e.add(warpRow, laneRow), column = e.add(warpColumn, laneColumn);
    auto forSums = [&](bool isChecked) {
      for (auto [i, sum] : llvm::enumerate(sums)) {
        int64_t part = static_cast<int64_t>(i), tile = part / 4, nTiles = blocking.nTiles();
        Value ofRow = e.add(row, tile / nTiles * 16 + part % 4 / 2 * 8);
        Value ofColumn = e.add(column, tile % nTiles * 8 + part % 2);
        positions[m] = e.add(firstRow, e.toIndex(ofRow));
        positions[n] = e.add(firstColumn, e.toIndex(ofColumn));
        if (isChecked)
          e.ifElse(e.andi(e.isLess(ofRow, rowsLeft), e.isLess(ofColumn, columnsLeft)), [&] { addToResult(sum); });
        else
          addToResult(sum);
      }
    };
    Value isWhole = e.andi(e.isEqual(rowsLeft, e.i32(blocking.rows)), e.isEqual(columnsLeft, e.i32(blocking.columns)));
    e.ifElse(isWhole, [&] { forSums(/*isChecked=*/false); }, [&] { forSums(/*isChecked=*/true); });
  }

  /// Adds to the element of the result at `positions`.
  void addToResult(Value sum) {
    OpOperand &init = *op.getDpsInitOperand(0);
    SmallVector<Value> at = subscriptsOf(e, op, init, positions);
    if (!isResultZero)
      sum = e.addf(e.extend(e.load(init.get(), at)), sum);
    e.storeShared(e.truncate(sum, getElementTypeOrSelf(init.get())), init.get(), at);
  }

  Emitter e;
  linalg::LinalgOp op;
  unsigned m, n, k; ///< loops
  Type element;
  Blocking blocking;
  bool isLhsTransposed = false, isRhsRowMajor = false, isResultZero = false;
  int64_t lhsPitch = 0, rhsPitch = 0;  ///< of operands that are not copied, else 0
  SmallVector<Value> sizes, positions; ///< of the loops, index
  Value warpRow, warpColumn, laneRow, laneColumn;
};

} // namespace

bool device::lowerTensorCoreMatmul(OpBuilder &b, linalg::LinalgOp op) {
  std::optional<linalg::ContractionDimensions> dims = getMatmulDims(op);
  if (!dims || dims->k.size() != 1)
    return false;
  Type lhs = getElementTypeOrSelf(op.getDpsInputs()[0]), rhs = getElementTypeOrSelf(op.getDpsInputs()[1]);
  Type sum = getElementTypeOrSelf(op.getDpsInits()[0]);
  if (lhs != rhs || !(lhs.isF16() || lhs.isBF16()) || !(sum == lhs || sum.isF32()) ||
      !llvm::all_of(op.getDpsInputs(), [](Value input) { return isGlobal(input) || isShared(input); }))
    return false;
  TensorCoreMatmul({b, op.getLoc(), b.getF32Type()}, op, *dims).run();
  return true;
}
