//===- SkipMaskedTiles.cpp - Tiles of keys that a mask leaves empty or full ---===//
//
// Puts a test in front of each step over keys whose mask says more than the bounds of the loop. It stands after
// TileKeys, which makes the steps, and before TileLinalg, which cuts the tables that the tests read.
//
//===----------------------------------------------------------------------===//
#include "MaskTables.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Dialect/Attn/Analysis/EmittedInputs.h"
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "saccade/Tiling/Passes.h"

namespace saccade {
#define GEN_PASS_DEF_SKIPMASKEDTILES
#include "saccade/Tiling/Passes.h.inc"
} // namespace saccade

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

/// The positions or heads that `operand` covers, from `at` on.
static Interval extent(NumberBuilder &numbers, Value operand, DimsAttr dims, Dim dim, Number at) {
  if (!dims.position(dim))
    return at;
  numbers.setInsertionPointFor(operand);
  OpFoldResult size = getDimSize(*numbers.getBuilder(), numbers.getLoc(), operand, dims, dim);
  std::optional<int64_t> constant = getConstantIntValue(size);
  Number number = constant ? Number(*constant) : Number(cast<Value>(size), 48);
  return {at, numbers.add(at, numbers.sub(number, 1))};
}

/// `build` gives the state in the branch where `condition` holds; elsewhere it stays as `otherwise` gives it.
static scf::IfOp emitBranch(OpBuilder &b, Location loc, Value condition, TypeRange types,
                            function_ref<ValueRange()> build, function_ref<ValueRange()> otherwise) {
  auto branch = scf::IfOp::create(b, loc, types, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loc, build());
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, otherwise());
  return branch;
}

static void test(AccumulateOp op, MaskTables &tables) {
  Location loc = op.getLoc();
  OpBuilder b(op);
  auto loop = op->getParentOfType<scf::ForOp>();
  NumberBuilder numbers(b, loc, loop);
  Number at[4];
  for (auto [i, position] : llvm::enumerate(op.getAt()))
    at[i] = numbers.fromValue(position);
  MaskBox box{at[0], extent(numbers, op.getQuery(), op.getQueryDims(), Dim::Head, at[1]),
              extent(numbers, op.getQuery(), op.getQueryDims(), Dim::Seq, at[2]),
              extent(numbers, op.getKey(), op.getKeyDims(), Dim::Seq, at[3])};
  EmittedInputs inputs(op, [&](Value capture) { return tables.of(capture, op); });
  Coverage coverage = analyzeMask(op.getMask(), box, inputs, numbers);

  Value mayHold = numbers.materialize(coverage.mayHold, /*isTruth=*/true);
  Value mayFail = numbers.materialize(coverage.mayFail, /*isTruth=*/true);
  bool canBeEmpty = !coverage.mayHold.isConstant(1), canBeFull = !coverage.mayFail.isConstant(1);
  if (!canBeEmpty && !canBeFull)
    return;
  b.setInsertionPointAfter(op);
  SmallVector<Value> before = llvm::map_to_vector(
      op->getResults(), [&](Value result) { return op.getTiedOpOperand(cast<OpResult>(result))->get(); });
  SmallVector<OpOperand *> uses = llvm::map_to_vector(op->getUses(), [](OpOperand &use) { return &use; });
  TypeRange types = op->getResultTypes();
  auto masked = [&]() -> ValueRange {
    op->moveBefore(b.getInsertionBlock(), b.getInsertionPoint());
    return op->getResults();
  };
  auto unmasked = [&]() -> ValueRange {
    auto full = cast<AccumulateOp>(b.clone(*op));
    full.getMask().getBlocks().clear();
    return full->getResults();
  };
  auto whole = [&]() -> ValueRange {
    return canBeFull ? ValueRange(emitBranch(b, loc, mayFail, types, masked, unmasked).getResults()) : masked();
  };
  auto untouched = [&]() -> ValueRange { return before; };
  ValueRange results =
      canBeEmpty ? ValueRange(emitBranch(b, loc, mayHold, types, whole, untouched).getResults()) : whole();
  for (OpOperand *use : uses)
    use->set(results[cast<OpResult>(use->get()).getResultNumber()]);
}

namespace {

struct SkipMaskedTiles : saccade::impl::SkipMaskedTilesBase<SkipMaskedTiles> {
  void runOnOperation() override {
    SmallVector<AccumulateOp> ops;
    getOperation().walk([&](AccumulateOp op) {
      bool isOnTensors = op->getNumResults() != 0;
      if (isOnTensors && !op.getMask().empty() && !KeyBounds(cast<ScoringOpInterface>(op.getOperation())).isExact())
        ops.push_back(op);
    });
    MaskTables tables;
    for (AccumulateOp op : ops)
      test(op, tables);
  }
};

} // namespace
