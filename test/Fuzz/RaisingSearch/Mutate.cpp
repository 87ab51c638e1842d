//===- Mutate.cpp - Near misses -------------------------------------------===//
//
// A near miss differs from a graph that is raised by one step: an operand, a map, a constant, a predicate, an op, or an
// op that is missing, repeated or moved at one use. The step must type-check; whether it changes the result is not
// known.
//
//===----------------------------------------------------------------------===//
#include "Mutator.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::search;

OpOperand *Mutator::pickUse(llvm::function_ref<bool(OpOperand &)> predicate) {
  SmallVector<OpOperand *> uses;
  for (Operation *op : ops) {
    if (isSize(op) || op->hasTrait<OpTrait::ConstantLike>() || isa<func::ReturnOp>(op))
      continue;
    for (OpOperand &operand : op->getOpOperands())
      if (!isa_and_nonnull<tensor::EmptyOp>(operand.get().getDefiningOp()) && predicate(operand))
        uses.push_back(&operand);
  }
  return uses.empty() ? nullptr : random.pick(uses);
}

/// The values of `type` that can be operands of `op`.
SmallVector<Value> Mutator::valuesBefore(Operation *op, Type type) {
  SmallVector<Value> values;
  DominanceInfo dominance(function);
  auto add = [&](Value value) {
    if (value.getType() == type && !isUndefined(value) && dominance.properlyDominates(value, op))
      values.push_back(value);
  };
  for (BlockArgument argument : function.getArguments())
    add(argument);
  for (Operation *each : ops) {
    llvm::for_each(each->getResults(), add);
    for (Region &region : each->getRegions())
      for (BlockArgument argument : region.getArguments())
        add(argument);
  }
  return values;
}

//===----------------------------------------------------------------------===//
// Kinds of near misses
//===----------------------------------------------------------------------===//

std::string Mutator::otherOperand() {
  OpOperand *use = pickUse([](OpOperand &) { return true; });
  if (!use)
    return "";
  SmallVector<Value> others = valuesBefore(use->getOwner(), use->get().getType());
  llvm::erase(others, use->get());
  if (others.empty())
    return "";
  use->set(random.pick(others));
  return "operand " + std::to_string(use->getOperandNumber()) + " of " + nameOf(use->getOwner()) + " is another value";
}

std::string Mutator::otherMap() {
  auto op = cast_or_null<linalg::GenericOp>(pickOp([](Operation *op) { return isa<linalg::GenericOp>(op); }));
  if (!op)
    return "";
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  size_t which = random.chance(0.85) ? random.below(op.getNumDpsInputs() + 1) : random.below(maps.size());
  AffineMap map = maps[which % maps.size()];
  SmallVector<AffineExpr> results(map.getResults());
  if (results.empty())
    return "";
  size_t at = random.below(results.size());
  int64_t divisor = 2 + random.below(2);
  switch (random.below(8)) {
  case 0:
    results[at] = b.getAffineConstantExpr(random.below(2));
    break;
  case 1:
    results[at] = random.chance(0.5) ? results[at] % divisor : results[at].floorDiv(divisor);
    break;
  case 2:
  case 3:
    results[at] = b.getAffineDimExpr(random.below(map.getNumDims()));
    break;
  default:
    std::swap(results[at], random.pick(results));
  }
  maps[which % maps.size()] = AffineMap::get(map.getNumDims(), 0, results, b.getContext());
  op.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
  return "map " + std::to_string(which % maps.size()) + " of a generic op";
}

std::string Mutator::otherConstant() {
  OpOperand *use = pickUse([](OpOperand &operand) { return matchPattern(operand.get(), m_Constant()); });
  if (!use)
    return "";
  Attribute old;
  matchPattern(use->get(), m_Constant(&old));
  if (auto splat = dyn_cast<SplatElementsAttr>(old))
    old = splat.getSplatValue<Attribute>();
  Type type = use->get().getType();
  double number = drawNumber(/*mayHide=*/isa<linalg::FillOp, arith::SelectOp, arith::AddFOp>(use->getOwner()));
  if (auto real = dyn_cast<FloatAttr>(old)) {
    double value = real.getValueAsDouble();
    const double changed[] = {number, number, -value, value * 2, value + 1};
    number = random.pick(ArrayRef(changed));
  } else if (auto integer = dyn_cast<IntegerAttr>(old)) {
    int64_t value = integer.getType().isInteger(1) ? integer.getValue().getZExtValue() : integer.getInt();
    const int64_t changed[] = {value + 1, value - 1, -value, 0, 1};
    number = double(integer.getType().isInteger(1) ? 1 - value : random.pick(ArrayRef(changed)));
  } else {
    return "";
  }
  if (isa<RankedTensorType>(type) && !cast<RankedTensorType>(type).hasStaticShape())
    return "";
  b.setInsertionPoint(use->getOwner());
  use->set(constant(type, number));
  return "constant " + std::to_string(number) + " in " + nameOf(use->getOwner());
}

