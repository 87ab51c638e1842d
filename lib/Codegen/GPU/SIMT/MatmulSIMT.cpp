//===- MatmulSIMT.cpp - Matmuls without tensor cores --------------------------===//
//
// Stages LHS and RHS of a block in shared memory, so that global memory is read once per block. The rows and columns of
// a thread are strided, so that adjacent threads access adjacent addresses.
//
//===----------------------------------------------------------------------===//
#include "MatmulSIMT.h"
#include "../BufferAnalysis.h"
#include "../ElementOp.h"
#include "../SharedMemory.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "saccade/Support/Kernels.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::device;

/// The largest block of a CTA and the smallest one, of which a thread has one row, and the steps of k in shared memory.
static constexpr int64_t maxBlock = 64, minBlock = 16, depth = 16;
static constexpr int64_t rowThreads = 16, columnThreads = 8;
static_assert(rowThreads * columnThreads == threadsPerCTA);
/// Steps of the reduced dimension that are added in a chain.
static constexpr int64_t sumLength = 128;

namespace {

class MatmulSIMT {
public:
  MatmulSIMT(const Emitter &e, linalg::LinalgOp op, linalg::ContractionDimensions dims)
      : e(e), op(op), m(dims.m.back()), n(dims.n.back()), k(dims.k.front()) {
    // Smaller blocks for small results, such as those of a triangular inverse.
    std::optional<int64_t> rows = boundOfExtent(op, m), columns = boundOfExtent(op, n);
    if (rows && columns)
      while (blockSize > minBlock && std::max(*rows, *columns) <= blockSize / 2)
        blockSize /= 2;
    threadRows = blockSize / rowThreads, threadColumns = blockSize / columnThreads, pitch = blockSize + 1;
  }

  void run() {
    for (Range range : op.createLoopRanges(e.b, e.loc))
      sizes.push_back(e.toI32(getValueOrCreateConstantIndexOp(e.b, e.loc, range.size)));
    positions.resize(sizes.size());
    isResultZero = takeZeroFill(op);
    // The barrier before the first load separates the matmuls of a kernel.
    lhs = getShared(e, "lhs", e.type, depth * (maxBlock + 1));
    rhs = getShared(e, "rhs", e.type, depth * (maxBlock + 1));
    row = e.div(e.thread(), columnThreads);
    column = e.rem(e.thread(), columnThreads);
    SmallVector<unsigned> around;
    op.getParallelDims(around);
    llvm::erase_if(around, [&](unsigned loop) { return loop == m || loop == n; });
    loopAround(around);
  }

private:
  /// Emits the batch loops `rest`, which all threads execute, around the loops over blocks.
  void loopAround(ArrayRef<unsigned> rest) {
    if (!rest.empty()) {
      e.loop(e.i32(0), sizes[rest.front()], 1, [&](Value position) {
        positions[rest.front()] = e.toIndex(position);
        loopAround(rest.drop_front());
      });
      return;
    }
    e.loop(e.i32(0), sizes[m], blockSize, [&](Value firstRow) {
      e.loop(e.i32(0), sizes[n], blockSize, [&](Value firstColumn) { computeBlock(firstRow, firstColumn); });
    });
  }

  void computeBlock(Value firstRow, Value firstColumn) {
    SmallVector<Value> zeros(threadRows * threadColumns, e.scalar(0.0));
    // Parts of the sum are added apart: the rounding error of one chain would grow with its length.
    SmallVector<Value> sums = e.loop(e.i32(0), sizes[k], sumLength, zeros, [&](Value begin, ValueRange before) {
      Value end = e.min(e.add(begin, sumLength), sizes[k]);
      SmallVector<Value> part = e.loop(begin, end, depth, zeros, [&](Value first, ValueRange carried) {
        e.barrier();
        loadToShared(*op.getDpsInputOperand(0), m, firstRow, first, lhs);
        loadToShared(*op.getDpsInputOperand(1), n, firstColumn, first, rhs);
        e.barrier();
        return e.loop(e.i32(0), e.i32(depth), 1, carried,
                      [&](Value step, ValueRange running) { return multiply(step, running); });
      });
      for (auto [sum, old] : llvm::zip_equal(part, before))
        sum = e.addf(old, sum);
      return part;
    });
    OpOperand &init = *op.getDpsInitOperand(0);
    for (int64_t r = 0; r < threadRows; ++r)
      for (int64_t c = 0; c < threadColumns; ++c) {
        Value i = e.add(firstRow, e.add(row, r * rowThreads)), j = e.add(firstColumn, e.add(column, c * columnThreads));
        e.ifElse(e.andi(e.isLess(i, sizes[m]), e.isLess(j, sizes[n])), [&] {
          positions[m] = e.toIndex(i);
          positions[n] = e.toIndex(j);
          SmallVector<Value> at = subscripts(init);
          Value sum = sums[r * threadColumns + c];
          if (!isResultZero)
            sum = e.addf(e.extend(e.load(init.get(), at)), sum);
          e.store(e.truncate(sum, getElementTypeOrSelf(init.get())), init.get(), at);
        });
      }
  }

