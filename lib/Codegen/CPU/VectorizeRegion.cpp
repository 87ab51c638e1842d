//===- VectorizeRegion.cpp - Vector evaluation of scalar regions --------------===//
//
// Each kind of op has a rule: ops on uniform values stay scalar, affine values keep a scalar base, and all other ops
// become vector ops.
//
//===----------------------------------------------------------------------===//
#include "VectorizeRegion.h"
#include "../Common/IntegerDivision.h"
#include "LaneMemory.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "saccade/Dialect/Attn/Analysis/RelativePositionTerms.h"
#include <numbers>

using namespace mlir;
using namespace saccade;
using namespace saccade::cpu;

/// Types in which base + lane * step does not wrap for any position, so that comparisons may use differences.
static bool isPositionType(Type type) { return type.isIndex() || type.isInteger(64); }

/// Bound of the distance of a lane from lane 0, so that comparisons fit i32.
static constexpr int64_t maxLaneOffset = int64_t(1) << 30;

/// The predicate of swapped operands; signed predicates only.
static arith::CmpIPredicate swapSides(arith::CmpIPredicate predicate) {
  switch (predicate) {
  case arith::CmpIPredicate::slt:
    return arith::CmpIPredicate::sgt;
  case arith::CmpIPredicate::sle:
    return arith::CmpIPredicate::sge;
  case arith::CmpIPredicate::sgt:
    return arith::CmpIPredicate::slt;
  case arith::CmpIPredicate::sge:
    return arith::CmpIPredicate::sle;
  default:
    return predicate;
  }
}

/// The power of two by which `op` divides its first operand, rounding down.
static std::optional<int64_t> constantDivisor(Operation &op) {
  APInt constant;
  bool isShift = isa<arith::ShRUIOp, arith::ShRSIOp>(op);
  if (!(isShift || isa<arith::DivUIOp, arith::FloorDivSIOp>(op)) ||
      !matchPattern(op.getOperand(1), m_ConstantInt(&constant)))
    return std::nullopt;
  if (isShift)
    return constant.ult(20) ? std::optional(int64_t(1) << constant.getZExtValue()) : std::nullopt;
  return constant.isPowerOf2() && constant.ult(1 << 20) ? std::optional(constant.getSExtValue()) : std::nullopt;
}

/// Whether several lanes that are `step` apart, all of a group, have equal quotients.
static bool isGrouped(int64_t step, int64_t divisor, unsigned lanes) {
  return step > 0 && step < divisor && divisor % step == 0 && lanes % (divisor / step) == 0;
}

/// Whether enough ops depend on the lane only through the quotient `division` to pay for a test and a second version.
static bool isWorthVersions(Block &block, Operation &division) {
  constexpr unsigned minOps = 16;
  DenseSet<Value> grouped = {division.getResult(0)}, others;
  unsigned count = 0;
  for (Operation &op : llvm::make_range(division.getIterator(), block.without_terminator().end())) {
    if (llvm::none_of(op.getOperands(), [&](Value v) { return grouped.contains(v); }))
      continue;
    bool isInGroups = OpTrait::hasElementwiseMappableTraits(&op) &&
                      llvm::none_of(op.getOperands(), [&](Value v) { return others.contains(v); });
    (isInGroups ? grouped : others).insert_range(op.getResults());
    count += isInGroups;
  }
  return count >= minOps;
}

RegionVectorizer::Lanes RegionVectorizer::lookup(Value from) {
  auto it = values.find(from);
  return it == values.end() ? Lanes{from, 0} : it->second;
}

Value RegionVectorizer::splat(Value scalar, unsigned size) {
  size = size ? size : lanes;
  Value &vector = splats[{scalar, size}];
  if (!vector)
    vector = vector::BroadcastOp::create(b, loc, VectorType::get(size, scalar.getType()), scalar);
  return vector;
}

Value RegionVectorizer::getGroups(Value from, unsigned group) {
  Lanes found = lookup(from);
  assert(found.step == 0 || found.group == group);
  return found.step == 0 ? splat(found.value, lanes / group) : found.value;
}

