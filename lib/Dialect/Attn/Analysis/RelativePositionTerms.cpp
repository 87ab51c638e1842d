//===- RelativePositionTerms.cpp - What depends on the distance alone -----------------===//
//
// Integers are linear forms of query and key as long as they can be. Sums wrap like those of their type, so that narrowing
// keeps a form; widening does not, but keeps what is a function of the distance.
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

namespace {

/// What a value depends on.
struct Dependence {
  bool isKnown = false;       ///< on batch, head and positions only
  bool isLinear = false;      ///< it is query · q + key · k + what depends on no position
  int64_t query = 0, key = 0; ///< of linear ones
  bool isDistance = false;    ///< of others: whether it is a function of the distance
  bool usesBatch = false, usesHead = false;

  bool isUniform() const { return isKnown && isLinear && query == 0 && key == 0; }
  /// A function of batch, head and distance.
  bool isTerm() const { return isKnown && (isLinear ? query + key == 0 : isDistance); }
};

/// Coefficients stay far from the edge of their type.
constexpr int64_t largest = int64_t(1) << 40;

class Finder {
public:
  explicit Finder(Region &region) : block(region.front()) {
    RegionArguments args = getRegionArguments(region, /*isScore=*/true);
    auto linear = [](int64_t query, int64_t key) {
      Dependence result;
      result.isKnown = result.isLinear = true;
      result.query = query;
      result.key = key;
      return result;
    };
    known[args.query] = linear(1, 0);
    known[args.key] = linear(0, 1);
    known[args.batch] = known[args.head] = linear(0, 0);
    known[args.batch].usesBatch = known[args.head].usesHead = true;
    for (Value capture : args.captures)
      known[capture] = linear(0, 0);
  }

  SmallVector<RelativePositionTerm> find();

private:
  Block &block;
  DenseMap<Value, Dependence> known;

  Dependence of(Operation &op);
  bool isRoot(Value value);
  RelativePositionTerm describe(Value root);
};

} // namespace

Dependence Finder::of(Operation &op) {
  Dependence result;
  bool isRead = isa<tensor::ExtractOp, tensor::DimOp>(op);
  if (op.getNumRegions() != 0 || isa<LengthOp>(op) || (!isRead && !isPure(&op) && !isMemoryEffectFree(&op)))
    return result;
  SmallVector<Dependence, 3> operands;
  for (Value operand : op.getOperands()) {
    operands.push_back(known.lookup(operand));
    if (!operands.back().isKnown)
      return result;
    result.usesBatch |= operands.back().usesBatch;
    result.usesHead |= operands.back().usesHead;
  }
  result.isKnown = true;
  auto combine = [&](int64_t left, int64_t right) {
    result.query = left * operands[0].query + (operands.size() > 1 ? right * operands[1].query : 0);
    result.key = left * operands[0].key + (operands.size() > 1 ? right * operands[1].key : 0);
    result.isLinear = std::abs(result.query) < largest && std::abs(result.key) < largest;
  };
  bool areLinear = llvm::all_of(operands, [](const Dependence &operand) { return operand.isLinear; });
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
  else if (areLinear && (isa<arith::TruncIOp>(op) ||
                         (isa<arith::IndexCastOp>(op) && (op.getOperand(0).getType().isIndex() ||
                                                          op.getOperand(0).getType().isInteger(64)))))
    combine(1, 0);
  else if (llvm::all_of(operands, [](const Dependence &operand) { return operand.isUniform(); }))
    result.isLinear = true;
  else
    result.isDistance = llvm::all_of(operands, [](const Dependence &operand) { return operand.isTerm(); });
  return result;
}

/// Whether a table of `value` is what somebody wants.
bool Finder::isRoot(Value value) {
  Dependence dependence = known.lookup(value);
  bool isNumber = isa<FloatType>(value.getType()) || value.getType().isInteger(32) || value.getType().isInteger(64);
  return isNumber && dependence.isTerm() && !dependence.isUniform() &&
         llvm::any_of(value.getUsers(), [&](Operation *user) {
           return user->getNumResults() != 1 || !known.lookup(user->getResult(0)).isTerm();
         });
}

static unsigned costOf(Operation &op) {
  bool isDivision = isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::FloorDivSIOp,
                        arith::CeilDivSIOp, arith::CeilDivUIOp, arith::DivFOp, arith::RemFOp>(op);
  bool isFunction = isa<math::MathDialect>(op.getDialect()) && !isa<math::AbsFOp, math::AbsIOp, math::FmaOp>(op);
  return isDivision || isFunction || isa<tensor::ExtractOp>(op) ? 16 : 1;
}

RelativePositionTerm Finder::describe(Value root) {
  RelativePositionTerm term;
  term.root = root;
  term.usesBatch = known.lookup(root).usesBatch;
  term.usesHead = known.lookup(root).usesHead;
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
    if (!known.lookup(op.getResult(0)).isUniform())
      term.cost += costOf(op);
  }
  return term;
}

SmallVector<RelativePositionTerm> Finder::find() {
  for (Operation &op : block.without_terminator())
    if (op.getNumResults() == 1)
      known[op.getResult(0)] = of(op);
  SmallVector<RelativePositionTerm> terms;
  for (Operation &op : block.without_terminator())
    if (op.getNumResults() == 1 && isRoot(op.getResult(0)))
      terms.push_back(describe(op.getResult(0)));
  return terms;
}

SmallVector<RelativePositionTerm> saccade::attn::findRelativePositionTerms(Region &region) { return Finder(region).find(); }
