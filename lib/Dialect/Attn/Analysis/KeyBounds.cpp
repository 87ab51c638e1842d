//===- KeyBounds.cpp - Keys that a range of queries attends to ----------------===//
//
// Reading: from the yielded condition through conjunctions to comparisons of affine expressions. Writing: each
// constraint becomes a bound of the key, for the query that makes it weakest.
//
//===----------------------------------------------------------------------===//
#include "saccade/Dialect/Attn/Analysis/KeyBounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace saccade::attn;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

/// Reads values of a mask region as affine forms of query and key. Forms are cached.
class AffineReader {
public:
  explicit AffineReader(const RegionArguments &args) : args(args) {}

  /// `lhs − rhs − slack ≥ 0`, or nullopt if an operand is not affine.
  std::optional<AffineConstraint> notLess(Value lhs, Value rhs, int64_t slack) {
    std::optional<AffineConstraint> form = read(lhs), other = read(rhs);
    AffineConstraint one;
    one.constant = slack;
    if (!form || !other || !add(*form, *other, -1) || !add(*form, one, -1))
      return std::nullopt;
    // `computeKeyRange` must not overflow 64 bits, with terms of up to `largeTerm`.
    auto isSmall = [](int64_t coefficient, int64_t limit) { return -limit <= coefficient && coefficient <= limit; };
    bool fits = isSmall(form->query, 1 << 20) && isSmall(form->key, 1 << 20) && form->terms.size() <= 4 &&
                llvm::all_of(form->terms, [&](auto &term) { return isSmall(term.first, 1); });
    return fits ? form : std::nullopt;
  }

private:
  /// Whether a value depends on the query, the key or the score. Other values are terms.
  bool dependsOnPosition(Value value) {
    if (value == args.query || value == args.key || value == args.score)
      return true;
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (auto known = depends.find(value); known != depends.end())
      return known->second;
    bool result = llvm::any_of(op->getOperands(), [&](Value operand) { return dependsOnPosition(operand); });
    return depends[value] = result;
  }

  /// sum += factor · form; false on overflow of 64 bits.
  static bool add(AffineConstraint &sum, const AffineConstraint &form, int64_t factor) {
    auto accumulate = [&](int64_t &into, int64_t coefficient) {
      int64_t product;
      return !llvm::MulOverflow(coefficient, factor, product) && !llvm::AddOverflow(into, product, into);
    };
    if (!accumulate(sum.query, form.query) || !accumulate(sum.key, form.key) ||
        !accumulate(sum.constant, form.constant))
      return false;
    for (auto [coefficient, term] : form.terms) {
      auto *known = llvm::find_if(sum.terms, [&, &term = term](auto &pair) { return pair.second == term; });
      if (known == sum.terms.end())
        known = &sum.terms.emplace_back(0, term);
      if (!accumulate(known->first, coefficient))
        return false;
    }
    return true;
  }

  std::optional<AffineConstraint> read(Value value) {
    auto known = forms.find(value);
    if (known == forms.end())
      known = forms.try_emplace(value, compute(value)).first;
    return known->second;
  }

  /// Whether the form cannot overflow the type of `value`. For types narrower than 64 bits positions are assumed to be
  /// below 2^30.
  static bool fitsType(const AffineConstraint &form, Value value) {
    if (value.getType().isIndex() || value.getType().getIntOrFloatBitWidth() >= 64)
      return std::abs(double(form.constant)) <= 0x1p60;
    double largest =
        (std::abs(double(form.query)) + std::abs(double(form.key))) * 0x1p30 + std::abs(double(form.constant));
    for (auto [coefficient, term] : form.terms)
      largest += std::abs(double(coefficient)) *
                 std::ldexp(1.0, term.getType().isIndex() ? 63 : term.getType().getIntOrFloatBitWidth() - 1);
    return largest < std::ldexp(1.0, value.getType().getIntOrFloatBitWidth() - 1);
  }

  /// Whether `value` may be computed for any tile, even one without visible pairs: no division by zero.
  static bool isHarmless(Value value) {
    Operation *op = value.getDefiningOp();
    return !op || ((isa<tensor::ExtractOp>(op) || isSpeculatable(op)) && llvm::all_of(op->getOperands(), isHarmless));
  }

  std::optional<AffineConstraint> compute(Value value) {
    AffineConstraint form;
    APInt constant;
    if (value == args.query)
      form.query = 1;
    else if (value == args.key)
      form.key = 1;
    else if (matchPattern(value, m_ConstantInt(&constant)))
      form.constant = constant.getSExtValue();
    else if (dependsOnPosition(value))
      return combine(value.getDefiningOp());
    else if (isHarmless(value))
      form.terms.emplace_back(1, value);
    else
      return std::nullopt;
    return form;
  }