Value RegionVectorizer::getVector(Value from) {
  Lanes found = lookup(from);
  if (found.step == isVector && !found.factor && found.group == 1)
    return found.value;
  if (found.step == 0)
    return splat(found.value);
  if (Value known = vectors.lookup(from))
    return known;
  Value vector;
  if (found.group > 1) {
    SmallVector<int64_t> groups;
    for (unsigned lane = 0; lane < lanes; ++lane)
      groups.push_back(lane / found.group);
    vector = vector::ShuffleOp::create(b, loc, found.value, found.value, groups);
  } else if (found.step == isVector)
    vector = multiplyAdd(found, found.factor, found.offset ? splat(found.offset) : Value());
  else
    vector = affineLanes(b, loc, found.value, found.step, lanes);
  return vectors[from] = vector;
}

bool RegionVectorizer::hasVectorForm(Block &block) {
  return llvm::all_of(block.without_terminator(), [](Operation &op) {
    return OpTrait::hasElementwiseMappableTraits(&op) || op.hasTrait<OpTrait::ConstantLike>() ||
           isa<attn::LengthOp, linalg::IndexOp, memref::DimOp, memref::LoadOp, tensor::DimOp, tensor::ExtractOp>(op);
  });
}

LogicalResult RegionVectorizer::run(Block &block) { return runFrom(block, block.begin()); }

LogicalResult RegionVectorizer::runFrom(Block &block, Block::iterator from) {
  for (Operation &op : llvm::make_range(from, block.without_terminator().end())) {
    bool isBound = op.getNumResults() > 0 && llvm::all_of(op.getResults(), [&](Value v) { return values.count(v); });
    if (isBound)
      continue;
    if (std::optional<int64_t> divisor = constantDivisor(op); mayTestGroups && divisor) {
      Lanes dividend = lookup(op.getOperand(0));
      if (isGrouped(dividend.step, *divisor, lanes) && isWorthVersions(block, op))
        return runVersions(block, op.getIterator(), dividend.value, *divisor);
    }
    if (failed(evaluate(op)))
      return failure();
  }
  return success();
}

LogicalResult RegionVectorizer::runVersions(Block &block, Block::iterator from, Value base, int64_t divisor) {
  // The results are the operands of the terminator that are computed from here on. Those that depend on the lane are
  // vectors in both versions.
  DenseSet<Value> computed, varying;
  for (Operation &op : llvm::make_range(from, block.without_terminator().end())) {
    computed.insert_range(op.getResults());
    if (llvm::any_of(op.getOperands(), [&](Value v) { return varying.contains(v) || !isUniform(v); }))
      varying.insert_range(op.getResults());
  }
  SetVector<Value> results;
  for (Value value : block.getTerminator()->getOperands())
    if (computed.contains(value) && !values.count(value))
      results.insert(value);
  SmallVector<Type> types = llvm::map_to_vector(results, [&](Value value) -> Type {
    return varying.contains(value) ? VectorType::get(lanes, value.getType()) : value.getType();
  });
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(base.getType(), value));
  };
  Value rest = arith::AndIOp::create(b, loc, base, constant(divisor - 1));
  Value isMultiple = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, rest, constant(0));
  auto branch = scf::IfOp::create(b, loc, types, isMultiple, /*addThenBlock=*/true, /*addElseBlock=*/true);
  for (Block *version : {branch.thenBlock(), branch.elseBlock()}) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(version);
    RegionVectorizer inner(*this);
    inner.mayTestGroups = false;
    if (version == branch.thenBlock())
      inner.multiples[base] = divisor;
    if (failed(inner.runFrom(block, from)))
      return failure();
    scf::YieldOp::create(b, loc, llvm::map_to_vector(results, [&](Value value) {
                           return varying.contains(value) ? inner.getVector(value) : inner.getUniform(value);
                         }));
  }
  for (auto [value, result] : llvm::zip_equal(results, branch.getResults()))
    varying.contains(value) ? bindVector(value, result) : bindUniform(value, result);
  return success();
}

int64_t RegionVectorizer::largestGroup(Block &block, function_ref<bool(Value)> isPosition) {
  int64_t largest = 1;
  for (Operation &op : block.without_terminator()) {
    std::optional<int64_t> divisor = constantDivisor(op);
    if (!divisor || *divisor <= largest || !isWorthVersions(block, op))
      continue;
    Value dividend = op.getOperand(0);
    while (Operation *cast = dividend.getDefiningOp()) {
      if (!isa<arith::IndexCastOp, arith::TruncIOp>(cast))
        break;
      dividend = cast->getOperand(0);
    }
    if (isPosition(dividend))
      largest = *divisor;
  }
  return largest;
}

