//===- ExpandWeights.cpp - attn.weights as structured ops ---------------------===//
//
// Weights are a contraction of queries and keys and an elementwise op with the regions. KV heads and the query heads of
// each are loops of their own, so that the contraction reads the keys of a group without copying them.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "saccade/Dialect/Attn/IR/Position.h"
#include "saccade/Dialect/Attn/Transforms/Passes.h"
#include "saccade/Support/IndexEmitter.h"

namespace saccade::attn {
#define GEN_PASS_DEF_EXPANDWEIGHTS
#include "saccade/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace saccade::attn

using namespace mlir;
using namespace saccade;
using namespace saccade::attn;

namespace {

/// The loops over pairs. `Group`: the query heads of a KV head; then `Head` is the loop over KV heads.
enum class Loop { Batch, Head, Group, Query, Key, Depth };

/// A tensor and the loop of each of its dimensions.
struct Indexed {
  Value value;
  SmallVector<Loop> loops;
};

class WeightsExpansion : IndexEmitter {
public:
  WeightsExpansion(OpBuilder &b, WeightsOp op) : IndexEmitter(b, op.getLoc()), op(op), type(op.getScoreType()) {}

  /// Emits the weights.
  Value emit();

private:
  void findLoops();
  Value emitScale();
  Indexed withLoops(Value value, ArrayRef<Dim> dims, bool isKey);
  AffineMap mapOf(ArrayRef<Loop> of, unsigned dims) const;
  Value emitProducts();
  Value emitWeights(Value products);
  Value emitPair(ValueRange numbers);
  Value lengthOf(Role role, Value batch);
  /// The position of the pair along a dimension: that of element 0, if `at` gives it, plus the index.
  Value positionOf(Loop loop, unsigned dimOfAt);
  /// Emits a region, of which `number` is the first argument unless it is null.
  Value emitRegion(Region &region, Value number);
  Value emitRead(tensor::ExtractOp read, IRMapping &values);
  Value constant(double number) { return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, number)); }

  WeightsOp op;
  FloatType type;
  bool isKeyShared = false;          ///< all query heads read the only KV head
  OpFoldResult kvHeads, groupSize;   ///< null without groups
  SmallVector<Loop> loops;           ///< those of the result, in its order
  SmallVector<OpFoldResult> extents; ///< of `loops`
  Value queries, keys, group, scale; ///< the extents of queries, keys and groups; the scale
  SmallVector<Value, 4> position;    ///< of the pair: b, h, q, k
  Value queryLength, keyLength;      ///< of the batch of the pair
};

void WeightsExpansion::findLoops() {
  auto sizeOf = [&](Dim dim) { return getDimSize(b, loc, op.getQuery(), op.getQueryDims(), dim); };
  NamedOperand query{"query", op.getQuery(), op.getQueryDims()}, key{"key", op.getKey(), op.getKeyDims()};
  isKeyShared = key.size(Dim::Head) == 1;
  bool hasGroups =
      !isKeyShared && (query.size(Dim::Head) != key.size(Dim::Head) || ShapedType::isDynamic(query.size(Dim::Head)));
  auto add = [&](Loop loop, OpFoldResult extent) {
    loops.push_back(loop);
    extents.push_back(extent);
  };
  if (op.getQueryDims().position(Dim::Batch))
    add(Loop::Batch, sizeOf(Dim::Batch));
  if (op.getQueryDims().position(Dim::Head) && !hasGroups) {
    add(Loop::Head, sizeOf(Dim::Head));
  } else if (op.getQueryDims().position(Dim::Head)) {
    kvHeads = getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Head);
    // Without KV heads there are no query heads either.
    Value divisor = max(getValueOrCreateConstantIndexOp(b, loc, kvHeads), index(1));
    group = div(getValueOrCreateConstantIndexOp(b, loc, sizeOf(Dim::Head)), divisor);
    groupSize = getAsOpFoldResult(group);
    add(Loop::Head, kvHeads);
    add(Loop::Group, groupSize);
  }
  add(Loop::Query, sizeOf(Dim::Seq));
  add(Loop::Key, getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Seq));
  queries = getValueOrCreateConstantIndexOp(b, loc, extents[extents.size() - 2]);
  keys = getValueOrCreateConstantIndexOp(b, loc, extents.back());
}