std::string Mutator::otherOp() {
  static const std::vector<std::vector<StringRef>> groups = {
      {"arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf", "arith.minimumf", "arith.maxnumf"},
      {"arith.addi", "arith.subi", "arith.muli", "arith.maxsi", "arith.minsi", "arith.andi", "arith.ori", "arith.xori"},
      {"arith.andi", "arith.ori", "arith.xori"},
      {"math.exp", "math.exp2", "math.log", "math.tanh", "math.sqrt", "math.rsqrt", "math.absf", "arith.negf"},
      {"arith.sitofp", "arith.uitofp"},
      {"arith.extsi", "arith.extui"},
      {"arith.index_cast", "arith.index_castui"}};
  auto inGroup = [](Operation *op) {
    return [op](ArrayRef<StringRef> group) { return llvm::is_contained(group, op->getName().getStringRef()); };
  };
  Operation *op = pickOp([&](Operation *op) { return llvm::any_of(groups, inGroup(op)); });
  if (!op)
    return "";
  const auto &group = *llvm::find_if(groups, inGroup(op));
  StringRef name = random.pick(group);
  if (name == op->getName().getStringRef())
    return "";
  OperationState state(op->getLoc(), name, op->getOperands(), op->getResultTypes());
  b.setInsertionPoint(op);
  std::string what = nameOf(op) + " is " + name.str();
  op->replaceAllUsesWith(b.create(state));
  op->erase();
  return what;
}

std::string Mutator::otherPredicate() {
  Operation *op = pickOp([](Operation *op) { return isa<arith::CmpIOp, arith::CmpFOp>(op); });
  if (!op)
    return "";
  if (auto integers = dyn_cast<arith::CmpIOp>(op))
    integers.setPredicate(arith::CmpIPredicate(random.below(10)));
  else
    cast<arith::CmpFOp>(op).setPredicate(arith::CmpFPredicate(random.below(16)));
  return "predicate of " + nameOf(op);
}

std::string Mutator::swappedOperands() {
  Operation *op = pickOp([](Operation *op) {
    return isa<arith::SubFOp, arith::DivFOp, arith::SelectOp, arith::SubIOp, arith::CmpIOp, arith::CmpFOp>(op);
  });
  if (!op)
    return "";
  unsigned last = op->getNumOperands() - 1;
  Value before = op->getOperand(last - 1);
  op->setOperand(last - 1, op->getOperand(last));
  op->setOperand(last, before);
  return "swapped operands of " + nameOf(op);
}

/// Whether operand `at` may stand for the result of `op`.
bool passesOn(Operation *op, unsigned at) {
  if (op->getNumResults() != 1 || op->getOperand(at).getType() != op->getResult(0).getType() || isSize(op))
    return false;
  auto structured = dyn_cast<linalg::LinalgOp>(op);
  return !structured || at < structured.getNumDpsInputs();
}

/// One use of a result takes an operand instead.
std::string Mutator::skippedOp() {
  bool isTensor = random.chance(0.6);
  OpOperand *use = pickUse([&](OpOperand &operand) {
    Operation *op = operand.get().getDefiningOp();
    return op && (!isTensor || op->getParentOp() == function) &&
           llvm::any_of(llvm::seq<unsigned>(0, op->getNumOperands()), [&](unsigned i) { return passesOn(op, i); });
  });
  if (!use)
    return "";
  Operation *op = use->get().getDefiningOp();
  SmallVector<unsigned> fit = llvm::to_vector(llvm::make_filter_range(llvm::seq<unsigned>(0, op->getNumOperands()),
                                                                      [&](unsigned i) { return passesOn(op, i); }));
  use->set(op->getOperand(random.pick(fit)));
  return nameOf(use->getOwner()) + " skips " + nameOf(op);
}