LogicalResult RegionVectorizer::evaluate(Operation &op) {
  if (auto length = dyn_cast<attn::LengthOp>(op)) {
    assert(lengths[unsigned(length.getRole())] && "length not bound");
    bindUniform(length, lengths[unsigned(length.getRole())]);
    return success();
  }
  if (evaluateRead(op) || evaluateUniform(op) || evaluateInGroups(op) || evaluateProduct(op) || evaluateTanh(op) ||
      evaluateSigmoid(op) || evaluateAffine(op) || evaluatePosition(op) || evaluateComparison(op))
    return success();
  if (!OpTrait::hasElementwiseMappableTraits(&op))
    return op.emitError() << "'" << op.getName() << "' cannot be computed for several positions at once; "
                          << "expected elementwise arith and math ops, tensor.extract, tensor.dim and attn.length";
  evaluateElementwise(op);
  return success();
}

/// Quotients and remainders of positions whose lane 0 is a multiple of the divisor.
bool RegionVectorizer::evaluateInGroups(Operation &op) {
  if (op.getNumOperands() != 2 || op.getNumResults() != 1)
    return false;
  Lanes dividend = lookup(op.getOperand(0));
  int64_t multiple = multiples.lookup(dividend.value);
  if (!multiple || dividend.step <= 0)
    return false;
  if (std::optional<int64_t> divisor = constantDivisor(op)) {
    auto quotientOf = [&] {
      IRMapping mapping;
      mapping.map(op.getOperand(0), dividend.value);
      mapping.map(op.getOperand(1), getUniform(op.getOperand(1)));
      return b.clone(op, mapping)->getResult(0);
    };
    // All lanes are in one group.
    int64_t span = lanes * dividend.step;
    if (*divisor % span == 0 && multiple % span == 0) {
      bindUniform(op.getResult(0), quotientOf());
      return true;
    }
    if (!isGrouped(dividend.step, *divisor, lanes) || multiple % *divisor != 0)
      return false;
    unsigned group = *divisor / dividend.step;
    Operation *copy = op.clone();
    copy->setOperands(
        {affineLanes(b, loc, dividend.value, *divisor, lanes / group), getGroups(op.getOperand(1), group)});
    copy->getResult(0).setType(copy->getOperand(0).getType());
    values[op.getResult(0)] = {b.insert(copy)->getResult(0), isVector, nullptr, nullptr, group};
    quotients[op.getResult(0)] = quotientOf();
    return true;
  }
  APInt mask;
  Type type = op.getResult(0).getType();
  if (!isa<arith::AndIOp>(op) || !matchPattern(op.getOperand(1), m_ConstantInt(&mask)) || mask.uge(uint64_t(multiple)))
    return false;
  SmallVector<Attribute> remainders;
  for (unsigned lane = 0; lane < lanes; ++lane)
    remainders.push_back(b.getIntegerAttr(type, int64_t(lane * dividend.step & mask.getZExtValue())));
  bindVector(op.getResult(0),
             arith::ConstantOp::create(b, loc, DenseElementsAttr::get(VectorType::get(lanes, type), remainders)));
  return true;
}

/// Clones an op without side effects, including its regions, if its operands are uniform.
bool RegionVectorizer::evaluateUniform(Operation &op) {
  if (op.getNumRegions() == 0 && !isMemoryEffectFree(&op))
    return false;
  SetVector<Value> used(op.operand_begin(), op.operand_end());
  getUsedValuesDefinedAbove(op.getRegions(), used);
  if (!llvm::all_of(used, [&](Value v) { return isUniform(v); }))
    return false;
  IRMapping mapping;
  for (Value value : used)
    mapping.map(value, getUniform(value));
  if (isIntegerDivision(&op))
    mapping.map(op.getOperand(1), guardDivisor(b, loc, getUniform(op.getOperand(1))));
  Operation *copy = b.clone(op, mapping);
  for (auto [from, to] : llvm::zip_equal(op.getResults(), copy->getResults()))
    bindUniform(from, to);
  return true;
}

