//===- KeyBounds.cpp - Which keys a range of queries can reach ----------------===//
//
// Two halves: reading (a walk up from the yielded condition through conjunctions to comparisons of
// affine expressions) and writing (each constraint as a bound on the key, at the extreme query).
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace saccade::attn;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

/// Whether `value` is computed from the query or the key position.
bool dependsOnPosition(Value value, const RegionArguments &args) {
  if (value == args.query || value == args.key)
    return true;
  Operation *op = value.getDefiningOp();
  return op && llvm::any_of(op->getOperands(), [&](Value operand) { return dependsOnPosition(operand, args); });
}

/// Adds `factor · value` to `sum`; fails where `value` is not affine in the positions. Index widths differ only by
/// casts that keep the value: positions fit in 31 bits wherever a region computes with i32.
bool addAffine(AffineConstraint &sum, Value value, int64_t factor, const RegionArguments &args) {
  if (value == args.query) {
    sum.query += factor;
    return true;
  }
  if (value == args.key) {
    sum.key += factor;
    return true;
  }
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant))) {
    sum.constant += factor * constant.getSExtValue();
    return true;
  }
  if (!dependsOnPosition(value, args)) {
    sum.terms.emplace_back(factor, value);
    return true;
  }
  Operation *op = value.getDefiningOp();
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(op))
    return addAffine(sum, op->getOperand(0), factor, args);
  if (isa<arith::AddIOp>(op))
    return addAffine(sum, op->getOperand(0), factor, args) && addAffine(sum, op->getOperand(1), factor, args);
  if (isa<arith::SubIOp>(op))
    return addAffine(sum, op->getOperand(0), factor, args) && addAffine(sum, op->getOperand(1), -factor, args);
  if (isa<arith::MulIOp>(op))
    for (auto [scaled, by] : {std::pair(0, 1), std::pair(1, 0)})
      if (matchPattern(op->getOperand(by), m_ConstantInt(&constant)))
        return addAffine(sum, op->getOperand(scaled), factor * constant.getSExtValue(), args);
  return false;
}

/// `left − right − slack ≥ 0` as a constraint.
std::optional<AffineConstraint> notLess(Value left, Value right, int64_t slack, const RegionArguments &args) {
  AffineConstraint constraint;
  constraint.constant = -slack;
  if (!addAffine(constraint, left, 1, args) || !addAffine(constraint, right, -1, args))
    return std::nullopt;
  return constraint;
}

} // namespace

void KeyBounds::addCondition(Value condition) {
  RegionArguments args = getRegionArguments(*mask, /*isScore=*/false);
  if (auto conjunction = condition.getDefiningOp<arith::AndIOp>()) {
    addCondition(conjunction.getLhs());
    addCondition(conjunction.getRhs());
    return;
  }
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  SmallVector<std::optional<AffineConstraint>, 2> read;
  if (compare) {
    Value left = compare.getLhs(), right = compare.getRhs();
    switch (compare.getPredicate()) {
    case arith::CmpIPredicate::sle:
      read = {notLess(right, left, 0, args)};
      break;
    case arith::CmpIPredicate::slt:
      read = {notLess(right, left, 1, args)};
      break;
    case arith::CmpIPredicate::sge:
      read = {notLess(left, right, 0, args)};
      break;
    case arith::CmpIPredicate::sgt:
      read = {notLess(left, right, 1, args)};
      break;
    case arith::CmpIPredicate::eq:
      read = {notLess(left, right, 0, args), notLess(right, left, 0, args)};
      break;
    default:
      break;
    }
  }
  exact &= !read.empty();
  for (std::optional<AffineConstraint> &constraint : read) {
    // A constraint without the key bounds rows, not keys; it is left to the mask itself.
    bool useful = constraint && constraint->key != 0;
    exact &= useful;
    if (useful)
      constraints.push_back(std::move(*constraint));
  }
}

