//===- TensorCoreMatmul.cpp - Matmuls on tensor cores -------------------------===//
//
// LHS and RHS tiles are double-buffered: the copy of the next tiles overlaps with the multiplication of the current
// ones, with one barrier per step.
//
//===----------------------------------------------------------------------===//
#include "TensorCoreMatmul.h"
#include "../SharedMemory.h"
#include "MMA.h"
#include "SharedTile.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Support/Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// The block of a CTA, its K step, the block of a warp, and the mma tiles in it.
static constexpr int64_t blockSize = 64, depth = 64, warpSize = 32, mTiles = warpSize / 16, nTiles = warpSize / 8;
static_assert(4 * warpSize * warpSize == blockSize * blockSize && threadsPerCTA == 4 * 32);

/// Whether a buffer is a parameter of the kernel, that is, in global memory.
static bool isGlobal(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return isa<BlockArgument>(buffer) && isa<func::FuncOp>(buffer.getParentBlock()->getParentOp());
}

namespace {

class TensorCoreMatmul {
public:
  TensorCoreMatmul(const Emitter &e, linalg::LinalgOp op, linalg::ContractionDimensions dims)
      : e(e), op(op), m(dims.m.back()), n(dims.n.back()), k(dims.k.front()),
        element(getElementTypeOrSelf(op.getDpsInputs()[0])) {}

