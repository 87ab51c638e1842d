//===- Lint.cpp - Warn about likely mistakes ----------------------------------===//
//
// Finds mistakes in valid programs that give wrong results. Runs before other transformations, so that warnings point
// at the user's ops.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "saccade/Dialect/Attn/Analysis/HeadSizeOrigins.h"
#include "saccade/Dialect/Attn/IR/Attn.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include <cmath>

namespace saccade::attn {
#define GEN_PASS_DEF_LINT
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade::attn;

/// Compares with a tolerance: scales are written with few digits and rounded to the score type.
static bool isNear(double value, double expected) { return std::abs(value - expected) <= 1e-3 * expected; }

static int64_t getHeadSize(AttentionOp op) { return getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Depth); }

/// The number of queries or keys; dynamic if positions or lengths are run-time values.
static int64_t getLength(AttentionOp op, Role role) {
  bool isQuery = role == Role::Query;
  if (!op.getAt().empty() || op.getCuSeqlens(role) || (isQuery ? op.getQLen() : op.getKvLen()))
    return ShapedType::kDynamic;
  return isQuery ? getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Seq)
                 : getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Seq);
}

//===----------------------------------------------------------------------===//
// Scale
//===----------------------------------------------------------------------===//

/// Folds `value` if it is computed from constants in at most `depth` ops. The limit avoids exponential time on values
/// with shared operands.
static Attribute evaluate(Value value, unsigned depth = 4) {
  Attribute constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant;
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0 || op->getNumOperands() == 0 || op->getNumResults() != 1 || op->getNumRegions() != 0)
    return {};
  SmallVector<Attribute> operands;
  for (Value operand : op->getOperands()) {
    operands.push_back(evaluate(operand, depth - 1));
    if (!operands.back())
      return {};
  }
  SmallVector<OpFoldResult> results;
  bool isConstant = succeeded(op->fold(operands, results)) && results.size() == 1;
  return isConstant ? dyn_cast<Attribute>(results[0]) : Attribute();
}

static void checkScale(AttentionOp op) {
  auto constant = dyn_cast_or_null<FloatAttr>(op.getScaleValue() ? evaluate(op.getScaleValue()) : op.getScaleAttr());
  int64_t headSize = getHeadSize(op), heads = getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Head);
  if (!constant || headSize <= 1)
    return;
  double scale = constant.getValueAsDouble();
  if (isNear(scale, 1 / std::sqrt(headSize)))
    return;
  auto warnAbout = [&](int64_t width, const llvm::Twine &what) {
    bool found = width > 1 && isNear(scale, 1 / std::sqrt(width));
    if (found)
      emitWarning(op.getLoc()) << "scale is 1/√" << width << ", " << what << "; expected 1/√" << headSize
                               << ", the head size";
    return found;
  };
  if (heads > 1 && heads <= std::numeric_limits<int64_t>::max() / headSize &&
      warnAbout(heads * headSize, "the width of all " + llvm::Twine(heads) + " heads together"))
    return;
  for (HeadSizeOrigin width : findHeadSizeOrigins(op.getQuery(), *op.getQueryDims().position(Dim::Depth)))
    if (warnAbout(width.extent, width.isProjected ? "the width that queries are projected from"
                                                  : "the width that the heads are cut from"))
      return;
  if (isNear(scale, 1.0 / headSize))
    emitWarning(op.getLoc()) << "scale is 1/" << headSize << ", without the square root; expected 1/√" << headSize
                             << ", the head size";
}

//===----------------------------------------------------------------------===//
// Mask
//===----------------------------------------------------------------------===//

/// The role of `value` if it is the query or the key position, possibly cast to another integer type.
static std::optional<Role> getPosition(Value value, const RegionArguments &args) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp>(op))
      return std::nullopt;
    value = op->getOperand(0);
  }
  if (value == args.query)
    return Role::Query;
  return value == args.key ? std::optional(Role::Key) : std::nullopt;
}

