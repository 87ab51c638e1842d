//===- LowerPackedMatmul.cpp - Matmul with a prepacked RHS --------------------===//
//
// Lowers attn.pack and attn.packed_matmul on buffers to vector loops. LowerContraction lowers the matmuls that pack
// their operands in the same task.
//
//===----------------------------------------------------------------------===//
#include "BlockedMatmul.h"
#include "Microkernel.h"
#include "Pack.h"
#include "Prefetch.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "saccade/Codegen/CPU/Passes.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "llvm/TargetParser/Triple.h"

namespace saccade {
#define GEN_PASS_DEF_LOWERPACKEDMATMUL
#include "saccade/Codegen/CPU/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;
using namespace saccade::cpu;

/// Bytes of L2 that the panels of a block may fill; they are read again for every group of rows.
static constexpr int64_t panelBytes = 640 * 1024;

namespace {

/// Lowers a matmul that reads its LHS without packing.
class PackedMatmul {
public:
  PackedMatmul(const Emitter &e, PackedMatmulOp op)
      : e(e), op(op), lhs(op.getLhs()), panels(op.getPanels()), result(op.getResult()),
        element(getElementTypeOrSelf(op.getResult())), product(Product::of(op.getForm())) {}

  void run();

private:
  void loadInitial(Value column, Value isWhole);
  void addPart(RegisterBlock block, Value row, Value count, bool isCopied, Value begin, Value length, Value p,
               Value place);
  void runInTiles();
  SmallVector<Value> sumPart(RegisterBlock block, ArrayRef<Value> rows, Value p, Value begin, Value length);
  SmallVector<Value> addInitial(RegisterBlock block, ArrayRef<Value> part);
  void storeRows(ArrayRef<Value> sums, ArrayRef<Value> rows, Value column, Value isWhole);
  void computeBlock(RegisterBlock block, ArrayRef<Value> rows, Value p, Value isWhole,
                    function_ref<void(Value begin)> prefetch);