Value WeightsExpansion::emitScale() {
  if (op.getScaleValue())
    return op.getScaleValue();
  if (std::optional<double> known = getConstantScale(op))
    return constant(*known);
  OpFoldResult depth = getDimSize(b, loc, op.getKey(), op.getKeyDims(), Dim::Depth);
  Value integer = arith::IndexCastOp::create(b, loc, b.getI64Type(), getValueOrCreateConstantIndexOp(b, loc, depth));
  Value root = math::SqrtOp::create(b, loc, arith::SIToFPOp::create(b, loc, type, integer));
  return arith::DivFOp::create(b, loc, constant(1.0), root);
}

/// `value` with a dimension for each of some loops: its dimensions b and h are dropped if they have extent 1 and no
/// loop, and query heads are split into KV heads and groups.
Indexed WeightsExpansion::withLoops(Value value, ArrayRef<Dim> dims, bool isKey) {
  auto tensor = cast<RankedTensorType>(value.getType());
  SmallVector<OpFoldResult> whole = tensor::getMixedSizes(b, loc, value), split;
  SmallVector<int64_t> keptShape;
  SmallVector<ReassociationIndices> groups;
  Indexed result{value, {}};
  for (auto [i, dim] : llvm::enumerate(dims)) {
    Loop loop = dim == Dim::Batch  ? Loop::Batch
                : dim == Dim::Head ? Loop::Head
                : dim == Dim::Seq  ? (isKey ? Loop::Key : Loop::Query)
                                   : Loop::Depth;
    if ((dim == Dim::Head && isKey && isKeyShared) || (loop != Loop::Depth && !llvm::is_contained(loops, loop))) {
      whole[i] = b.getIndexAttr(1);
      continue;
    }
    keptShape.push_back(tensor.getDimSize(i));
    groups.push_back({int64_t(split.size())});
    result.loops.push_back(loop);
    if (dim == Dim::Head && !isKey && groupSize) {
      groups.back().push_back(int64_t(split.size()) + 1);
      split.append({kvHeads, groupSize});
      result.loops.push_back(Loop::Group);
    } else {
      split.push_back(whole[i]);
    }
  }
  if (int64_t(keptShape.size()) != tensor.getRank()) {
    SmallVector<OpFoldResult> zeros(tensor.getRank(), b.getIndexAttr(0)), ones(tensor.getRank(), b.getIndexAttr(1));
    auto reduced = RankedTensorType::get(keptShape, tensor.getElementType());
    result.value = tensor::ExtractSliceOp::create(b, loc, reduced, value, zeros, whole, ones);
  }
  if (split.size() != groups.size()) {
    auto expanded = RankedTensorType::get(decomposeMixedValues(split).first, tensor.getElementType());
    // An extent of which a factor is dynamic must be dynamic.
    for (auto [extent, group] : llvm::zip_equal(keptShape, groups))
      if (llvm::any_of(group, [&](int64_t part) { return expanded.isDynamicDim(part); }))
        extent = ShapedType::kDynamic;
    auto dynamic = RankedTensorType::get(keptShape, tensor.getElementType());
    if (dynamic != result.value.getType())
      result.value = tensor::CastOp::create(b, loc, dynamic, result.value);
    result.value = tensor::ExpandShapeOp::create(b, loc, expanded, result.value, groups, split);
  }
  return result;
}

/// The loops `of` of a tensor among `dims` loops, which are those of the result and then the depth.
AffineMap WeightsExpansion::mapOf(ArrayRef<Loop> of, unsigned dims) const {
  auto places = llvm::map_to_vector(of, [&](Loop loop) {
    return b.getAffineDimExpr(loop == Loop::Depth ? loops.size() : llvm::find(loops, loop) - loops.begin());
  });
  return AffineMap::get(dims, 0, places, b.getContext());
}

