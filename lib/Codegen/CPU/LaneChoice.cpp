//===- LaneChoice.cpp - Choice of the vectorized loop -------------------------===//
//
// Loads dominate the cost of vector code, so the chosen loop is the one along which most operands are contiguous.
//
//===----------------------------------------------------------------------===//
#include "LaneChoice.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace saccade::cpu;

std::optional<vector::CombiningKind> saccade::cpu::combiningKind(Operation *op) {
  using Kind = vector::CombiningKind;
  return llvm::TypeSwitch<Operation *, std::optional<Kind>>(op)
      .Case<arith::AddFOp, arith::AddIOp>([](auto) { return Kind::ADD; })
      .Case<arith::MulFOp, arith::MulIOp>([](auto) { return Kind::MUL; })
      .Case([](arith::MaximumFOp) { return Kind::MAXIMUMF; })
      .Case([](arith::MinimumFOp) { return Kind::MINIMUMF; })
      .Case([](arith::MaxNumFOp) { return Kind::MAXNUMF; })
      .Case([](arith::MinNumFOp) { return Kind::MINNUMF; })
      .Case([](arith::MaxSIOp) { return Kind::MAXSI; })
      .Case([](arith::MinSIOp) { return Kind::MINSI; })
      .Case([](arith::MaxUIOp) { return Kind::MAXUI; })
      .Case([](arith::MinUIOp) { return Kind::MINUI; })
      .Case([](arith::AndIOp) { return Kind::AND; })
      .Case([](arith::OrIOp) { return Kind::OR; })
      .Case([](arith::XOrIOp) { return Kind::XOR; })
      .Default([](Operation *) { return std::nullopt; });
}

std::optional<SmallVector<Combiner>> saccade::cpu::matchCombiners(linalg::LinalgOp op) {
  SmallVector<Combiner> combiners;
  Operation *yield = op.getBlock()->getTerminator();
  for (auto [argument, yielded] : llvm::zip_equal(op.getRegionOutputArgs(), yield->getOperands())) {
    Operation *combiner = yielded.getDefiningOp();
    bool isPlain = combiner && combiner->getBlock() == op.getBlock() && yielded.hasOneUse() && argument.hasOneUse() &&
                   *argument.getUsers().begin() == combiner && combiningKind(combiner);
    if (!isPlain)
      return std::nullopt;
    combiners.push_back({combiner, argument});
  }
  return combiners;
}

std::optional<int64_t> saccade::cpu::stepAlong(AffineExpr expr, unsigned loop, unsigned numLoops) {
  AffineExpr position = getAffineDimExpr(loop, expr.getContext());
  AffineExpr next = expr.replace(position, position + 1);
  auto step = dyn_cast<AffineConstantExpr>(simplifyAffineExpr(next - expr, numLoops, 0));
  return step ? std::optional<int64_t>(step.getValue()) : std::nullopt;
}

unsigned saccade::cpu::widestBits(linalg::LinalgOp op) {
  unsigned bits = 8;
  auto look = [&](Type type) {
    if (type.isIntOrFloat())
      bits = std::max(bits, type.getIntOrFloatBitWidth());
  };
  for (Value operand : op->getOperands())
    look(getElementTypeOrSelf(operand));
  // Values that are the same at all positions stay scalar.
  DenseSet<Value> varying;
  varying.insert_range(op.getBlock()->getArguments());
  for (Operation &inner : *op.getBlock()) {
    if (!isa<linalg::IndexOp>(inner) && inner.getNumRegions() == 0 &&
        llvm::none_of(inner.getOperands(), [&](Value value) { return varying.contains(value); }))
      continue;
    varying.insert_range(inner.getResults());
    for (Type type : inner.getResultTypes())
      look(type);
  }
  return bits;
}

std::optional<int64_t> saccade::cpu::strideAlong(linalg::LinalgOp op, unsigned operand, unsigned loop) {
  constexpr int64_t far = 1 << 20;
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(cast<MemRefType>(op->getOperand(operand).getType()).getStridesAndOffset(strides, offset)))
    return std::nullopt;
  AffineMap map = op.getMatchingIndexingMap(&op->getOpOperand(operand));
  int64_t distance = 0;
  for (auto [position, expr] : llvm::enumerate(map.getResults())) {
    std::optional<int64_t> step = stepAlong(expr, loop, map.getNumDims());
    if (!step)
      return std::nullopt;
    bool isInner = position + 1 == strides.size();
    int64_t stride = strides[position];
    distance += *step * (!ShapedType::isDynamic(stride) ? stride : isInner ? 1 : far);
  }
  return distance;
}

/// Cost of vectorizing `loop` in units of strided accesses, or nullopt if it cannot be vectorized.
static std::optional<unsigned> costOf(linalg::LinalgOp op, unsigned loop, unsigned lanes, bool hasCombiners) {
  bool isReduction = op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction;
  if (isReduction && !hasCombiners)
    return std::nullopt;
  unsigned cost = 0;
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    if (!isa<MemRefType>(op->getOperand(i).getType()))
      continue;
    bool isOutput = i >= op.getNumDpsInputs();
    std::optional<int64_t> distance = strideAlong(op, i, loop);
    if (!distance || (isOutput && (distance == 0) != isReduction))
      return std::nullopt;
    // A scatter costs more than a gather.
    if (distance != 0 && distance != 1)
      cost += isOutput ? 12 : 8;
  }
  // Short loops leave lanes unused.
  int64_t extent = op.getStaticLoopRanges()[loop];
  if (!ShapedType::isDynamic(extent) && extent < lanes)
    cost += extent == 1 ? 40 : 6;
  return cost;
}

std::optional<unsigned> saccade::cpu::chooseLaneLoop(linalg::LinalgOp op, unsigned lanes) {
  bool hasCombiners = matchCombiners(op).has_value();
  std::optional<unsigned> best;
  unsigned bestCost = 0;
  for (unsigned loop = op.getNumLoops(); loop-- > 0;) {
    std::optional<unsigned> cost = costOf(op, loop, lanes, hasCombiners);
    if (cost && (!best || *cost < bestCost)) {
      best = loop;
      bestCost = *cost;
    }
  }
  return best;
}