  Emitter e;
  PackedMatmulOp op;
  Value lhs, panels, result;
  Type element;
  const Product &product;
  Value initial;               ///< the bias of the panel's columns; null for 0
  Value partSums;              ///< of a block, over the first parts of the reduced dimension; null if there is one part
  SmallVector<Value> epilogue; ///< matrices that the op after the matmul accesses like `result`
  Value edge;                  ///< one row of a block that extends beyond the last column of the result
  // In tile registers: the sums of a block, each 32 × 32 of them compact, and a packed group of rows.
  std::optional<TileMatmul> tiles;
  Value sums, group;
};

} // namespace

/// initial[c] = bias[column + c] for all columns in bounds.
void PackedMatmul::loadInitial(Value column, Value isWhole) {
  int64_t width = cast<MemRefType>(initial.getType()).getDimSize(0);
  Value bias = op.getBias(), zero = e.index(0);
  auto scalars = [&](Value count) {
    e.loop(zero, count, 1, [&](Value c) { e.store(emitToCompute(e, e.load(bias, e.add(column, c))), initial, c); });
  };
  auto vectors = [&](Value unit) {
    auto type = VectorType::get({e.lanes()}, getElementTypeOrSelf(bias));
    for (int64_t c = 0; c < width; c += e.lanes()) {
      Value part = vector::LoadOp::create(e.b, e.loc, type, unit, ValueRange{e.add(column, c)});
      e.storeVector(emitToCompute(e, part), initial, e.index(c));
    }
  };
  e.ifElse(
      isWhole, [&] { emitByInnerStride(e, bias, vectors, [&] { scalars(e.index(width)); }); },
      [&] { scalars(e.sub(e.size(result, 1), column)); });
}

/// The sums of `rows` in panel p over the k-packs [begin, begin + length).
SmallVector<Value> PackedMatmul::sumPart(RegisterBlock block, ArrayRef<Value> rows, Value p, Value begin,
                                         Value length) {
  SmallVector<Value> zeros(block.rows * block.vectors, e.splat(0.0));
  const KPackProduct &inVectors = Product::ofKPacks(op.getForm());
  return inVectors.multiply(
      e, block, e.index(0), length, zeros,
      [&](unsigned i, Value k) { return inVectors.loadUnpacked(e, lhs, rows[i], e.add(begin, k)); },
      [&](Value k, unsigned j) { return loadAhead(e, panels, p, e.add(begin, k), e.index(j * e.lanes())); });
}

/// The sums of the first part, added to the bias.
SmallVector<Value> PackedMatmul::addInitial(RegisterBlock block, ArrayRef<Value> part) {
  SmallVector<Value> sums(part);
  for (unsigned i = 0; initial && i < sums.size(); ++i)
    sums[i] = e.addf(e.loadVector(initial, e.index(i % block.vectors * e.lanes())), part[i]);
  return sums;
}

/// Computes and stores the results of `rows` in panel p. `prefetch` is called before each part of the sums.
void PackedMatmul::computeBlock(RegisterBlock block, ArrayRef<Value> rows, Value p, Value isWhole,
                                function_ref<void(Value begin)> prefetch) {
  Value zero = e.index(0), column = e.mul(p, 2 * e.lanes()), whole = e.index(sumLength);
  Value kPacks = e.size(panels, 1), last = e.roundDown(e.max(e.sub(kPacks, e.index(1)), zero), sumLength);
  auto addToBefore = [&](ArrayRef<Value> part) { return addBlock(e, block, part, partSums, zero, zero); };
  if (partSums) {
    auto addWhole = [&](Value begin, bool isFirst) {
      prefetch(begin);
      SmallVector<Value> part = sumPart(block, rows, p, begin, whole);
      storeBlock(e, block, isFirst ? addInitial(block, part) : addToBefore(part), partSums, zero, zero);
    };
    // The first part is not in the loop. A branch that selects it is mispredicted: the iterations of the parts between
    // two panels fill the processor's history of branches.
    e.ifElse(e.isLess(zero, last), [&] { addWhole(zero, /*isFirst=*/true); });
    e.loop(whole, last, sumLength, [&](Value begin) { addWhole(begin, /*isFirst=*/false); });
  }
  prefetch(last);
  auto addLast = [&](Value length) {
    SmallVector<Value> part = sumPart(block, rows, p, last, length);
    if (!partSums)
      return addInitial(block, part);
    return e.choose(e.isEqual(last, zero), [&] { return addInitial(block, part); }, [&] { return addToBefore(part); });
  };
  // The loop over a constant length is unrolled.
  Value length = e.sub(kPacks, last);
  SmallVector<Value> sums =
      e.choose(e.isEqual(length, whole), [&] { return addLast(whole); }, [&] { return addLast(length); });
  storeRows(sums, rows, column, isWhole);
  for (Value matrix : epilogue)
    emitPrefetchBlock(e, matrix, rows[0], column, block.rows, 2 * e.lanes());
}

/// Stores sums (row-major) from `column` on, if not `isWhole` those of the columns in bounds.
void PackedMatmul::storeRows(ArrayRef<Value> sums, ArrayRef<Value> rows, Value column, Value isWhole) {
  unsigned vectors = sums.size() / rows.size();
  e.ifElse(
      isWhole,
      [&] {
        for (unsigned i = 0; i < rows.size(); ++i)
          for (unsigned j = 0; j < vectors; ++j)
            e.storeVector(emitFromCompute(e, sums[i * vectors + j], element), result,
                          {rows[i], e.add(column, j * e.lanes())});
      },
      [&] {
        for (unsigned i = 0; i < rows.size(); ++i) {
          for (unsigned j = 0; j < vectors; ++j)
            e.storeVector(sums[i * vectors + j], edge, e.index(j * e.lanes()));
          e.loop(e.index(0), e.sub(e.size(result, 1), column), 1, [&](Value c) {
            e.store(emitFromCompute(e, e.load(edge, c), element), result, {rows[i], e.add(column, c)});
          });
        }
      });
}

/// Adds the products of k-packs [begin, begin + length) to the sums of `count` rows from `row` on in panel p, and
/// stores the results after the last ones. Rows are read in place, or if `isCopied`, from `group`.
void PackedMatmul::addPart(RegisterBlock block, Value row, Value count, bool isCopied, Value begin, Value length,
                           Value p, Value place) {
  Value zero = e.index(0), column = e.mul(p, 2 * e.lanes());
  Value isWhole = e.isLess(e.add(column, 2 * e.lanes() - 1), e.size(result, 1));
  auto first = [&]() -> SmallVector<Value> {
    if (!initial)
      return emitZeroTiles(e, block);
    loadInitial(column, isWhole);
    return emitRepeatRow(e, block, initial);
  };
  auto start = [&] {
    return e.choose(e.isEqual(begin, zero), first, [&] { return emitLoadTiles(e, block, sums, place, zero); });
  };
  TileMatmul::Operands operands = {lhs, row, e.mul(begin, product.traits.stride()), e.size(lhs, 1), panels, p, begin};
  if (isCopied)
    operands = {group, zero, zero, length, panels, p, begin};
  tiles->add(block, operands, begin, length, sums, place, zero, start);
  e.ifElse(e.isEqual(e.add(begin, length), e.size(panels, 1)), [&] {
    e.loop(zero, count, 1, [&](Value r) {
      SmallVector<Value> vectors;
      for (unsigned j = 0; j < block.vectors; ++j)
        vectors.push_back(e.loadVector(sums, {e.add(place, r), e.index(j * e.lanes())}));
      storeRows(vectors, e.add(row, r), column, isWhole);
    });
  });
}

/// Computes the results in tile registers. In a part of the sums, a panel and a group of rows take 16 KiB each of L1.
void PackedMatmul::runInTiles() {
  MatmulBlock most;
  int64_t width = 2 * e.lanes(), groups = most.rows / maxTileBlock.rows;
  int64_t elements = product.traits.stride();
  bool isCopied = op.getBlocked() || product.traits.copiesLHS;
  tiles.emplace(e, product.traits);
  sums = e.alloc({groups * most.columns / width * maxTileBlock.rows, width});
  // Padded by a cache line, since rows that are powers of two apart share sets of L1.
  group = e.alloc({maxTileBlock.rows, TileMatmul::part + e.lanes()});
  Value zero = e.index(0), rows = e.size(result, 0), kPacks = e.size(panels, 1), depth = e.size(lhs, 1);
  auto forBlocks = [&](Value end, int64_t size, function_ref<void(Value begin, Value end)> body) {
    e.loop(zero, end, size, [&](Value begin) { body(begin, e.min(end, e.add(begin, size))); });
  };
  Value panelCount = e.ceilDiv(e.size(result, 1), width);
  forBlocks(panelCount, most.columns / width, [&](Value firstPanel, Value endPanel) {
    forBlocks(rows, most.rows, [&](Value firstRow, Value endRow) {
      // Without k-packs the results are the bias.
      forBlocks(e.max(kPacks, e.index(1)), TileMatmul::part, [&](Value begin, Value) {
        Value length = e.min(e.sub(kPacks, begin), e.index(TileMatmul::part));
        auto addGroup = [&](RegisterBlock block, Value row, Value count, bool isCopied) {
          if (isCopied) {
            Value first = e.mul(begin, elements), columns = e.min(e.mul(length, elements), e.sub(depth, first));
            product.packRows(e, emitBlock(e, lhs, {row, count, first, columns}), count, e.index(block.rows), group);
          }
          Value inBlock = e.sub(row, firstRow);
          e.loop(firstPanel, endPanel, 1, [&](Value p) {
            Value place = e.add(e.mul(inBlock, most.columns / width), e.mul(e.sub(p, firstPanel), block.rows));
            addPart(block, row, count, isCopied, begin, length, p, place);
          });
        };
        Value fullEnd = e.add(firstRow, e.roundDown(e.sub(endRow, firstRow), maxTileBlock.rows));
        e.loop(firstRow, fullEnd, maxTileBlock.rows,
               [&](Value row) { addGroup(maxTileBlock, row, e.index(maxTileBlock.rows), isCopied); });
        e.loop(fullEnd, endRow, tailTileBlock.rows, [&](Value row) {
          addGroup(tailTileBlock, row, e.min(e.sub(endRow, row), e.index(tailTileBlock.rows)), /*isCopied=*/true);
        });
      });
    });
  });
}

void PackedMatmul::run() {
  int64_t width = cast<MemRefType>(panels.getType()).getDimSize(2);
  edge = e.alloc({width});
  RegisterBlock full = panelBlock(e.target, /*isTail=*/false), tail = panelBlock(e.target, /*isTail=*/true);
  if (op.getBias())
    initial = e.alloc({width});
  if (product.traits.inTiles)
    return runInTiles();
  epilogue = emitEpilogueMatrices(e, op, result);
  int64_t staticDepth = cast<MemRefType>(panels.getType()).getDimSize(1);
  if (ShapedType::isDynamic(staticDepth) || staticDepth > sumLength)
    partSums = e.alloc({full.rows, width});
  Value rows = e.size(result, 0), columns = e.size(result, 1), zero = e.index(0), one = e.index(1);
  Value panelCount = e.ceilDiv(columns, width), fullEnd = e.roundDown(rows, full.rows);
  // As many panels as fit in L2, in blocks of equal size. A group of rows stays in L1 for all of them.
  int64_t kPacks = panelBytes / (width * e.type.getWidth() / 8);
  Value fitting = e.div(e.index(kPacks), e.max(e.size(panels, 1), one));
  Value blockCount = e.max(e.ceilDiv(panelCount, e.max(fitting, one)), one);
  Value blockPanels = e.max(e.ceilDiv(panelCount, blockCount), one);
  Value nextPanels;
  std::optional<NextStep> nextItem;
  if (e.target.shapes.prefetchesPanels) {
    nextItem.emplace(e, op);
    nextPanels = nextItem->view(panels);
  }
  auto blocks = scf::ForOp::create(e.b, e.loc, zero, panelCount, blockPanels);
  OpBuilder::InsertionGuard guard(e.b);
  e.b.setInsertionPointToStart(blocks.getBody());
  Value begin = blocks.getInductionVar(), end = e.min(panelCount, e.add(begin, blockPanels));
  // In a full group, each part of the sums of a panel prefetches a share of the panels of the next block, which may be
  // one of the next item, and a line of each row of the next group. A loop would cost more than the prefetch gains.
  int64_t line = cacheLine * 8 / getElementTypeOrSelf(lhs).getIntOrFloatBitWidth();
  int64_t panelShare = llvm::divideCeil(sumLength, std::max<int64_t>(MatmulBlock().rows / full.rows, 1));
  Value rowShare = e.roundUp(e.ceilDiv(e.size(lhs, 1), blockPanels), line), isLast = e.isEqual(end, panelCount);
  auto prefetch = [&](Value first, Value p, Value part) {
    Value panel = e.sub(p, begin);
    Value column = e.add(e.mul(panel, rowShare), e.mul(e.div(part, sumLength), line));
    for (unsigned i = 0; i < full.rows; ++i)
      emitPrefetch(e, lhs, e.add(first, full.rows + i), column);
    if (!nextPanels)
      return;
    Value step = e.add(e.mul(e.div(first, int64_t(full.rows)), e.sub(end, begin)), panel);
    Value from = e.mul(e.add(e.mul(step, e.ceilDiv(e.size(panels, 1), sumLength)), e.div(part, sumLength)), panelShare);
    e.ifElse(
        isLast, [&] { emitPrefetchPanel(e, nextPanels, zero, from, panelShare); },
        [&] { emitPrefetchPanel(e, panels, end, from, panelShare); });
  };
  auto group = [&](RegisterBlock block, Value first, bool isClamped) {
    SmallVector<Value> groupRows;
    for (unsigned i = 0; i < block.rows; ++i) {
      Value row = e.add(first, i);
      // Excess rows of the last group recompute the last row.
      groupRows.push_back(emitOpaqueIndex(e, isClamped ? e.min(row, e.sub(rows, one)) : row));
    }
    e.loop(begin, end, 1, [&](Value p) {
      Value column = e.mul(p, width);
      Value isWhole = e.isLess(e.add(column, width - 1), columns);
      if (initial)
        loadInitial(column, isWhole);
      computeBlock(block, groupRows, p, isWhole, [&](Value part) {
        if (e.target.shapes.prefetchesPanels && !isClamped)
          prefetch(first, p, part);
      });
    });
  };
  e.loop(zero, fullEnd, full.rows, [&](Value row) { group(full, row, /*isClamped=*/false); });
  e.loop(fullEnd, rows, tail.rows, [&](Value row) { group(tail, row, /*isClamped=*/true); });
}

/// Lowers a matmul that copies its LHS. Its results are equal to those of PackedMatmul.
static void lowerBlocked(Emitter &e, PackedMatmulOp op) {
  MatmulBlock block;
  block.columns = block.columns * 32 / e.type.getWidth();
  const Product &product = Product::of(op.getForm());
  block.depth = e.target.shapes.copiedPacks / product.traits.kPacks;
  BlockedMatmul matmul(e, product, block);
  int64_t width = 2 * e.lanes();
  Value bias = op.getBias(), start = bias ? e.alloc({block.columns}) : Value(), zero = e.index(0);
  auto begin = [&](Value tile, const ResultBlock &at) {
    if (bias)
      e.loop(zero, at.columns, 1,
             [&](Value c) { e.store(emitToCompute(e, e.load(bias, e.add(at.column, c))), start, c); });
    e.ifElse(e.isEqual(e.size(op.getLhs(), 1), zero), [&] {
      e.loop(zero, at.rows, 1, [&](Value r) {
        e.loop(zero, e.roundUp(at.columns, e.lanes()), e.lanes(),
               [&](Value c) { e.storeVector(bias ? e.loadVector(start, c) : e.splat(0.0), tile, {r, c}); });
      });
    });
  };
  Value nextPanels;
  if (e.target.shapes.prefetchesPanels)
    nextPanels = NextStep(e, op).view(op.getPanels());
  matmul.prefetchEpilogue(emitEpilogueMatrices(e, op, op.getResult()));
  matmul.runFromRow(op.getLhs(), op.getResult(), start, begin, [&](const ResultBlock &at, Value kPack, Value kPacks) {
    Value next = e.target.shapes.prefetchesPanels ? e.add(kPack, kPacks) : Value();
    return BlockedMatmul::Panels{op.getPanels(), e.div(at.column, width), kPack, next, nextPanels};
  });
}

/// Keeps rbp out of the task around a matmul. On Golden Cove loads of 256-bit vectors through rbp are slower: the loop
/// of 6 × 2 registers then runs at 0.92 of its rate. Blocks of twelve rows need the register, and attention is 1 to 2 %
/// slower without it.
static void reserveFramePointer(Operation *op, const CPUTarget &target) {
  auto task = op->getParentOfType<func::FuncOp>();
  if (task && llvm::Triple(target.triple).isX86() && target.vectorBits == 256)
    task->setAttr("frame_pointer", LLVM::FramePointerKindAttr::get(op->getContext(),
                                                                   LLVM::framePointerKind::FramePointerKind::Reserved));
}

namespace {

struct LowerPackedMatmul : saccade::impl::LowerPackedMatmulBase<LowerPackedMatmul> {
  using LowerPackedMatmulBase::LowerPackedMatmulBase;

  void runOnOperation() override {
    const CPUTarget *cpu = requireCPUTarget(getOperation(), target);
    if (!cpu)
      return signalPassFailure();
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<PackOp, PackedMatmulOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      OpBuilder b(op);
      auto emitter = [&](Value panels) -> Emitter {
        return {b, op->getLoc(), *cpu, cast<FloatType>(getElementTypeOrSelf(panels))};
      };
      if (auto pack = dyn_cast<PackOp>(op)) {
        Emitter e = emitter(pack.getPanels());
        Product::of(pack.getForm()).packPanels(e, pack.getSource(), e.size(pack.getSource(), 0), pack.getPanels());
      } else {
        auto matmul = cast<PackedMatmulOp>(op);
        reserveFramePointer(matmul, *cpu);
        Emitter e = emitter(matmul.getPanels());
        const ProductTraits &product = traitsOf(matmul.getForm());
        if ((matmul.getBlocked() || product.copiesLHS) && !product.inTiles)
          lowerBlocked(e, matmul);
        else
          PackedMatmul(e, matmul).run();
      }
      op->erase();
    }
  }
};

} // namespace