/// q · k of all pairs.
Value WeightsExpansion::emitProducts() {
  Indexed query = withLoops(op.getQuery(), op.getQueryDims().getDims(), /*isKey=*/false),
          key = withLoops(op.getKey(), op.getKeyDims().getDims(), /*isKey=*/true);
  Value empty = tensor::EmptyOp::create(b, loc, extents, type);
  Value zeros = linalg::FillOp::create(b, loc, constant(0.0), empty).getResult(0);
  unsigned dims = loops.size() + 1;
  SmallVector<utils::IteratorType> kinds(loops.size(), utils::IteratorType::parallel);
  kinds.push_back(utils::IteratorType::reduction);
  auto emitTerm = [&](OpBuilder &nested, Location, ValueRange x) {
    auto widened = [&](Value number) {
      return number.getType() == type ? number : arith::ExtFOp::create(nested, loc, type, number).getResult();
    };
    Value left = widened(x[0]), right = widened(x[1]);
    Value sum = arith::AddFOp::create(nested, loc, x[2], arith::MulFOp::create(nested, loc, left, right));
    linalg::YieldOp::create(nested, loc, sum);
  };
  return linalg::GenericOp::create(b, loc, zeros.getType(), ValueRange{query.value, key.value}, zeros,
                                   {mapOf(query.loops, dims), mapOf(key.loops, dims), mapOf(loops, dims)}, kinds,
                                   emitTerm)
      .getResult(0);
}

Value WeightsExpansion::lengthOf(Role role, Value batch) {
  Value length = role == Role::Query ? op.getQLen() : op.getKvLen();
  if (length && isa<RankedTensorType>(length.getType()))
    length = tensor::ExtractOp::create(b, loc, length, batch);
  if (length)
    return asIndex(length);
  Value rows = role == Role::Query ? queries : keys;
  return op.getAt().empty() ? rows : add(rows, op.getAt()[role == Role::Query ? 2 : 3]);
}

Value WeightsExpansion::positionOf(Loop loop, unsigned dimOfAt) {
  const auto *place = llvm::find(loops, loop);
  Value own = place == loops.end() ? index(0) : linalg::IndexOp::create(b, loc, place - loops.begin()).getResult();
  if (loop == Loop::Head && group)
    own = add(mul(own, group), linalg::IndexOp::create(b, loc, place - loops.begin() + 1));
  return op.getAt().empty() ? own : add(own, op.getAt()[dimOfAt]);
}

/// A read at an index within the tensor: regions are also evaluated for masked pairs.
Value WeightsExpansion::emitRead(tensor::ExtractOp read, IRMapping &values) {
  Value tensor = values.lookup(read.getTensor());
  SmallVector<Value> indices;
  for (auto [dim, place] : llvm::enumerate(read.getIndices())) {
    Value extent = getValueOrCreateConstantIndexOp(b, loc, tensor::getMixedSize(b, loc, tensor, dim));
    indices.push_back(max(min(values.lookup(place), sub(extent, index(1))), index(0)));
  }
  return tensor::ExtractOp::create(b, read.getLoc(), tensor, indices);
}

Value WeightsExpansion::emitRegion(Region &region, Value number) {
  if (region.empty())
    return number;
  IRMapping values;
  SmallVector<Value> arguments;
  if (number)
    arguments.push_back(number);
  llvm::append_range(arguments, position);
  llvm::append_range(arguments, op.getCaptures());
  values.map(region.getArguments(), arguments);
  for (Operation &inner : region.front().without_terminator()) {
    if (auto length = dyn_cast<LengthOp>(inner))
      values.map(length.getResult(), length.getRole() == Role::Query ? queryLength : keyLength);
    else if (auto read = dyn_cast<tensor::ExtractOp>(inner))
      values.map(read.getResult(), emitRead(read, values));
    else
      b.clone(inner, values);
  }
  return values.lookupOrDefault(cast<YieldOp>(region.front().getTerminator()).getOperand());
}

