//===- LowerContraction.cpp - Register-blocked matmul of linalg ops -----------===//
//
// Lowers linalg contractions on buffers to packing loops and the microkernels that attention uses. Matmuls with a
// prepacked RHS are lowered by LowerPackedMatmul.
//
//===----------------------------------------------------------------------===//
#include "Microkernel.h"
#include "Pack.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Dialect/Attn/Analysis/Matmul.h"
#include "llvm/Support/MathExtras.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERCONTRACTION
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

namespace {

/// Rewrites one contraction: C[m, n] += Σ_k A[m, k] · B[n, k] over one m, n and k loop, inside loops over the others.
class ContractionLowering {
public:
  ContractionLowering(Emitter e, linalg::LinalgOp op) : e(e), op(op) {}
  void run(const linalg::ContractionDimensions &dims);

private:
  Emitter e;
  linalg::LinalgOp op;

  Value matrix(OpOperand *operand, unsigned rowLoop, unsigned columnLoop, ArrayRef<Value> at);
  Value block(Value matrix, Value row, Value rows, Value column, Value columns);
  void multiply(Value a, Value b, Value c);
  void multiplyBlock(Value a, Value b, Value rows, Value columns, Value depth);

  unsigned packingFactor;
  int64_t panel, maxRows, maxColumns, maxDepth;
  Value packedA, packedB, tile;
};

/// A view of `operand` as a matrix over two loops, at the indices `at` of all others.
Value ContractionLowering::matrix(OpOperand *operand, unsigned rowLoop, unsigned columnLoop, ArrayRef<Value> at) {
  auto type = cast<MemRefType>(operand->get().getType());
  SmallVector<OpFoldResult> offsets, sizes, strides(type.getRank(), e.b.getIndexAttr(1));
  SmallVector<int64_t> shape;
  bool isTransposed = false;
  for (auto [i, expr] : llvm::enumerate(op.getMatchingIndexingMap(operand).getResults())) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    bool isKept = loop == rowLoop || loop == columnLoop;
    if (isKept && shape.empty())
      isTransposed = loop == columnLoop;
    if (isKept)
      shape.push_back(type.getDimSize(i));
    offsets.push_back(isKept ? OpFoldResult(e.b.getIndexAttr(0)) : OpFoldResult(at[loop]));
    sizes.push_back(isKept ? memref::getMixedSize(e.b, e.loc, operand->get(), i) : e.b.getIndexAttr(1));
  }
  MemRefType reduced = memref::SubViewOp::inferRankReducedResultType(shape, type, offsets, sizes, strides);
  Value view = memref::SubViewOp::create(e.b, e.loc, reduced, operand->get(), offsets, sizes, strides);
  return isTransposed ? emitTransposed(e, view) : view;
}

Value ContractionLowering::block(Value matrix, Value row, Value rows, Value column, Value columns) {
  SmallVector<OpFoldResult> strides(2, e.b.getIndexAttr(1));
  return memref::SubViewOp::create(e.b, e.loc, matrix, getAsOpFoldResult(ValueRange{row, column}),
                                   getAsOpFoldResult(ValueRange{rows, columns}), strides);
}

/// tile += a · bᵀ for blocks that fit the scratch.
void ContractionLowering::multiplyBlock(Value a, Value b, Value rows, Value columns, Value depth) {
  emitPackRows(e, a, rows, e.roundUp(rows, rowGroup), packedA, packingFactor);
  emitPackPanels(e, b, columns, packedB, packingFactor);
  RegisterBlock full = panelBlock(e.target, /*isTail=*/false), tail = panelBlock(e.target, /*isTail=*/true);
  // Rows are padded to whole groups, so tail blocks stay in bounds of the scratch.
  Value fullEnd = e.roundDown(rows, rowGroup);
  e.loop(e.index(0), e.ceilDiv(columns, panel), 1, [&](Value p) {
    auto multiplyRows = [&](Value row, RegisterBlock registers) {
      emitMicrokernelInto(
          e, registers, packingFactor, e.ceilDiv(depth, packingFactor), tile, row, e.mul(p, panel),
          [&](unsigned i, Value k) { return e.load(packedA, {e.add(row, i), k}); },
          [&](Value k, unsigned j) { return e.loadVector(packedB, {p, k, e.index(j * e.lanes())}); });
    };
    e.loop(e.index(0), fullEnd, full.rows, [&](Value row) { multiplyRows(row, full); });
    e.loop(fullEnd, rows, tail.rows, [&](Value row) { multiplyRows(row, tail); });
  });
}