/// Finds `tril(head_size)`: a captured mask with the head size in place of a sequence length.
static void checkMaskExtents(AttentionOp op, const RegionArguments &args) {
  int64_t headSize = getHeadSize(op);
  for (auto extract : op.getMask().getOps<tensor::ExtractOp>()) {
    llvm::SmallSetVector<Role, 2> wrong;
    for (auto [index, extent] : llvm::zip_equal(extract.getIndices(), extract.getTensor().getType().getShape()))
      if (std::optional<Role> role = getPosition(index, args);
          role && !ShapedType::isDynamic(extent) && extent == headSize && getLength(op, *role) != headSize)
        wrong.insert(*role);
    if (wrong.size() == 2)
      emitWarning(extract.getLoc()) << "mask covers " << headSize << " × " << headSize
                                    << " positions, which is the head size; expected the sequence lengths";
    else if (wrong.size() == 1)
      emitWarning(extract.getLoc()) << "mask covers " << headSize << (wrong[0] == Role::Query ? " queries" : " keys")
                                    << ", which is the head size; expected the length of the "
                                    << stringifyRole(wrong[0]);
  }
}

/// Finds comparisons of a position with the head size.
static void checkMaskBounds(AttentionOp op, const RegionArguments &args) {
  for (auto compare : op.getMask().getOps<arith::CmpIOp>()) {
    if (llvm::is_contained({arith::CmpIPredicate::eq, arith::CmpIPredicate::ne}, compare.getPredicate()))
      continue;
    for (auto [position, bound] :
         {std::pair(compare.getLhs(), compare.getRhs()), {compare.getRhs(), compare.getLhs()}}) {
      std::optional<Role> role = getPosition(position, args);
      auto constant = role ? dyn_cast_or_null<IntegerAttr>(evaluate(bound)) : nullptr;
      if (constant && constant.getValue() == getHeadSize(op) && getLength(op, *role) != getHeadSize(op))
        emitWarning(compare.getLoc()) << "mask compares positions of the " << stringifyRole(*role) << " with "
                                      << getHeadSize(op) << ", which is the head size; expected its length";
    }
  }
}

/// Whether the mask implies `condition`.
static bool isConjunct(Value condition) {
  while (condition.hasOneUse()) {
    Operation *user = *condition.user_begin();
    if (!isa<arith::AndIOp>(user))
      return isa<YieldOp>(user);
    condition = user->getResult(0);
  }
  return false;
}

/// Finds decoding with `causal<top_left>`, which takes the queries as the first of the sequence instead of the last.
static void checkAlignment(AttentionOp op, const RegionArguments &args) {
  int64_t queries = getStaticDimSize(op.getQuery(), op.getQueryDims(), Dim::Seq);
  int64_t keys = getStaticDimSize(op.getKey(), op.getKeyDims(), Dim::Seq);
  if (!op.getAt().empty() || ShapedType::isDynamic(queries) || queries >= keys)
    return;
  for (auto compare : op.getMask().getOps<arith::CmpIOp>()) {
    bool isReversed = compare.getPredicate() == arith::CmpIPredicate::sge;
    Value lower = isReversed ? compare.getRhs() : compare.getLhs(),
          upper = isReversed ? compare.getLhs() : compare.getRhs();
    if ((!isReversed && compare.getPredicate() != arith::CmpIPredicate::sle) || !isConjunct(compare) ||
        getPosition(lower, args) != Role::Key || getPosition(upper, args) != Role::Query)
      continue;
    InFlightDiagnostic warning = emitWarning(compare.getLoc()) << "top_left alignment with " << queries;
    if (queries == 1)
      warning << " query and " << keys << " keys lets the query attend to the first key only";
    else
      warning << " queries and " << keys << " keys lets no query attend beyond the first " << queries << " keys";
    warning << "; bottom_right was probably meant";
    return;
  }
}

//===----------------------------------------------------------------------===//
// Finite numbers for masks
//===----------------------------------------------------------------------===//

/// Scores up to this value are taken for masks: −1e4 (in the range of f16), −1e9, −inf.
static constexpr double largestSentinel = -9999;