/// An op of the graph is applied at another use as well.
std::string Mutator::repeatedOp() {
  bool isTensor = random.chance(0.6);
  Operation *op = pickOp([&](Operation *op) {
    return op->getNumOperands() != 0 && (!isTensor || op->getParentOp() == function) &&
           !op->hasTrait<OpTrait::IsTerminator>() &&
           llvm::any_of(llvm::seq<unsigned>(0, op->getNumOperands()), [&](unsigned i) { return passesOn(op, i); });
  });
  if (!op)
    return "";
  SmallVector<unsigned> fit = llvm::to_vector(llvm::make_filter_range(llvm::seq<unsigned>(0, op->getNumOperands()),
                                                                      [&](unsigned i) { return passesOn(op, i); }));
  unsigned at = random.pick(fit);
  DominanceInfo dominance(function);
  OpOperand *use = pickUse([&](OpOperand &operand) {
    return operand.getOwner() != op && operand.get().getType() == op->getResult(0).getType() &&
           llvm::all_of(op->getOperands(), [&](Value value) {
             return value == op->getOperand(at) || dominance.properlyDominates(value, operand.getOwner());
           });
  });
  if (!use)
    return "";
  b.setInsertionPoint(use->getOwner());
  Operation *copy = b.clone(*op);
  copy->setOperand(at, use->get());
  use->set(copy->getResult(0));
  return nameOf(op) + " also before operand " + std::to_string(use->getOperandNumber()) + " of " +
         nameOf(use->getOwner());
}

std::string Mutator::extraResult() {
  Operation *op = pickOp([&](Operation *op) {
    return op->getParentOp() == function && op->getNumResults() == 1 &&
           isa<RankedTensorType>(op->getResult(0).getType()) && !isSize(op);
  });
  if (!op)
    return "";
  Operation *end = function.getBody().front().getTerminator();
  end->insertOperands(end->getNumOperands(), op->getResult(0));
  function.setType(b.getFunctionType(function.getArgumentTypes(), end->getOperandTypes()));
  return "result of " + nameOf(op) + " is returned, too";
}

std::string Mutator::otherDimension() {
  Operation *op = pickOp([](Operation *op) { return isa<linalg::SoftmaxOp, linalg::TransposeOp>(op); });
  if (auto softmax = dyn_cast_or_null<linalg::SoftmaxOp>(op)) {
    softmax.setDimension(random.below(softmax.getInputOperandRank()));
    return "dimension of linalg.softmax";
  }
  if (auto transpose = dyn_cast_or_null<linalg::TransposeOp>(op)) {
    SmallVector<int64_t> order(transpose.getPermutation());
    std::swap(random.pick(order), random.pick(order));
    transpose.setPermutation(order);
    return "permutation of linalg.transpose";
  }
  return "";
}

std::string Mutator::run() {
  using Kind = std::string (Mutator::*)();
  static const Kind kinds[] = {
      &Mutator::otherOperand,    &Mutator::otherOperand,   &Mutator::otherMap,       &Mutator::otherMap,
      &Mutator::otherConstant,   &Mutator::otherConstant,  &Mutator::otherOp,        &Mutator::otherPredicate,
      &Mutator::swappedOperands, &Mutator::changedUse,     &Mutator::changedUse,     &Mutator::changedTensor,
      &Mutator::changedTensor,   &Mutator::skippedOp,      &Mutator::skippedOp,      &Mutator::skippedOp,
      &Mutator::repeatedOp,      &Mutator::repeatedOp,     &Mutator::repeatedOp,     &Mutator::extraResult,
      &Mutator::otherShape,      &Mutator::otherShape,     &Mutator::otherDimension, &Mutator::otherReduction,
      &Mutator::otherReduction,  &Mutator::longerArgument, &Mutator::longerArgument};
  Kind kind = random.pick(ArrayRef(kinds));
  return (this->*kind)();
}

std::string search::mutate(func::FuncOp function, Random &random) { return Mutator(function, random).run(); }