KeyBounds::KeyBounds(ScoringOpInterface op) : mask(&op.getMask()) {
  if (!mask->empty())
    addCondition(cast<YieldOp>(mask->front().getTerminator()).getOperand());
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

namespace {

/// Rebuilds region values outside their region.
struct Materializer {
  OpBuilder &b;
  Location loc;
  IRMapping values;
  Value queryLength, keyLength;

  /// Reads an element. The mask may allow no pair here, and then nobody promised that the position exists.
  Value read(Value source, ArrayRef<Value> position) {
    SmallVector<Value> clamped;
    bool isBuffer = isa<MemRefType>(source.getType());
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
    for (auto [i, index] : llvm::enumerate(position)) {
      Value extent = isBuffer ? b.createOrFold<memref::DimOp>(loc, source, i)
                              : b.createOrFold<tensor::DimOp>(loc, source, i);
      Value last = b.createOrFold<arith::SubIOp>(loc, extent, one);
      Value upper = b.createOrFold<arith::MinSIOp>(loc, index, last);
      clamped.push_back(b.createOrFold<arith::MaxSIOp>(loc, upper, zero));
    }
    if (isBuffer)
      return memref::LoadOp::create(b, loc, source, clamped);
    return tensor::ExtractOp::create(b, loc, source, clamped);
  }

  Value operator()(Value value) {
    if (Value known = values.lookupOrNull(value))
      return known;
    Operation *op = value.getDefiningOp();
    assert(op && "a region argument that is a term must be mapped");
    Value result;
    if (auto length = dyn_cast<LengthOp>(op)) {
      result = length.getRole() == Role::Query ? queryLength : keyLength;
    } else {
      SmallVector<Value> operands = llvm::map_to_vector(op->getOperands(), [&](Value operand) { return (*this)(operand); });
      if (isa<tensor::ExtractOp>(op)) {
        result = read(operands[0], ArrayRef(operands).drop_front());
      } else if (auto dim = dyn_cast<tensor::DimOp>(op); dim && isa<MemRefType>(operands[0].getType())) {
        result = memref::DimOp::create(b, loc, operands[0], operands[1]);
      } else {
        Operation *clone = b.clone(*op);
        clone->setOperands(operands);
        result = clone->getResult(cast<OpResult>(value).getResultNumber());
      }
    }
    values.map(value, result);
    return result;
  }
};

Value index(OpBuilder &b, Location loc, int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }

Value scaled(OpBuilder &b, Location loc, int64_t factor, Value value) {
  return factor == 1 ? value : arith::MulIOp::create(b, loc, value, index(b, loc, factor)).getResult();
}

} // namespace

KeyRange KeyBounds::reach(OpBuilder &b, Location loc, const IRMapping &values, Value queryLength, Value keyLength,
                          Value firstQuery, Value lastQuery, KeyRange keys) const {
  Materializer materialize{b, loc, values, queryLength, keyLength};
  for (const AffineConstraint &constraint : constraints) {
    // The query that lets most keys through; then rest + key · k ≥ 0.
    Value rest = index(b, loc, constraint.constant);
    auto add = [&](Value summand) { rest = arith::AddIOp::create(b, loc, rest, summand); };
    if (constraint.query != 0)
      add(scaled(b, loc, constraint.query, constraint.query > 0 ? lastQuery : firstQuery));
    for (auto [factor, term] : constraint.terms) {
      Value value = materialize(term);
      if (!value.getType().isIndex())
        value = arith::IndexCastOp::create(b, loc, b.getIndexType(), value);
      add(scaled(b, loc, factor, value));
    }
    Value divisor = index(b, loc, std::abs(constraint.key));
    if (constraint.key < 0) {
      // k ≤ floor(rest / |key|)
      Value last = constraint.key == -1 ? rest : arith::FloorDivSIOp::create(b, loc, rest, divisor).getResult();
      Value end = arith::AddIOp::create(b, loc, last, index(b, loc, 1));
      keys.end = arith::MinSIOp::create(b, loc, keys.end, end);
    } else {
      // k ≥ ceil(−rest / key)
      Value negated = arith::SubIOp::create(b, loc, index(b, loc, 0), rest);
      Value begin = constraint.key == 1 ? negated : arith::CeilDivSIOp::create(b, loc, negated, divisor).getResult();
      keys.begin = arith::MaxSIOp::create(b, loc, keys.begin, begin);
    }
  }
  return keys;
}