/// Sums, differences, constant multiples and casts of base + lane * step.
bool RegionVectorizer::evaluateAffine(Operation &op) {
  if (op.getNumResults() != 1 || !op.getResult(0).getType().isIntOrIndex())
    return false;
  SmallVector<Lanes, 2> operands = llvm::map_to_vector<2>(op.getOperands(), [&](Value v) { return lookup(v); });
  if (llvm::any_of(operands, [](const Lanes &operand) { return operand.step == isVector; }))
    return false;
  Value result = op.getResult(0);
  if (isa<arith::AddIOp>(op)) {
    Value base = arith::AddIOp::create(b, loc, operands[0].value, operands[1].value);
    values[result] = {base, operands[0].step + operands[1].step};
    return true;
  }
  if (isa<arith::SubIOp>(op)) {
    Value base = arith::SubIOp::create(b, loc, operands[0].value, operands[1].value);
    values[result] = {base, operands[0].step - operands[1].step};
    return true;
  }
  if (isa<arith::MulIOp>(op)) {
    if (operands[0].step == 0)
      std::swap(operands[0], operands[1]);
    APInt factor;
    bool isSmall = operands[1].step == 0 && matchPattern(operands[1].value, m_ConstantInt(&factor)) &&
                   factor.abs().ult(uint64_t(1) << 20) && std::abs(operands[0].step) < (int64_t(1) << 20);
    if (!isSmall)
      return false;
    Value base = arith::MulIOp::create(b, loc, operands[0].value, operands[1].value);
    values[result] = {base, operands[0].step * factor.getSExtValue()};
    return true;
  }
  // Truncation commutes with wrapping addition; extension does not.
  bool narrows = (isa<arith::IndexCastOp>(op) && op.getOperand(0).getType().isIndex()) || isa<arith::TruncIOp>(op) ||
                 (isa<arith::IndexCastOp>(op) && op.getOperand(0).getType().isInteger(64));
  if (!narrows)
    return false;
  IRMapping mapping;
  mapping.map(op.getOperand(0), operands[0].value);
  values[result] = {b.clone(op, mapping)->getResult(0), operands[0].step};
  return true;
}

Value RegionVectorizer::multiplyAdd(const Lanes &product, Value factor, Value addend) {
  if (addend && hasFMA)
    return vector::FMAOp::create(b, loc, product.value, splat(factor), addend);
  Value scaled = arith::MulFOp::create(b, loc, product.value, splat(factor));
  return addend ? arith::AddFOp::create(b, loc, scaled, addend).getResult() : scaled;
}

/// Products of bindProduct values with uniform values, and sums of them with any value.
bool RegionVectorizer::evaluateProduct(Operation &op) {
  if (!isa<arith::MulFOp, arith::DivFOp, arith::NegFOp, arith::AddFOp, arith::SubFOp>(op))
    return false;
  Value result = op.getResult(0), first = op.getOperand(0), second = op.getOperands().back();
  bool isSwapped = !lookup(first).factor && !isa<arith::DivFOp, arith::NegFOp>(op);
  if (isSwapped)
    std::swap(first, second);
  Lanes x = lookup(first);
  if (!x.factor)
    return false;
  auto times = [&](Value x, Value y) { return b.createOrFold<arith::MulFOp>(loc, x, y); };
  auto negated = [&](Value x) -> Value { return arith::NegFOp::create(b, loc, x); };
  auto scaledBy = [&](function_ref<Value(Value)> scale) {
    values[result] = {x.value, isVector, scale(x.factor), x.offset ? scale(x.offset) : Value()};
  };
  if (isa<arith::NegFOp>(op)) {
    scaledBy(negated);
    return true;
  }
  if (isa<arith::MulFOp, arith::DivFOp>(op)) {
    if (!isUniform(second))
      return false;
    Value factor = getUniform(second);
    if (isa<arith::DivFOp>(op)) {
      Value one = arith::ConstantOp::create(b, loc, b.getFloatAttr(factor.getType(), 1.0));
      factor = b.createOrFold<arith::DivFOp>(loc, one, factor);
    }
    scaledBy([&](Value scale) { return times(scale, factor); });
    return true;
  }
  Value addend = getVector(second), factor = x.factor;
  bool isDifference = isa<arith::SubFOp>(op);
  if (x.offset)
    addend = isDifference && isSwapped ? arith::SubFOp::create(b, loc, addend, splat(x.offset)).getResult()
             : isDifference            ? arith::SubFOp::create(b, loc, splat(x.offset), addend).getResult()
                                       : arith::AddFOp::create(b, loc, addend, splat(x.offset)).getResult();
  else if (isDifference && !isSwapped)
    addend = negated(addend);
  bindVector(result, multiplyAdd(x, isDifference && isSwapped ? negated(factor) : factor, addend));
  return true;
}

