//===- SkipMaskedTiles.cpp - Skip empty key tiles -----------------------------===//
//
// Guards each key tile by a run-time test if the loop bounds do not express the whole mask. Kernels of GPUs cut the key
// tile further and emit their own tests, so there the op captures the tables that the tests read. The pass runs after
// TileKeys, which creates the tiles, and before TileLinalg, which tiles the tables.
//
//===----------------------------------------------------------------------===//
#include "MaskTables.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Dialect/Attn/Analysis/RuntimeMaskInputs.h"
#include "saccade/Dialect/Attn/IR/Position.h"
#include "saccade/Tiling/Passes.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Debug.h"

namespace saccade {
#define GEN_PASS_DEF_SKIPMASKEDTILES
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The interval of positions or heads that `operand` covers, from `first` on.
static Interval extent(StagedIntBuilder &numbers, Value operand, DimsAttr dims, Dim dim, Value first) {
  StagedInt at = numbers.fromValue(first);
  if (!dims.position(dim))
    return at;
  numbers.setInsertionPointFor(operand);
  OpFoldResult size = getDimSize(*numbers.getBuilder(), numbers.getLoc(), operand, dims, dim);
  std::optional<int64_t> constant = getConstantIntValue(size);
  StagedInt number = constant ? StagedInt(*constant) : StagedInt(cast<Value>(size), 48);
  return {at, numbers.add(at, numbers.sub(number, 1))};
}

/// Emits the classification of the key tile of `op`.
static Coverage classify(AccumulateOp op, StagedIntBuilder &numbers, RuntimeMaskInputs::BlockMinMax tables) {
  Position at = emitPosition(*numbers.getBuilder(), numbers.getLoc(), op);
  MaskBox box{numbers.fromValue(at.batch), extent(numbers, op.getQuery(), op.getQueryDims(), Dim::Head, at.head),
              extent(numbers, op.getQuery(), op.getQueryDims(), Dim::Seq, at.query),
              extent(numbers, op.getKey(), op.getKeyDims(), Dim::Seq, at.key)};
  RuntimeMaskInputs inputs(op, std::move(tables));
  return analyzeMask(op.getMask(), box, inputs, numbers);
}

static void test(AccumulateOp op, MaskTables &tables) {
  Location loc = op.getLoc();
  OpBuilder b(op);
  StagedIntBuilder numbers(b, loc, op->getParentOfType<scf::ForOp>());
  Coverage coverage = classify(op, numbers, [&](Value capture) { return tables.of(capture, op); });
  if (coverage.mayHold.isConstant(1))
    return;
  Value mayHold = numbers.materialize(coverage.mayHold, /*isTruth=*/true);
  b.setInsertionPointAfter(op);
  auto branch = scf::IfOp::create(b, loc, op->getResultTypes(), mayHold, /*withElseRegion=*/true);
  op->replaceAllUsesWith(branch);
  b.setInsertionPointToStart(branch.thenBlock());
  op->moveBefore(scf::YieldOp::create(b, loc, op->getResults()));
  b.setInsertionPointToStart(branch.elseBlock());
  SmallVector<Value> before = llvm::map_to_vector(
      op->getResults(), [&](Value result) { return op.getTiedOpOperand(cast<OpResult>(result))->get(); });
  scf::YieldOp::create(b, loc, before);
}

/// Adds the tables that a test of `op` reads to its captures.
static void captureTables(AccumulateOp op, MaskTables &tables) {
  // Emits the test, and erases it, to see which captures it reads.
  OpBuilder b(op);
  auto scratch = scf::ExecuteRegionOp::create(b, op.getLoc(), TypeRange());
  b.createBlock(&scratch.getRegion());
  StagedIntBuilder numbers(b, op.getLoc());
  llvm::SmallSetVector<Value, 4> read;
  Coverage coverage = classify(op, numbers, [&](Value capture) {
    read.insert(capture);
    return std::pair(capture, capture);
  });
  bool isKnown = !coverage.mayHold.isConstant(1) || !coverage.mayFail.isConstant(1);
  scratch.erase();
  if (read.empty() || !isKnown)
    return;
  SmallVector<unsigned> captures;
  for (auto [i, capture] : llvm::enumerate(op.getCaptures()))
    if (read.remove(capture))
      captures.push_back(i);
  RuntimeMaskInputs::attachTables(op, captures, [&](Value capture) { return tables.of(capture, op); });
}

namespace {

struct SkipMaskedTiles : saccade::impl::SkipMaskedTilesBase<SkipMaskedTiles> {
  using SkipMaskedTilesBase::SkipMaskedTilesBase;

  void runOnOperation() override {
    SmallVector<AccumulateOp> ops;
    getOperation().walk([&](AccumulateOp op) {
      bool isOnTensors = op->getNumResults() != 0;
      if (isOnTensors && !op.getMask().empty() && !KeyBounds(cast<ScoringOpInterface>(op.getOperation())).isExact())
        ops.push_back(op);
    });
    DEBUG_WITH_TYPE("attn-skip-masked-tiles", llvm::dbgs() << "testing the tiles of " << ops.size() << " key loops\n");
    MaskTables tables;
    for (AccumulateOp op : ops)
      (gpu ? captureTables : test)(op, tables);
  }
};

} // namespace