  /// Loads a block of an operand to shared memory, for k in [firstStep, firstStep + depth), k-major. Elements outside
  /// of the operand are 0.
  void loadToShared(OpOperand &operand, unsigned loop, Value first, Value firstStep, Value shared) {
    // Adjacent threads read adjacent addresses.
    AffineMap map = op.getMatchingIndexingMap(&operand);
    bool isAlongSteps = map.getResult(map.getNumResults() - 1) == getAffineDimExpr(k, map.getContext());
    for (int64_t offset = 0; offset < blockSize * depth; offset += threadsPerCTA) {
      Value i = e.add(e.thread(), offset);
      Value step = isAlongSteps ? e.rem(i, depth) : e.div(i, blockSize);
      Value place = isAlongSteps ? e.div(i, depth) : e.rem(i, blockSize);
      Value position = e.add(first, place), along = e.add(firstStep, step);
      auto read = [&]() -> SmallVector<Value> {
        positions[loop] = e.toIndex(position);
        positions[k] = e.toIndex(along);
        return {e.extend(e.load(operand.get(), subscripts(operand)))};
      };
      Value isInside = e.andi(e.isLess(position, sizes[loop]), e.isLess(along, sizes[k]));
      Value x = e.choose(isInside, read, [&] { return SmallVector<Value>{e.scalar(0.0)}; })[0];
      LLVM::StoreOp::create(e.b, e.loc, x, e.advance(shared, e.type, e.add(e.mul(step, pitch), place)));
    }
  }

  SmallVector<Value> multiply(Value step, ValueRange sums) {
    auto load = [&](Value shared, Value place, int64_t count, int64_t distance) {
      Value base = e.advance(shared, e.type, e.add(e.mul(step, pitch), place));
      SmallVector<Value> values;
      for (int64_t i = 0; i < count; ++i)
        values.push_back(
            LLVM::LoadOp::create(e.b, e.loc, e.type, e.advance(base, e.type, static_cast<int32_t>(i * distance))));
      return values;
    };
    SmallVector<Value> rows = load(lhs, row, threadRows, rowThreads);
    SmallVector<Value> columns = load(rhs, column, threadColumns, columnThreads);
    SmallVector<Value> next;
    for (auto [i, sum] : llvm::enumerate(sums))
      next.push_back(e.fma(rows[i / threadColumns], columns[i % threadColumns], sum));
    return next;
  }

  SmallVector<Value> subscripts(OpOperand &operand) { return subscriptsOf(e, op, operand, positions); }

  Emitter e;
  linalg::LinalgOp op;
  unsigned m, n, k; ///< loops
  /// The block of a CTA, and the rows and columns of one thread.
  int64_t blockSize = maxBlock, threadRows, threadColumns;
  int64_t pitch;                ///< elements between two k in shared memory; adjacent threads write different banks
  SmallVector<Value> sizes;     ///< of the loops, i32
  SmallVector<Value> positions; ///< in the loops, index
  Value lhs, rhs, row, column;
  bool isResultZero = false;
};

} // namespace

bool device::lowerMatmulSIMT(OpBuilder &b, linalg::LinalgOp op) {
  std::optional<linalg::ContractionDimensions> dims = getMatmulDims(op);
  if (!dims || dims->k.size() != 1)
    return false;
  Type accType = getElementTypeOrSelf(op.getDpsInits()[0]);
  FloatType type = accType.isF64() ? cast<FloatType>(accType) : b.getF32Type();
  MatmulSIMT({b, op.getLoc(), type}, op, *dims).run();
  return true;
}