/// Whether `value` is only multiplied by constants so small that an absolute error of 2^-18 stays below the rounding
/// error of 16-bit weights.
static bool hasSmallFactors(Value value) {
  constexpr double maxFactor = 64;
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    llvm::APFloat factor(0.0);
    return isa<arith::MulFOp>(user) && llvm::any_of(user->getOperands(), [&](Value operand) {
             return matchPattern(operand, m_ConstantFloat(&factor)) && std::abs(factor.convertToDouble()) <= maxFactor;
           });
  });
}

/// tanh x = 1 − 2 / (1 + 2^(2x / ln 2)).
bool RegionVectorizer::evaluateTanh(Operation &op) {
  if (!logistic || !isa<math::TanhOp>(op) || !hasSmallFactors(op.getResult(0)))
    return false;
  Lanes x = lookup(op.getOperand(0));
  if (!x.factor)
    return false;
  auto constant = [&](double value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(x.factor.getType(), value));
  };
  auto times = [&](Value x) { return b.createOrFold<arith::MulFOp>(loc, x, constant(2 * std::numbers::log2e)); };
  Value exponent = multiplyAdd(x, times(x.factor), x.offset ? splat(times(x.offset)) : Value());
  values[op.getResult(0)] = {logistic(exponent), isVector, constant(-2.0), constant(1.0)};
  return true;
}

Value RegionVectorizer::matchSigmoid(Operation &op) {
  auto quotient = dyn_cast<arith::DivFOp>(op);
  if (!quotient || !matchPattern(quotient.getLhs(), m_OneFloat()))
    return {};
  auto sum = quotient.getRhs().getDefiningOp<arith::AddFOp>();
  if (!sum)
    return {};
  for (auto [one, power] : {std::pair(sum.getLhs(), sum.getRhs()), std::pair(sum.getRhs(), sum.getLhs())}) {
    auto exponential = power.getDefiningOp<math::ExpOp>();
    auto negated = exponential ? exponential.getOperand().getDefiningOp<arith::NegFOp>() : arith::NegFOp();
    if (negated && matchPattern(one, m_OneFloat()))
      return negated.getOperand();
  }
  return {};
}

bool RegionVectorizer::evaluateSigmoid(Operation &op) {
  Value argument = sigmoid ? matchSigmoid(op) : Value();
  if (!argument || !argument.getType().isF32())
    return false;
  Value toBase2 = arith::ConstantOp::create(b, loc, b.getFloatAttr(argument.getType(), -std::numbers::log2e));
  Lanes x = lookup(argument);
  auto times = [&](Value value) { return b.createOrFold<arith::MulFOp>(loc, value, toBase2); };
  // A product and a uniform number: one fma.
  if (Operation *sum = argument.getDefiningOp(); isa_and_present<arith::AddFOp, arith::SubFOp>(sum)) {
    Lanes product = lookup(sum->getOperand(0)), addend = lookup(sum->getOperand(1));
    if (product.factor && !product.offset && addend.step == 0) {
      Value offset = times(addend.value);
      if (isa<arith::SubFOp>(sum))
        offset = b.createOrFold<arith::NegFOp>(loc, offset);
      x = product;
      bindVector(op.getResult(0), sigmoid(multiplyAdd(x, times(x.factor), splat(offset))));
      return true;
    }
  }
  Value exponent = x.factor ? multiplyAdd(x, times(x.factor), x.offset ? splat(times(x.offset)) : Value())
                            : arith::MulFOp::create(b, loc, getVector(argument), splat(toBase2)).getResult();
  bindVector(op.getResult(0), sigmoid(exponent));
  return true;
}

/// A position converted to float: exact for positions that the type can represent, otherwise rounded twice.
bool RegionVectorizer::evaluatePosition(Operation &op) {
  auto convert = dyn_cast<arith::SIToFPOp>(op);
  if (!convert)
    return false;
  Lanes in = lookup(convert.getIn());
  auto type = dyn_cast<FloatType>(convert.getType());
  if (in.step == isVector || !type || !(type.isF32() || type.isF64()) || std::abs(in.step) >= (1 << 16))
    return false;
  // Narrow integers may wrap between lanes, but positions and their distances fit in 32 bits.
  Value integer = convert.getIn();
  bool isPosition = integer.getType().isInteger(32) && std::abs(in.step) == 1 &&
                    isa_and_nonnull<arith::IndexCastOp, arith::TruncIOp>(integer.getDefiningOp());
  if (!isPosition && !isPositionType(integer.getType()))
    return false;
  Value base = arith::SIToFPOp::create(b, loc, type, in.value);
  SmallVector<Attribute> distances;
  for (unsigned lane = 0; lane < lanes; ++lane)
    distances.push_back(b.getFloatAttr(type, double(in.step * lane)));
  Value offsets = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(VectorType::get(lanes, type), distances));
  bindVector(convert, arith::AddFOp::create(b, loc, splat(base), offsets));
  return true;
}