  void run() {
    for (Range range : op.createLoopRanges(e.b, e.loc))
      sizes.push_back(getValueOrCreateConstantIndexOp(e.b, e.loc, range.size));
    positions.resize(sizes.size());
    Value thread = e.thread(), warp = e.div(thread, 32), lane = e.rem(thread, 32);
    warpRow = e.mul(e.div(warp, 2), warpSize);
    warpColumn = e.mul(e.rem(warp, 2), warpSize);
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
    // RHS may be contiguous along n or k; the LHS copy is asynchronous only if k is contiguous.
    OpOperand &rhsOperand = *op.getDpsInputOperand(1);
    AffineMap map = op.getMatchingIndexingMap(&rhsOperand);
    isRhsRowMajor = map.getResults().back() == getAffineDimExpr(n, map.getContext());
    GlobalMatrix lhs = matrixOf(*op.getDpsInputOperand(0), m, k);
    GlobalMatrix rhs = isRhsRowMajor ? matrixOf(rhsOperand, k, n) : matrixOf(rhsOperand, n, k);
    e.loop(e.index(0), sizes[m], blockSize, [&](Value firstRow) {
      e.loop(e.index(0), sizes[n], blockSize,
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

  void computeBlock(const GlobalMatrix &lhs, const GlobalMatrix &rhs, Value firstRow, Value firstColumn) {
    int64_t bytes = SharedTile::bytes(blockSize, depth);
    Value shared = getDynamicShared(e, 4 * bytes);
    auto tilesOf = [&](int64_t i) {
      return std::pair(SharedTile(e, shared, 2 * i * bytes, element, blockSize, depth),
                       SharedTile(e, shared, (2 * i + 1) * bytes, element, blockSize, depth));
    };
    Value isLhsAligned = lhs.isAligned(e, 16), isRhsAligned = rhs.isAligned(e, 16);
    auto copyTile = [&](int64_t i, Value step) {
      auto [lhsTile, rhsTile] = tilesOf(i);
      lhsTile.copyPart(e, lhs, isLhsAligned, firstRow, sizes[m], step, sizes[k]);
      if (isRhsRowMajor)
        rhsTile.copyPart(e, rhs, isRhsAligned, step, sizes[k], firstColumn, sizes[n]);
      else
        rhsTile.copyPart(e, rhs, isRhsAligned, firstColumn, sizes[n], step, sizes[k]);
      SharedTile::commit(e);
    };
    // Wait for the last reads of shared memory.
    e.barrier();
    copyTile(0, e.index(0));
    SmallVector<Value> zeros(mTiles * nTiles * 4, e.scalar(0.0));
    SmallVector<Value> sums = e.loop(e.index(0), sizes[k], 2 * depth, zeros, [&](Value step, ValueRange carried) {
      // The steps of an iteration are accumulated apart: the rounding error of one chain would grow with its length.
      SmallVector<Value> running(zeros);
      for (int64_t i : {0, 1}) {
        SharedTile::wait(e);
        e.barrier();
        // After the barrier the other tiles are not read. Out-of-bounds steps fill them with zeros.
        copyTile(1 - i, e.add(step, (i + 1) * depth));
        auto [lhsTile, rhsTile] = tilesOf(i);
        multiplyTiles(lhsTile, rhsTile, running);
      }
      for (auto [sum, before] : llvm::zip_equal(running, carried))
        sum = e.addf(before, sum);
      return running;
    });
    SharedTile::wait(e);
    storeBlock(firstRow, firstColumn, sums);
  }

  void multiplyTiles(const SharedTile &lhs, const SharedTile &rhs, SmallVector<Value> &sums) {
    Value lhsAddress = lhs.lhsAddress(e, warpRow);
    Value rhsAddress =
        isRhsRowMajor ? rhs.rhsTransposedAddress(e, e.i32(0), warpColumn) : rhs.rhsAddress(e, warpColumn);
    for (int64_t step = 0; step < depth; step += 16) {
      SmallVector<SmallVector<Value>> rows;
      for (int64_t mTile = 0; mTile < mTiles; ++mTile)
        rows.push_back(lhs.loadLhs(e, lhsAddress, 16 * mTile, step));
      for (int64_t tile = 0; tile < nTiles; tile += 2) {
        SmallVector<Value> columns = isRhsRowMajor ? rhs.loadRhsTransposed(e, rhsAddress, step, 8 * tile)
                                                   : rhs.loadRhs(e, rhsAddress, 8 * tile, step);
        for (int64_t mTile = 0; mTile < mTiles; ++mTile)
          for (int64_t half : {0, 1}) {
            auto first = sums.begin() + (mTile * nTiles + tile + half) * 4;
            SmallVector<Value> old(first, first + 4);
            llvm::copy(mmaSync(e, element, rows[mTile], ArrayRef(columns).slice(2 * half, 2), old), first);
          }
      }
    }
  }

  void storeBlock(Value firstRow, Value firstColumn, ArrayRef<Value> sums) {
    OpOperand &init = *op.getDpsInitOperand(0);
    AffineMap map = op.getMatchingIndexingMap(&init);
    Value row = e.add(firstRow, e.toIndex(e.add(warpRow, laneRow)));
    Value column = e.add(firstColumn, e.toIndex(e.add(warpColumn, laneColumn)));
    for (auto [i, sum] : llvm::enumerate(sums)) {
      int64_t part = static_cast<int64_t>(i), tile = part / 4;
      positions[m] = e.add(row, tile / nTiles * 16 + part % 4 / 2 * 8);
      positions[n] = e.add(column, tile % nTiles * 8 + part % 2);
      e.ifElse(e.andi(e.isLess(positions[m], sizes[m]), e.isLess(positions[n], sizes[n])), [&, sum = sum] {
        SmallVector<Value> at = llvm::map_to_vector(map.getResults(), [&](AffineExpr expr) {
          return affine::expandAffineExpr(e.b, e.loc, expr, positions, {});
        });
        Value before = e.load(init.get(), at);
        e.storeShared(e.truncate(e.addf(e.extend(before), sum), before.getType()), init.get(), at);
      });
    }
  }

  Emitter e;
  linalg::LinalgOp op;
  unsigned m, n, k; ///< loops
  Type element;
  bool isRhsRowMajor = false;
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
      !llvm::all_of(op.getDpsInputs(), isGlobal))
    return false;
  TensorCoreMatmul({b, op.getLoc(), b.getF32Type()}, op, *dims).run();
  return true;
}