  std::optional<AffineConstraint> combine(Operation *op) {
    if (isa<arith::IndexCastOp, arith::ExtSIOp, arith::TruncIOp>(op)) {
      std::optional<AffineConstraint> operand = read(op->getOperand(0));
      return operand && fitsType(*operand, op->getResult(0)) ? operand : std::nullopt;
    }
    if (!isa<arith::AddIOp, arith::SubIOp, arith::MulIOp>(op))
      return std::nullopt;
    std::optional<AffineConstraint> lhs = read(op->getOperand(0)), rhs = read(op->getOperand(1));
    if (!lhs || !rhs)
      return std::nullopt;
    AffineConstraint form;
    if (!isa<arith::MulIOp>(op)) {
      bool fits = add(form, *lhs, 1) && add(form, *rhs, isa<arith::SubIOp>(op) ? -1 : 1);
      return fits && fitsType(form, op->getResult(0)) ? std::optional(form) : std::nullopt;
    }
    APInt constant;
    for (auto [scaled, by] : {std::pair(lhs, op->getOperand(1)), std::pair(rhs, op->getOperand(0))})
      if (matchPattern(by, m_ConstantInt(&constant)))
        return add(form, *scaled, constant.getSExtValue()) && fitsType(form, op->getResult(0)) ? std::optional(form)
                                                                                               : std::nullopt;
    return std::nullopt;
  }

  RegionArguments args;
  llvm::DenseMap<Value, bool> depends;
  llvm::DenseMap<Value, std::optional<AffineConstraint>> forms;
};

/// The conjuncts of `condition`, without duplicates.
llvm::SetVector<Value> conjuncts(Value condition) {
  llvm::SetVector<Value> all, leaves;
  all.insert(condition);
  for (unsigned i = 0; i < all.size(); ++i) {
    if (auto conjunction = all[i].getDefiningOp<arith::AndIOp>()) {
      all.insert(conjunction.getLhs());
      all.insert(conjunction.getRhs());
    } else {
      leaves.insert(all[i]);
    }
  }
  return leaves;
}

} // namespace

KeyBounds::KeyBounds(ScoringOpInterface op) : op(op) {
  Region &mask = op.getMask();
  if (!mask.empty())
    read(getRegionArguments(mask, /*numbers=*/0), cast<YieldOp>(mask.front().getTerminator()).getOperand());
}

KeyBounds::KeyBounds(ScoringOpInterface op, const RegionArguments &args, Value condition) : op(op) {
  read(args, condition);
}

