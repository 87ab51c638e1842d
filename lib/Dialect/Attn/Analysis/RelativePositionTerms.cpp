//===- RelativePositionTerms.cpp - Terms of the relative position -------------===//
//
// Tracks integers as linear forms of query and key. Forms wrap like their type, so truncation keeps a form; extension
// does not, but a function of the distance stays one.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/RelativePositionTerms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace saccade::attn;

/// Bound of the coefficients, so that their sums do not overflow.
static constexpr int64_t largest = int64_t(1) << 40;

PositionDependences::PositionDependences(Region &region, unsigned numbers) {
  RegionArguments args = getRegionArguments(region, numbers);
  auto linear = [](int64_t query, int64_t key) {
    PositionDependence result;
    result.isKnown = result.isLinear = true;
    result.query = query, result.usesQuery = query != 0;
    result.key = key, result.usesKey = key != 0;
    return result;
  };
  known[args.query] = linear(1, 0);
  known[args.key] = linear(0, 1);
  known[args.batch] = known[args.head] = linear(0, 0);
  known[args.batch].usesBatch = known[args.head].usesHead = true;
  for (Value capture : args.captures)
    known[capture] = linear(0, 0);
  for (Operation &op : region.front().without_terminator())
    if (op.getNumResults() == 1)
      known[op.getResult(0)] = of(op);
}

PositionDependence PositionDependences::of(Operation &op) const {
  PositionDependence result;
  bool isRead = isa<tensor::ExtractOp, tensor::DimOp>(op);
  if (op.getNumRegions() != 0 || isa<LengthOp>(op) || (!isRead && !isPure(&op) && !isMemoryEffectFree(&op)))
    return result;
  SmallVector<PositionDependence, 3> operands;
  for (Value operand : op.getOperands()) {
    operands.push_back(of(operand));
    if (!operands.back().isKnown)
      return result;
    result.usesBatch |= operands.back().usesBatch;
    result.usesHead |= operands.back().usesHead;
    result.usesQuery |= operands.back().usesQuery;
    result.usesKey |= operands.back().usesKey;
  }
  result.isKnown = true;
  auto combine = [&](int64_t a, int64_t c) {
    result.query = a * operands[0].query + (operands.size() > 1 ? c * operands[1].query : 0);
    result.key = a * operands[0].key + (operands.size() > 1 ? c * operands[1].key : 0);
    result.isLinear = std::abs(result.query) < largest && std::abs(result.key) < largest;
  };
  bool areLinear = llvm::all_of(operands, [](const PositionDependence &operand) { return operand.isLinear; });
  APInt factor;
  auto isSmall = [&](Value value) {
    return matchPattern(value, m_ConstantInt(&factor)) && factor.abs().ult(uint64_t(1) << 20);
  };
  if (areLinear && isa<arith::AddIOp>(op))
    combine(1, 1);
  else if (areLinear && isa<arith::SubIOp>(op))
    combine(1, -1);
  else if (areLinear && isa<arith::MulIOp>(op) && isSmall(op.getOperand(1)))
    combine(factor.getSExtValue(), 0);
  else if (areLinear && isa<arith::MulIOp>(op) && isSmall(op.getOperand(0)))
    combine(0, factor.getSExtValue());
  else if (areLinear &&
           (isa<arith::TruncIOp>(op) || (isa<arith::IndexCastOp>(op) && (op.getOperand(0).getType().isIndex() ||
                                                                         op.getOperand(0).getType().isInteger(64)))))
    combine(1, 0);
  else if (llvm::all_of(operands, [](const PositionDependence &operand) { return operand.isUniform(); }))
    result.isLinear = true;
  else
    result.isDistance = llvm::all_of(operands, [](const PositionDependence &operand) { return operand.isTerm(); });
  return result;
}

static unsigned costOf(Operation &op) {
  bool isDivision = isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::FloorDivSIOp,
                        arith::CeilDivSIOp, arith::CeilDivUIOp, arith::DivFOp, arith::RemFOp>(op);
  bool isFunction = isa<math::MathDialect>(op.getDialect()) && !isa<math::AbsFOp, math::AbsIOp, math::FmaOp>(op);
  return isDivision || isFunction || isa<tensor::ExtractOp>(op) ? 16 : 1;
}

namespace {

class Finder {
public:
  Finder(Region &region, unsigned numbers) : block(region.front()), known(region, numbers) {}
  SmallVector<RelativePositionTerm> find();

private:
  Block &block;
  PositionDependences known;

  bool isRoot(Value value);
  RelativePositionTerm describe(Value root);
};

} // namespace

/// Whether `value` is a maximal term: a number with a user that is not a term.
bool Finder::isRoot(Value value) {
  PositionDependence dependence = known.of(value);
  bool isNumber = isa<FloatType>(value.getType()) || value.getType().isInteger(32) || value.getType().isInteger(64);
  return isNumber && dependence.isTerm() && !dependence.isUniform() &&
         llvm::any_of(value.getUsers(), [&](Operation *user) {
           return user->getNumResults() != 1 || !known.of(user->getResult(0)).isTerm();
         });
}

RelativePositionTerm Finder::describe(Value root) {
  RelativePositionTerm term;
  term.root = root;
  term.usesBatch = known.of(root).usesBatch;
  term.usesHead = known.of(root).usesHead;
  llvm::SetVector<Operation *> needed;
  needed.insert(root.getDefiningOp());
  for (unsigned i = 0; i < needed.size(); ++i)
    for (Value operand : needed[i]->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        needed.insert(producer);
  for (Operation &op : block) {
    if (!needed.contains(&op))
      continue;
    term.ops.push_back(&op);
    if (!known.of(op.getResult(0)).isUniform())
      term.cost += costOf(op);
  }
  return term;
}

SmallVector<RelativePositionTerm> Finder::find() {
  SmallVector<RelativePositionTerm> terms;
  for (Operation &op : block.without_terminator())
    if (op.getNumResults() == 1 && isRoot(op.getResult(0)))
      terms.push_back(describe(op.getResult(0)));
  return terms;
}

SmallVector<RelativePositionTerm> saccade::attn::findRelativePositionTerms(Region &region, unsigned numbers) {
  return Finder(region, numbers).find();
}