/// Comparison of a position with a bound: compares a constant vector with a broadcast scalar in i32.
bool RegionVectorizer::evaluateComparison(Operation &op) {
  auto compare = dyn_cast<arith::CmpIOp>(op);
  if (!compare || !isPositionType(compare.getLhs().getType()))
    return false;
  arith::CmpIPredicate predicate = compare.getPredicate();
  bool isUnsigned = predicate == arith::CmpIPredicate::ult || predicate == arith::CmpIPredicate::ule ||
                    predicate == arith::CmpIPredicate::ugt || predicate == arith::CmpIPredicate::uge;
  Lanes lhs = lookup(compare.getLhs()), rhs = lookup(compare.getRhs());
  if (isUnsigned || lhs.step == isVector || rhs.step == isVector)
    return false;
  // lhs + step * lane ? rhs; only the bound (rhs) may be an extreme value.
  if (lhs.step == 0) {
    std::swap(lhs, rhs);
    predicate = swapSides(predicate);
  }
  int64_t step = lhs.step - rhs.step;
  Value result = compare.getResult();
  if (step == 0) {
    bindUniform(result, arith::CmpIOp::create(b, loc, predicate, lhs.value, rhs.value));
    return true;
  }
  // No lane is further than maxLaneOffset from lane 0, so the bound can be clamped to that distance.
  if (std::abs(step) >= maxLaneOffset / int64_t(lanes))
    return false;
  Type type = compare.getLhs().getType();
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, value));
  };
  Value low = arith::SubIOp::create(b, loc, lhs.value, constant(maxLaneOffset));
  Value high = arith::AddIOp::create(b, loc, lhs.value, constant(maxLaneOffset));
  Value bound = arith::MinSIOp::create(b, loc, arith::MaxSIOp::create(b, loc, rhs.value, low), high);
  Value distance = arith::SubIOp::create(b, loc, bound, lhs.value);
  Type i32 = b.getI32Type();
  distance = type.isIndex() ? arith::IndexCastOp::create(b, loc, i32, distance).getResult()
                            : arith::TruncIOp::create(b, loc, i32, distance).getResult();
  Value iota = affineLanes(b, loc, arith::ConstantIntOp::create(b, loc, 0, 32), step, lanes);
  Value broadcast = vector::BroadcastOp::create(b, loc, iota.getType(), distance);
  bindVector(result, arith::CmpIOp::create(b, loc, predicate, iota, broadcast));
  return true;
}

Value RegionVectorizer::clampIndex(Value index, Value extent) {
  APInt position, limit;
  bool isInside = matchPattern(index, m_ConstantInt(&position)) && matchPattern(extent, m_ConstantInt(&limit)) &&
                  position.sge(0) && position.slt(limit);
  if (isInside)
    return index;
  auto constant = [&](int64_t value) -> Value {
    Value scalar = arith::ConstantIndexOp::create(b, loc, value);
    return isa<VectorType>(index.getType()) ? vector::BroadcastOp::create(b, loc, index.getType(), scalar).getResult()
                                            : scalar;
  };
  Value last = arith::SubIOp::create(b, loc, extent, arith::ConstantIndexOp::create(b, loc, 1));
  if (isa<VectorType>(index.getType()))
    last = vector::BroadcastOp::create(b, loc, index.getType(), last);
  index = arith::MinSIOp::create(b, loc, index, last);
  return arith::MaxSIOp::create(b, loc, index, constant(0));
}

void RegionVectorizer::restrict(Value &mask, Value condition) {
  auto type = VectorType::get(lanes, b.getI1Type());
  if (condition.getType() != type)
    condition = vector::BroadcastOp::create(b, loc, type, condition);
  mask = mask ? arith::AndIOp::create(b, loc, mask, condition).getResult() : condition;
}