void KeyBounds::read(const RegionArguments &args, Value whole) {
  this->args = args;
  AffineReader reader(args);
  for (Value condition : conjuncts(whole)) {
    SmallVector<std::optional<AffineConstraint>, 2> read;
    if (auto compare = condition.getDefiningOp<arith::CmpIOp>()) {
      Value lhs = compare.getLhs(), rhs = compare.getRhs();
      switch (compare.getPredicate()) {
      case arith::CmpIPredicate::sle:
        read = {reader.notLess(rhs, lhs, 0)};
        break;
      case arith::CmpIPredicate::slt:
        read = {reader.notLess(rhs, lhs, 1)};
        break;
      case arith::CmpIPredicate::sge:
        read = {reader.notLess(lhs, rhs, 0)};
        break;
      case arith::CmpIPredicate::sgt:
        read = {reader.notLess(lhs, rhs, 1)};
        break;
      case arith::CmpIPredicate::eq:
        read = {reader.notLess(lhs, rhs, 0), reader.notLess(rhs, lhs, 0)};
        break;
      default:
        break;
      }
    }
    exact &= !read.empty();
    for (std::optional<AffineConstraint> &constraint : read) {
      // A constraint without the key does not bound the key loop; the mask itself is evaluated for it.
      bool isUseful = constraint && constraint->key != 0;
      exact &= isUseful;
      if (isUseful)
        constraints.push_back(std::move(*constraint));
    }
  }
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

namespace {

/// Clones values of a region to the insertion point.
struct Materializer {
  OpBuilder &b;
  Location loc;
  IRMapping values;
  Value queryLength, keyLength;

  /// Reads an element at a clamped index: if the mask holds for no pair of the tile, the index may be out of bounds.
  Value read(Value source, ArrayRef<Value> position) {
    SmallVector<Value> clamped;
    bool isBuffer = isa<MemRefType>(source.getType());
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
    for (auto [i, index] : llvm::enumerate(position)) {
      Value extent =
          isBuffer ? b.createOrFold<memref::DimOp>(loc, source, i) : b.createOrFold<tensor::DimOp>(loc, source, i);
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
      SmallVector<Value> operands =
          llvm::map_to_vector(op->getOperands(), [&](Value operand) { return (*this)(operand); });
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

/// Larger than any position; sums of such terms do not overflow.
constexpr int64_t largeTerm = int64_t(1) << 58;

Value clamped(OpBuilder &b, Location loc, Value value) {
  Value upper = b.createOrFold<arith::MinSIOp>(loc, value, index(b, loc, largeTerm));
  return b.createOrFold<arith::MaxSIOp>(loc, upper, index(b, loc, -largeTerm));
}

Value scaled(OpBuilder &b, Location loc, int64_t factor, Value value) {
  return factor == 1 ? value : arith::MulIOp::create(b, loc, value, index(b, loc, factor)).getResult();
}

} // namespace

/// The bound that a constraint gives for the position of `role`, for the position of the other role in [first, last]
/// that makes most positions visible: an end if its coefficient is negative, else a begin. Null if that is zero.
static Value emitBound(OpBuilder &b, Location loc, Materializer &materialize, const AffineConstraint &constraint,
                       Role role, Value first, Value last) {
  bool isKey = role == Role::Key;
  int64_t own = isKey ? constraint.key : constraint.query, other = isKey ? constraint.query : constraint.key;
  if (own == 0)
    return {};
  // rest + own · x ≥ 0
  Value rest = index(b, loc, std::clamp(constraint.constant, -largeTerm, largeTerm));
  auto add = [&](Value summand) { rest = arith::AddIOp::create(b, loc, rest, summand); };
  if (other != 0)
    add(scaled(b, loc, other, other > 0 ? last : first));
  for (auto [factor, term] : constraint.terms) {
    Value value = materialize(term);
    if (!value.getType().isIndex())
      value = arith::IndexCastOp::create(b, loc, b.getIndexType(), value);
    add(scaled(b, loc, factor, clamped(b, loc, value)));
  }
  Value divisor = index(b, loc, std::abs(own));
  if (own < 0) {
    // x ≤ floor(rest / |own|)
    Value most = own == -1 ? rest : arith::FloorDivSIOp::create(b, loc, rest, divisor).getResult();
    return arith::AddIOp::create(b, loc, most, index(b, loc, 1));
  }
  // x ≥ ceil(−rest / own)
  Value negated = arith::SubIOp::create(b, loc, index(b, loc, 0), rest);
  return own == 1 ? negated : arith::CeilDivSIOp::create(b, loc, negated, divisor).getResult();
}

KeyRange KeyBounds::computeRange(OpBuilder &b, Location loc, Role role, const IRMapping &values, Value queryLength,
                                 Value keyLength, Value first, Value last, KeyRange range) const {
  Materializer materialize{b, loc, values, queryLength, keyLength};
  for (const AffineConstraint &constraint : constraints) {
    Value bound = emitBound(b, loc, materialize, constraint, role, first, last);
    if (bound && (role == Role::Key ? constraint.key : constraint.query) < 0)
      range.end = arith::MinSIOp::create(b, loc, range.end, bound);
    else if (bound)
      range.begin = arith::MaxSIOp::create(b, loc, range.begin, bound);
  }
  return range;
}

IRMapping KeyBounds::mapArguments(Value batch, Value head) const {
  ScoringOpInterface scoring = op;
  IRMapping values;
  if (args) {
    values.map(args->batch, batch);
    values.map(args->head, head);
    values.map(args->captures, scoring.getCaptures());
  }
  return values;
}

std::optional<SmallVector<KeyBound>> KeyBounds::computeKeyBounds(OpBuilder &b, Location loc, Value batch, Value head,
                                                                 Value queryLength, Value keyLength,
                                                                 Value query) const {
  if (!llvm::all_of(constraints, [](const AffineConstraint &each) { return std::abs(each.key) == 1; }))
    return std::nullopt;
  IRMapping values = mapArguments(batch, head);
  Materializer materialize{b, loc, values, queryLength, keyLength};
  SmallVector<KeyBound> result;
  for (const AffineConstraint &constraint : constraints) {
    Value bound = emitBound(b, loc, materialize, constraint, Role::Key, query, query);
    result.push_back({bound, -constraint.key * constraint.query, constraint.key < 0});
  }
  return result;
}

KeyRange KeyBounds::computeKeyRange(OpBuilder &b, Location loc, Value batch, Value head, Value queryLength,
                                    Value keyLength, Value firstQuery, Value lastQuery, KeyRange keys) const {
  return computeRange(b, loc, Role::Key, mapArguments(batch, head), queryLength, keyLength, firstQuery, lastQuery,
                      keys);
}

KeyRange KeyBounds::computeQueryRange(OpBuilder &b, Location loc, Value batch, Value head, Value queryLength,
                                      Value keyLength, Value firstKey, Value lastKey, KeyRange queries) const {
  return computeRange(b, loc, Role::Query, mapArguments(batch, head), queryLength, keyLength, firstKey, lastKey,
                      queries);
}