/// The body: `numbers` are the product of query and key, the log-sum-exp and, if it is given, its low part.
Value WeightsExpansion::emitPair(ValueRange numbers) {
  Value batch = positionOf(Loop::Batch, 0);
  position = {batch, positionOf(Loop::Head, 1), positionOf(Loop::Query, 2), positionOf(Loop::Key, 3)};
  const auto *place = llvm::find(loops, Loop::Batch);
  Value sequence = place == loops.end() ? index(0) : linalg::IndexOp::create(b, loc, 0).getResult();
  queryLength = lengthOf(Role::Query, sequence), keyLength = lengthOf(Role::Key, sequence);

  Value infinity = constant(-std::numeric_limits<double>::infinity());
  auto isNot = [&](Value x) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, x, infinity).getResult();
  };
  auto both = [&](Value x, Value y) { return arith::AndIOp::create(b, loc, x, y).getResult(); };
  Value isVisible = isNot(numbers[1]);
  if (op.getQLen())
    isVisible = both(isVisible, isLess(position[2], queryLength));
  if (op.getKvLen())
    isVisible = both(isVisible, isLess(position[3], keyLength));
  if (!op.getMask().empty())
    isVisible = both(isVisible, emitRegion(op.getMask(), nullptr));

  Value score = emitRegion(op.getScore(), arith::MulFOp::create(b, loc, numbers[0], scale));
  Value exponent = arith::SubFOp::create(b, loc, score, numbers[1]);
  if (op.getLseLow())
    exponent = arith::SubFOp::create(b, loc, exponent, numbers[2]);
  Value weight = emitRegion(op.getWeight(), math::ExpOp::create(b, loc, exponent));
  if (!op.getWeight().empty())
    isVisible = both(isVisible, isNot(score));
  return arith::SelectOp::create(b, loc, isVisible, weight, constant(0.0));
}

Value WeightsExpansion::emitWeights(Value products) {
  SmallVector<Value> inputs = {products};
  SmallVector<AffineMap> maps = {mapOf(loops, loops.size())};
  for (Value rows : {Value(op.getLse()), Value(op.getLseLow())})
    if (rows) {
      Indexed indexed = withLoops(rows, op.getRowDims(), /*isKey=*/false);
      inputs.push_back(indexed.value);
      maps.push_back(mapOf(indexed.loops, loops.size()));
    }
  maps.push_back(maps.front());
  Value empty = tensor::EmptyOp::create(b, loc, extents, type);
  SmallVector<utils::IteratorType> kinds(loops.size(), utils::IteratorType::parallel);
  return linalg::GenericOp::create(b, loc, empty.getType(), inputs, empty, maps, kinds,
                                   [&](OpBuilder &nested, Location, ValueRange numbers) {
                                     OpBuilder::InsertionGuard guard(b);
                                     b.restoreInsertionPoint(nested.saveInsertionPoint());
                                     Value weight = emitPair(numbers);
                                     linalg::YieldOp::create(b, loc, weight);
                                   })
      .getResult(0);
}

/// Whether a static extent is 0, of which upstream rejects slices.
static bool isEmpty(WeightsOp op) {
  return llvm::any_of(ArrayRef<Value>{op.getQuery(), op.getKey(), op.getResult()}, [](Value tensor) {
    return llvm::is_contained(cast<RankedTensorType>(tensor.getType()).getShape(), 0);
  });
}

Value WeightsExpansion::emit() {
  findLoops();
  scale = emitScale();
  Value result = isEmpty(op) ? tensor::EmptyOp::create(b, loc, extents, type).getResult() : emitWeights(emitProducts());
  if (groupSize) {
    SmallVector<ReassociationIndices> groups;
    for (auto [i, loop] : llvm::enumerate(loops))
      if (loop == Loop::Group)
        groups.back().push_back(i);
      else
        groups.push_back({int64_t(i)});
    result = tensor::CollapseShapeOp::create(b, loc, result, groups);
  }
  return result.getType() == op.getType() ? result : tensor::CastOp::create(b, loc, op.getType(), result).getResult();
}

struct ExpandWeights : attn::impl::ExpandWeightsBase<ExpandWeights> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<WeightsOp> ops(getOperation().getOps<WeightsOp>());
    for (WeightsOp op : ops) {
      rewriter.setInsertionPoint(op);
      rewriter.replaceOp(op, WeightsExpansion(rewriter, op).emit());
    }
  }
};

} // namespace