/// Emits two comparisons of a constant vector with a broadcast scalar in i32, as evaluateComparison does.
void RegionVectorizer::restrictToExtent(Value &mask, Value base, int64_t step, Value extent) {
  auto constant = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
  // Clamping is exact: beyond maxLaneOffset all lanes are out of bounds, or a bound holds for all lanes.
  Value tooHigh = arith::AddIOp::create(b, loc, extent, constant(maxLaneOffset));
  Value from = arith::MinSIOp::create(b, loc, base, tooHigh);
  from = arith::MaxSIOp::create(b, loc, from, constant(-maxLaneOffset));
  Value low =
      arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, constant(0), from), constant(-maxLaneOffset));
  Value high = arith::MinSIOp::create(b, loc, arith::SubIOp::create(b, loc, extent, from), constant(maxLaneOffset));
  Value distances = affineLanes(b, loc, arith::ConstantIntOp::create(b, loc, 0, 32), step, lanes);
  for (auto [predicate, bound] :
       {std::pair(arith::CmpIPredicate::sge, low), std::pair(arith::CmpIPredicate::slt, high)}) {
    Value narrow = arith::IndexCastOp::create(b, loc, b.getI32Type(), bound);
    Value everywhere = vector::BroadcastOp::create(b, loc, distances.getType(), narrow);
    restrict(mask, arith::CmpIOp::create(b, loc, predicate, distances, everywhere));
  }
}

Value RegionVectorizer::readScalar(Value memref, ValueRange indices, Value isInBounds) {
  if (!isInBounds)
    return memref::LoadOp::create(b, loc, memref, indices);
  Type type = cast<MemRefType>(memref.getType()).getElementType();
  auto guarded = scf::IfOp::create(
      b, loc, isInBounds,
      [&](OpBuilder &b, Location loc) {
        scf::YieldOp::create(b, loc, memref::LoadOp::create(b, loc, memref, indices).getResult());
      },
      [&](OpBuilder &b, Location loc) {
        scf::YieldOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getZeroAttr(type)).getResult());
      });
  return guarded.getResult(0);
}

std::optional<int64_t> saccade::cpu::matchRowRead(memref::LoadOp load) {
  auto op = dyn_cast<linalg::GenericOp>(load->getParentOp());
  if (!op || op.getNumLoops() != 2 || load.getMemRefType().getRank() != 2)
    return std::nullopt;
  auto counts = [](Value index, unsigned loop) {
    auto op = index.getDefiningOp<linalg::IndexOp>();
    return op && op.getDim() == loop;
  };
  Value column = load.getIndices()[1];
  APInt bits(64, 0);
  if (auto shift = column.getDefiningOp<arith::ShRUIOp>();
      shift && matchPattern(shift.getRhs(), m_ConstantInt(&bits)) && bits.ult(20))
    column = shift.getLhs();
  int64_t columns = op.getStaticLoopRanges()[1], extent = load.getMemRefType().getDimSize(1);
  bool isKnown = counts(load.getIndices()[0], 0) && counts(column, 1) && !ShapedType::isDynamic(columns) &&
                 !ShapedType::isDynamic(extent) && (columns - 1) >> bits.getSExtValue() < extent;
  return isKnown ? std::optional(bits.getSExtValue()) : std::nullopt;
}

/// An element, or one for each group of lanes, of a bound row, or of the row of a matrix that is known to have it.
bool RegionVectorizer::evaluateRowRead(Operation &op) {
  auto load = dyn_cast<memref::LoadOp>(op);
  if (!load || load.getIndices().size() != 2)
    return false;
  auto [memref, place] = rows.lookup(load.getMemRef());
  if (!memref) {
    bool hasRow = matchRowRead(load) && isUniform(load.getIndices()[0]) &&
                  load.getMemRefType().getStridesAndOffset().first.back() == 1;
    if (!hasRow)
      return false;
    memref = load.getMemRef(), place = getUniform(load.getIndices()[0]);
  }
  Value element = load.getIndices()[1];
  Lanes found = lookup(element);
  Type type = op.getResult(0).getType();
  if (found.step == 0) {
    bindUniform(op.getResult(0), memref::LoadOp::create(b, loc, memref, ValueRange{place, found.value}));
  } else if (Value first = quotients.lookup(element); first && !active) {
    Value groups =
        vector::LoadOp::create(b, loc, VectorType::get(lanes / found.group, type), memref, ValueRange{place, first});
    values[op.getResult(0)] = {groups, isVector, nullptr, nullptr, found.group};
  } else {
    LaneIndex each{found.value, found.step, Value()};
    if (found.step == isVector) // of some lanes beyond the columns
      each = {Value(), 0, clampIndex(getVector(element), memref::DimOp::create(b, loc, memref, 1))};
    bindVector(op.getResult(0), loadLanes(b, loc, memref, {LaneIndex{place, 0, Value()}, each}, lanes, active));
  }
  return true;
}

