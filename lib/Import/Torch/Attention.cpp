//===- Attention.cpp - PyTorch scaled_dot_product_attention ---------------===//
//
// Expands the op to Q·Kᵀ, scale and mask, a softmax that gives 0 for fully masked rows, and P·V. Raising then builds
// one attn.attention, as for models that write attention out, and can include surrounding ops such as repeated KV heads
// and masks computed from positions.
//
//===----------------------------------------------------------------------===//
#include "Torch.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "saccade/Import/Common/Functions.h"
#include "saccade/Import/Common/Reductions.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::torch;

namespace {

/// Operands of shape [batches..., heads, sequence, depth]. The query may have `group` times as many heads as key and
/// value.
struct Operands {
  Value query, key, value;
  Extents queryExtents, keyExtents, valueExtents;
  int64_t group = 1; // query heads per KV head
};

} // namespace

static FailureOr<Operands> readOperands(Arguments &a) {
  ImplicitLocOpBuilder &b = a.op.builder();
  FailureOr<Value> query = a.required("query"), key = a.required("key"), value = a.required("value");
  if (failed(query) || failed(key) || failed(value))
    return failure();
  Operands all{*query,
               *key,
               *value,
               frontend::extentsOf(b, *query),
               frontend::extentsOf(b, *key),
               frontend::extentsOf(b, *value)};
  auto type = cast<RankedTensorType>(query->getType());
  int64_t rank = type.getRank();
  auto fits = [&](Value tensor) { return rankOf(tensor) == rank && elementOf(tensor) == type.getElementType(); };
  if (rank < 2 || !isa<FloatType>(type.getElementType()) || !fits(all.key) || !fits(all.value))
    return a.op.error() << "found " << type << ", " << all.key.getType() << " and " << all.value.getType()
                        << ", expected floating-point tensors of equal rank, at least 2";
  auto requireEqual = [&](const Extents &x, const Extents &y, int64_t dim, StringRef what) -> LogicalResult {
    std::optional<int64_t> found = getConstantIntValue(x[dim]), expected = getConstantIntValue(y[dim]);
    return found && expected ? frontend::requireEqual(a.op, *found, *expected, what) : success();
  };
  if (failed(requireEqual(all.keyExtents, all.queryExtents, rank - 1, "the depth of the key")) ||
      failed(requireEqual(all.valueExtents, all.keyExtents, rank - 2, "positions of the value")))
    return failure();
  if (a.flag("enable_gqa") && rank > 2) {
    int64_t heads = type.getDimSize(rank - 3), kvHeads = cast<RankedTensorType>(all.key.getType()).getDimSize(rank - 3);
    if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(kvHeads) || kvHeads == 0 || heads % kvHeads != 0)
      return a.op.error() << "found the query " << type << " and the key " << all.key.getType()
                          << ", expected static head counts, the query heads a multiple of the KV heads";
    all.group = heads / kvHeads;
  }
  for (int64_t dim = 0; dim < rank - 2; ++dim) {
    bool isGrouped = dim == rank - 3 && all.group > 1;
    if ((!isGrouped && failed(requireEqual(all.keyExtents, all.queryExtents, dim, "a batch of the key"))) ||
        failed(requireEqual(all.valueExtents, all.keyExtents, dim, "a batch of the value")))
      return failure();
  }
  return all;
}

/// Q Kᵀ as [..., KV heads, group, queries, keys], without the group dimension if the group size is 1.
static Value emitScores(ImplicitLocOpBuilder &b, Operands &all, Type type) {
  int64_t rank = all.queryExtents.size();
  SmallVector<AffineExpr> outer, keyOuter;
  Extents loops(ArrayRef(all.keyExtents).drop_back(2));
  for (int64_t dim = 0; dim < rank - 2; ++dim)
    outer.push_back(b.getAffineDimExpr(dim));
  keyOuter = outer;
  if (all.group > 1) {
    all.queryExtents[rank - 3] = all.keyExtents[rank - 3];
    all.queryExtents.insert(all.queryExtents.begin() + rank - 2, b.getIndexAttr(all.group));
    all.query = frontend::reshape(b, all.query, all.queryExtents);
    outer.push_back(b.getAffineDimExpr(loops.size()));
    loops.push_back(b.getIndexAttr(all.group));
  }
  for (auto [loop, extent] : llvm::zip(loops, all.queryExtents))
    loop = isa<Attribute>(loop) ? loop : extent;
  unsigned first = loops.size();
  AffineExpr i = b.getAffineDimExpr(first), j = b.getAffineDimExpr(first + 1), d = b.getAffineDimExpr(first + 2);
  loops.append({all.queryExtents[all.queryExtents.size() - 2], all.keyExtents[rank - 2], all.queryExtents.back()});
  auto map = [&](ArrayRef<AffineExpr> dims, AffineExpr x, AffineExpr y) {
    SmallVector<AffineExpr> whole(dims);
    whole.append({x, y});
    return AffineMap::get(loops.size(), 0, whole, b.getContext());
  };
  return frontend::contract(b, all.query, all.key, map(outer, i, d), map(keyOuter, j, d), map(outer, i, j), loops,
                            type);
}