static std::optional<double> getConstant(Value value) {
  Attribute constant;
  if (!matchPattern(value, m_Constant(&constant)))
    return std::nullopt;
  if (auto splat = dyn_cast<SplatElementsAttr>(constant))
    constant = splat.getSplatValue<Attribute>();
  auto number = dyn_cast<FloatAttr>(constant);
  return number ? std::optional(number.getValueAsDouble()) : std::nullopt;
}

/// The sentinel that is added in `value`, if any.
static std::optional<double> getAddedSentinel(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !isa<arith::AddFOp, arith::SubFOp>(op))
    return std::nullopt;
  bool isDifference = isa<arith::SubFOp>(op);
  for (OpOperand &operand : op->getOpOperands()) {
    std::optional<double> number = getConstant(operand.get());
    if (number && isDifference && operand.getOperandNumber() == 1)
      number = -*number;
    if (number && *number <= largestSentinel)
      return number;
  }
  return std::nullopt;
}

/// The sentinel that `op` selects (possibly in a sum) or multiplies by, if any.
static std::optional<double> getSentinel(Operation *op) {
  if (!isa<arith::SelectOp, arith::MulFOp>(op))
    return std::nullopt;
  for (Value operand : op->getOperands()) {
    if (std::optional<double> number = getConstant(operand); number && *number <= largestSentinel)
      return number;
    if (isa<arith::SelectOp>(op))
      if (std::optional<double> number = getAddedSentinel(operand))
        return number;
  }
  return std::nullopt;
}

/// The sentinel in the op that computes `tensor`, through casts and reshapes.
static std::optional<double> getSentinel(Value tensor) {
  for (unsigned steps = 0; steps < 8; ++steps) {
    Operation *op = tensor.getDefiningOp();
    if (!op || op->getNumOperands() == 0)
      return std::nullopt;
    std::optional<double> found = getSentinel(op);
    op->walk([&](Operation *inner) {
      if (!found)
        found = getSentinel(inner);
    });
    if (found || op->getNumRegions() != 0)
      return found;
    tensor = op->getOperand(0);
  }
  return std::nullopt;
}

/// Finds scores that mask keys by a large negative number.
static void checkSentinels(AttentionOp op) {
  if (op.getScore().empty())
    return;
  auto warnAt = [](Location loc, double sentinel, const llvm::Twine &what) {
    InFlightDiagnostic warning = emitWarning(loc) << "score " << what << " ";
    if (std::isinf(sentinel))
      warning << "−inf";
    else
      warning << sentinel;
    warning << ", a number in place of a mask; expected a mask region: rows without visible keys are then "
               "exact, and empty tiles are skipped";
  };
  for (Operation &inner : op.getScore().front())
    if (std::optional<double> sentinel = getSentinel(&inner))
      return warnAt(inner.getLoc(), *sentinel, isa<arith::SelectOp>(inner) ? "chooses" : "is lowered by multiples of");
  RegionArguments args = getRegionArguments(op.getScore(), /*numbers=*/1);
  for (auto [capture, argument] : llvm::zip_equal(op.getCaptures(), args.captures))
    if (isa<RankedTensorType>(capture.getType()) && !argument.use_empty())
      if (std::optional<double> sentinel = getSentinel(capture))
        return warnAt(op.getLoc(), *sentinel, "reads a tensor that is made of");
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

static constexpr void (*maskChecks[])(AttentionOp, const RegionArguments &) = {checkMaskExtents, checkMaskBounds,
                                                                               checkAlignment};

namespace {

struct Lint : saccade::attn::impl::LintBase<Lint> {
  void runOnOperation() override {
    getOperation().walk([](AttentionOp op) {
      checkScale(op);
      checkSentinels(op);
      if (op.getMask().empty())
        return;
      for (auto check : maskChecks)
        check(op, getRegionArguments(op.getMask(), /*numbers=*/0));
    });
    markAllAnalysesPreserved();
  }
};

} // namespace