/// c += a · bᵀ, block by block. A block of c is kept in the compute type over the whole reduction and converted once.
void ContractionLowering::multiply(Value a, Value b, Value c) {
  Value rows = e.size(c, 0), columns = e.size(c, 1), depth = e.size(a, 1);
  e.loop(e.index(0), columns, maxColumns, [&](Value column) {
    Value columnCount = e.min(e.sub(columns, column), e.index(maxColumns));
    e.loop(e.index(0), rows, maxRows, [&](Value row) {
      Value rowCount = e.min(e.sub(rows, row), e.index(maxRows));
      Value result = block(c, row, rowCount, column, columnCount);
      emitPackRows(e, result, rowCount, rowCount, tile, /*packingFactor=*/1);
      e.loop(e.index(0), depth, maxDepth, [&](Value k) {
        Value depthCount = e.min(e.sub(depth, k), e.index(maxDepth));
        multiplyBlock(block(a, row, rowCount, k, depthCount), block(b, column, columnCount, k, depthCount), rowCount,
                      columnCount, depthCount);
      });
      emitUnpackRows(e, tile, result);
    });
  });
}

void ContractionLowering::run(const linalg::ContractionDimensions &dims) {
  unsigned m = dims.m.back(), n = dims.n.back(), k = dims.k.back();
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  auto atMost = [&](int64_t limit, unsigned loop) {
    return ShapedType::isDynamic(extents[loop]) ? limit : std::clamp<int64_t>(extents[loop], 1, limit);
  };
  MatmulBlock block = getMatmulBlock(op);
  panel = 2 * e.lanes();
  maxRows = atMost(block.rows, m);
  maxColumns = atMost(block.columns, n);
  packingFactor =
      e.target.packingFactor(getElementTypeOrSelf(op.getDpsInputs()[0]), getElementTypeOrSelf(op.getDpsInputs()[1]));
  maxDepth = llvm::alignTo(atMost(block.depth, k), packingFactor);
  int64_t panels = llvm::divideCeil(maxColumns, panel), paddedRows = llvm::alignTo(maxRows, rowGroup);
  packedA = e.alloc({paddedRows, maxDepth / packingFactor});
  packedB = e.alloc({panels, maxDepth / packingFactor, panel});
  tile = e.alloc({paddedRows, panels * panel});

  SmallVector<Range> ranges = op.createLoopRanges(e.b, e.loc);
  SmallVector<Value> at(ranges.size());
  std::function<void(unsigned)> nest = [&](unsigned loop) {
    if (loop == ranges.size()) {
      OpOperand *lhs = op.getDpsInputOperand(0), *rhs = op.getDpsInputOperand(1);
      // The operand whose map contains m is the LHS.
      if (!op.getMatchingIndexingMap(lhs).isFunctionOfDim(m))
        std::swap(lhs, rhs);
      return multiply(matrix(lhs, m, k, at), matrix(rhs, n, k, at), matrix(op.getDpsInitOperand(0), m, n, at));
    }
    if (loop == m || loop == n || loop == k)
      return nest(loop + 1);
    e.loop(e.index(0), getValueOrCreateConstantIndexOp(e.b, e.loc, ranges[loop].size), 1, [&](Value i) {
      at[loop] = i;
      nest(loop + 1);
    });
  };
  nest(0);
}

struct LowerContraction : saccade::impl::LowerContractionBase<LowerContraction> {
  using LowerContractionBase::LowerContractionBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isMatmul(op) && op.hasPureBufferSemantics())
        ops.push_back(op);
    });
    for (linalg::LinalgOp op : ops) {
      // 16-bit operands accumulate in f32.
      bool isF64 = llvm::any_of(op->getOperandTypes(), [](Type type) { return getElementTypeOrSelf(type).isF64(); });
      OpBuilder b(op);
      FloatType type = isF64 ? FloatType(b.getF64Type()) : FloatType(b.getF32Type());
      ContractionLowering({b, op.getLoc(), *cpu, type}, op).run(*linalg::inferContractionDims(op));
      op.erase();
    }
  }
};

} // namespace