/// Elements and extents of captured tensors.
bool RegionVectorizer::evaluateRead(Operation &op) {
  if (evaluateRowRead(op))
    return true;
  auto bufferOf = [&](Value source) {
    Value bound = buffers.lookup(source);
    return bound || !isa<MemRefType>(source.getType()) ? bound : source;
  };
  if (isa<tensor::DimOp, memref::DimOp>(op)) {
    Value memref = bufferOf(op.getOperand(0));
    if (!memref || !isUniform(op.getOperand(1)))
      return false;
    bindUniform(op.getResult(0), memref::DimOp::create(b, loc, memref, getUniform(op.getOperand(1))));
    return true;
  }
  if (!isa<tensor::ExtractOp, memref::LoadOp>(op))
    return false;
  Value memref = bufferOf(op.getOperand(0));
  assert(memref && "captured tensor not bound");
  // Positions may be out of bounds: such lanes are masked if the index is affine in the lane, otherwise clamped.
  SmallVector<LaneIndex> indices;
  bool isInside = op.hasAttr(attn::inBoundsName);
  Value mask = isInside ? Value() : active, isInBounds;
  auto type = cast<MemRefType>(memref.getType());
  for (auto [dim, index] : llvm::enumerate(op.getOperands().drop_front())) {
    Lanes found = lookup(index);
    if (isInside && found.step != isVector) {
      indices.push_back({found.value, found.step, Value()});
      continue;
    }
    bool isDynamic = type.isDynamicDim(dim);
    Value extent = isDynamic ? memref::DimOp::create(b, loc, memref, dim).getResult()
                             : arith::ConstantIndexOp::create(b, loc, type.getDimSize(dim)).getResult();
    if (found.step != 0 && found.step != isVector && std::abs(found.step) < maxLaneOffset / int64_t(lanes)) {
      restrictToExtent(mask, found.value, found.step, extent);
      indices.push_back({found.value, found.step, Value()});
      continue;
    }
    if (isDynamic || type.getDimSize(dim) == 0) {
      // An empty dimension has no valid position to clamp to.
      Value exists =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, extent, arith::ConstantIndexOp::create(b, loc, 0));
      isInBounds = isInBounds ? arith::AndIOp::create(b, loc, isInBounds, exists).getResult() : exists;
    }
    if (found.step == 0)
      indices.push_back({clampIndex(found.value, extent), 0, Value()});
    else
      indices.push_back({Value(), 0, clampIndex(getVector(index), extent)});
  }
  if (llvm::all_of(indices, [](const LaneIndex &index) { return index.isUniform(); })) {
    SmallVector<Value> scalars = llvm::map_to_vector(indices, [](const LaneIndex &index) { return index.base; });
    bindUniform(op.getResult(0), readScalar(memref, scalars, isInBounds));
    return true;
  }
  if (isInBounds)
    restrict(mask, isInBounds);
  bindVector(op.getResult(0), loadLanes(b, loc, memref, indices, lanes, mask));
  return true;
}

void RegionVectorizer::evaluateElementwise(Operation &op) {
  // One element per group if the operands that depend on the lane have the same groups.
  unsigned group = 0;
  for (Value operand : op.getOperands())
    if (Lanes found = lookup(operand); found.step != 0)
      group = group == 0 || group == found.group ? found.group : 1;
  group = std::max(group, 1u);
  Operation *copy = op.clone();
  copy->setOperands(
      llvm::map_to_vector(op.getOperands(), [&](Value v) { return group > 1 ? getGroups(v, group) : getVector(v); }));
  if (isIntegerDivision(&op))
    copy->setOperand(1, guardDivisor(b, loc, copy->getOperand(1)));
  for (Value result : copy->getResults())
    result.setType(VectorType::get(lanes / group, result.getType()));
  b.insert(copy);
  for (auto [from, to] : llvm::zip_equal(op.getResults(), copy->getResults()))
    values[from] = {to, isVector, nullptr, nullptr, group};
}
