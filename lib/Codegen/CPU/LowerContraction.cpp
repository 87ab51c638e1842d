//===- LowerContraction.cpp - Register-blocked matmul of linalg ops -----------===//
//
// Lowers linalg contractions on buffers to packing loops and the microkernels that attention uses. LowerPackedMatmul
// lowers matmuls with a prepacked RHS.
//
//===----------------------------------------------------------------------===//
#include "BlockedMatmul.h"
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
/// The RHS is packed for each block of the result.
class ContractionLowering {
public:
  ContractionLowering(const Emitter &e, linalg::LinalgOp op) : e(e), op(op) {}
  void run(const linalg::ContractionDimensions &dims);

private:
  Emitter e;
  linalg::LinalgOp op;

  Value matrix(OpOperand *operand, unsigned rowLoop, unsigned columnLoop, ArrayRef<Value> at);
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

void ContractionLowering::run(const linalg::ContractionDimensions &dims) {
  unsigned m = dims.m.back(), n = dims.n.back(), k = dims.k.back();
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  auto atMost = [&](int64_t limit, unsigned loop) {
    return ShapedType::isDynamic(extents[loop]) ? limit : std::clamp<int64_t>(extents[loop], 1, limit);
  };
  MatmulBlock block = getMatmulBlock(op);
  unsigned packingFactor =
      e.target.packingFactor(getElementTypeOrSelf(op.getDpsInputs()[0]), getElementTypeOrSelf(op.getDpsInputs()[1]));
  int64_t width = 2 * e.lanes();
  block.rows = atMost(block.rows, m);
  block.columns = llvm::alignTo(atMost(block.columns, n), width);
  block.depth = llvm::divideCeil(atMost(block.depth, k), packingFactor);
  BlockedMatmul matmul(e, packingFactor, block);
  Value packed = e.alloc({block.columns / width, block.depth, width});
  auto multiply = [&](Value lhs, Value rhs, Value result) {
    auto begin = [&](Value tile, const ResultBlock &at) {
      emitPackRows(e, emitBlock(e, result, at), at.rows, at.rows, tile, /*packingFactor=*/1);
    };
    matmul.run(
        lhs, result, begin,
        [&](const ResultBlock &at, Value kPack, Value kPacks) {
          Value first = e.mul(kPack, packingFactor);
          Value depth = e.min(e.mul(kPacks, packingFactor), e.sub(e.size(rhs, 1), first));
          emitPackPanels(e, emitBlock(e, rhs, {at.column, at.columns, first, depth}), at.columns, packed,
                         packingFactor);
          return BlockedMatmul::Panels{packed, e.index(0), e.index(0)};
        },
        op->hasAttr(cachedResultAttr));
  };

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