/// Reshapes the mask so that it broadcasts to the scores, which have a dimension for the group of heads if the group
/// size is not 1.
static Value alignMask(ImplicitLocOpBuilder &b, Value mask, int64_t group, int64_t rank) {
  int64_t own = rankOf(mask);
  if (group == 1 || own < 3)
    return mask;
  Extents extents = frontend::extentsOf(b, mask);
  bool isShared = isConstantIntValue(extents[own - 3], 1);
  if (!isShared)
    extents[own - 3] = frontend::divideExtents(b, extents[own - 3], b.getIndexAttr(group));
  extents.insert(extents.begin() + own - 2, b.getIndexAttr(isShared ? 1 : group));
  return frontend::reshape(b, mask, extents);
}

/// The factor of the scores in their type: as given, or 1 / √depth.
static Value emitScale(Arguments &a, OpFoldResult depth, Type type) {
  ImplicitLocOpBuilder &b = a.op.builder();
  std::optional<int64_t> known = getConstantIntValue(depth);
  if (known || a.has("scale"))
    return frontend::makeNumber(b, b.getLoc(), type,
                                a.number("scale", 1 / std::sqrt(static_cast<double>(known.value_or(1)))));
  Value size = frontend::convert(b, b.getLoc(), cast<Value>(depth), type);
  Value one = frontend::makeNumber(b, b.getLoc(), type, 1);
  return arith::DivFOp::create(b, one, math::SqrtOp::create(b, size));
}

/// Scales and masks the scores: by a bias or bool mask, and causally if requested.
static FailureOr<Value> maskScores(Arguments &a, Value scores, const Operands &all, Value scale) {
  ImplicitLocOpBuilder &b = a.op.builder();
  Type type = elementOf(scores);
  bool isCausal = a.flag("is_causal");
  SmallVector<Value> inputs = {scores};
  if (Value mask = a.tensor("attn_mask")) {
    if (!isa<FloatType>(elementOf(mask)) && !elementOf(mask).isInteger(1))
      return a.op.error() << "the mask is " << mask.getType() << ", expected bool or floating point";
    inputs.push_back(alignMask(b, mask, all.group, rankOf(all.key)));
    if (failed(frontend::requireBroadcastTo(a.op, inputs.back(), scores.getType())))
      return failure();
  }
  int64_t rank = rankOf(scores);
  return frontend::generate(
      b, frontend::extentsOf(b, scores), inputs, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
        Value score = frontend::mul(nested, loc, x[rank], scale);
        Value hidden = arith::ConstantOp::create(nested, loc, frontend::extremeAttr(type, /*largest=*/false));
        if (inputs.size() > 1) {
          Value given = x[rank + 1];
          score = given.getType().isInteger(1)
                      ? frontend::select(nested, loc, given, score, hidden)
                      : frontend::add(nested, loc, score, frontend::convert(nested, loc, given, type));
        }
        if (isCausal) {
          Value isBefore = frontend::compare(nested, loc, arith::CmpIPredicate::sle, x[rank - 1], x[rank - 2]);
          score = frontend::select(nested, loc, isBefore, score, hidden);
        }
        return score;
      });
}

static LogicalResult translateAttention(Arguments &a, Values &results) {
  ImplicitLocOpBuilder &b = a.op.builder();
  FailureOr<Operands> all = readOperands(a);
  if (failed(all))
    return failure();
  if (a.number("dropout_p", 0) != 0)
    return a.op.error() << "dropout is not supported: call eval() on the module";
  Type element = elementOf(all->query), type = frontend::getAccumulatorType(element);
  OpFoldResult depth = all->queryExtents.back();
  if (isConstantIntValue(depth, 0))
    return a.op.error() << "the depth of " << all->query.getType() << " must not be 0";
  Extents result(all->queryExtents);
  result.back() = all->valueExtents.back();
  Value scores = emitScores(b, *all, type);
  FailureOr<Value> masked = maskScores(a, scores, *all, emitScale(a, depth, type));
  if (failed(masked))
    return failure();
  int64_t rank = rankOf(scores);
  Value weights = frontend::softmax(b, *masked, rank - 1);
  // Fully masked rows give 0.
  if (a.tensor("attn_mask"))
    weights = frontend::elementwise(b, weights, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
      return frontend::zeroForNaN(nested, loc, x[0]);
    });
  // P·V, where query heads of a group share a KV head.
  SmallVector<AffineExpr> dims, valueDims;
  for (int64_t i = 0; i < rank; ++i)
    dims.push_back(b.getAffineDimExpr(i));
  for (int64_t i = 0; i < rankOf(all->value) - 2; ++i)
    valueDims.push_back(dims[i]);
  AffineExpr wide = b.getAffineDimExpr(rank);
  valueDims.append({dims.back(), wide});
  SmallVector<AffineExpr> outputDims(ArrayRef(dims).drop_back());
  outputDims.push_back(wide);
  Extents loops = frontend::extentsOf(b, weights);
  loops.push_back(all->valueExtents.back());
  auto map = [&](ArrayRef<AffineExpr> own) { return AffineMap::get(rank + 1, 0, own, b.getContext()); };
  Value output = frontend::contract(b, weights, all->value, map(dims), map(valueDims), map(outputDims), loops, type);
  output = frontend::castElements(b, output, element);
  results.push_back(all->group > 1 ? frontend::reshape(b, output, result) : output);
  return success();
}

void torch::addAttention(frontend::Frontend &frontend) {
  add(frontend, "aten.scaled_dot_product_attention", translateAttention);
}
