//===- MicrosoftScores.cpp - Scores of com.microsoft's attention ----------===//
#include "MicrosoftScores.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <limits>

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using Predicate = arith::CmpIPredicate;

/// Is added to the score of a key behind the query, instead of the number for padding.
static constexpr double lowest = std::numeric_limits<float>::lowest();

int MicrosoftScores::capture(Value value) {
  auto found = llvm::find(captures, value);
  if (found == captures.end()) {
    captures.push_back(value);
    return captures.size() - 1;
  }
  return found - captures.begin();
}

LogicalResult MicrosoftScores::readPadding(FrontendOp &op, Value given) {
  padded = op.number("mask_filter_value", -10000.0F);
  if (!given)
    return success();
  auto type = cast<RankedTensorType>(given.getType());
  std::optional<int64_t> batches = getConstantIntValue(extents[0]);
  int64_t first = type.getRank() ? type.getDimSize(0) : 0;
  auto agrees = [&](int64_t dim, OpFoldResult extent) {
    std::optional<int64_t> expected = getConstantIntValue(extent);
    return type.isDynamicDim(dim) || !expected || type.getDimSize(dim) == *expected;
  };
  bool fits = isa<IntegerType>(type.getElementType());
  if (type.getRank() == 1) {
    bool isRange = batches && first == 2 * *batches, hasMore = batches && first == 3 * *batches + 2;
    fits &= isRange || hasMore || agrees(0, extents[0]);
    // Without the number of batches a mask of a known size may be any of the three.
    fits &= batches || type.isDynamicDim(0);
    padding = isRange && !agrees(0, extents[0]) ? Padding::Ranges : Padding::Lengths;
  } else {
    fits &= (type.getRank() == 2 || type.getRank() == 3) && agrees(0, extents[0]) &&
            agrees(type.getRank() - 1, extents[3]) && (type.getRank() == 2 || agrees(1, extents[2]));
    padding = Padding::Elements;
  }
  if (!fits)
    return op.error()
           << "the padding mask is " << type
           << ", expected integers: lengths [batch], [2 * batch] or [3 * batch + 2], or a mask [batch, keys] "
              "or [batch, queries, keys]";
  mask = capture(given);
  if (auto known = dyn_cast<Value>(extents[0]); known && padding == Padding::Ranges)
    capture(known);
  return success();
}

LogicalResult MicrosoftScores::readBias(FrontendOp &op, Value given) {
  if (!given)
    return success();
  auto type = cast<RankedTensorType>(given.getType());
  bool fits = type.getRank() == 4 && isa<FloatType>(type.getElementType());
  for (unsigned i = 0; fits && i < 4; ++i) {
    std::optional<int64_t> expected = getConstantIntValue(extents[i]);
    fits = type.isDynamicDim(i) || !expected || type.getDimSize(i) == *expected || (i < 2 && type.getDimSize(i) == 1);
  }
  if (!fits)
    return op.error() << "attention_bias is " << type << ", expected [1 or batch, 1 or heads, queries, keys]";
  bias = capture(given);
  return success();
}

void MicrosoftScores::readCausal(FrontendOp &op, bool seesAll) {
  isCausal = op.integer("unidirectional", 0) != 0;
  seesAllAtLast = seesAll;
  if (!isCausal)
    return;
  if (auto known = dyn_cast<Value>(pastLength))
    capture(known);
  if (auto known = dyn_cast<Value>(extents[2]); known && seesAllAtLast)
    capture(known);
}

Value MicrosoftScores::extent(OpBuilder &b, Location loc, OpFoldResult size, ValueRange inside) const {
  if (auto value = dyn_cast<Value>(size))
    return inside[std::distance(captures.begin(), llvm::find(captures, value))];
  return getValueOrCreateConstantIndexOp(b, loc, size);
}

Value MicrosoftScores::isPadding(OpBuilder &b, Location loc, const attn::Position &at, ValueRange inside) const {
  Value given = inside[mask];
  if (padding == Padding::Elements) {
    bool hasQueries = cast<ShapedType>(given.getType()).getRank() == 3;
    SmallVector<Value> position = {at.batch};
    if (hasQueries)
      position.push_back(at.query);
    position.push_back(at.key);
    Value element = tensor::ExtractOp::create(b, loc, given, position);
    return frontend::compare(b, loc, Predicate::sle, element, frontend::makeNumber(b, loc, element.getType(), 0));
  }
  auto bound = [&](Value place) -> Value {
    Value element = tensor::ExtractOp::create(b, loc, given, place);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), element);
  };
  Value isBehind = frontend::compare(b, loc, Predicate::sge, at.key, bound(at.batch));
  if (padding == Padding::Lengths)
    return isBehind;
  Value start = bound(frontend::add(b, loc, at.batch, extent(b, loc, extents[0], inside)));
  return arith::OrIOp::create(b, loc, isBehind, frontend::compare(b, loc, Predicate::slt, at.key, start));
}

Value MicrosoftScores::isVisible(OpBuilder &b, Location loc, const attn::Position &at, ValueRange inside) const {
  Value own = frontend::add(b, loc, at.query, extent(b, loc, pastLength, inside));
  Value visible = frontend::compare(b, loc, Predicate::sle, at.key, own);
  if (!seesAllAtLast)
    return visible;
  Value last = frontend::sub(b, loc, extent(b, loc, extents[2], inside), arith::ConstantIndexOp::create(b, loc, 1));
  return arith::OrIOp::create(b, loc, visible, frontend::compare(b, loc, Predicate::eq, at.query, last));
}

Value MicrosoftScores::sum(OpBuilder &b, Location loc, Value score, const attn::Position &at, ValueRange inside) const {
  Type type = score.getType();
  if (bias >= 0) {
    SmallVector<Value> position = at.inOrder();
    auto shape = cast<ShapedType>(inside[bias].getType());
    for (unsigned i = 0; i < 2; ++i)
      if (shape.getDimSize(i) == 1)
        position[i] = arith::ConstantIndexOp::create(b, loc, 0);
    Value element = tensor::ExtractOp::create(b, loc, inside[bias], position);
    score = frontend::add(b, loc, score, frontend::convert(b, loc, element, type));
  }
  if (mask < 0)
    return score;
  Value added = frontend::select(b, loc, isPadding(b, loc, at, inside), frontend::makeNumber(b, loc, type, padded),
                                 frontend::makeNumber(b, loc, type, 0));
  if (addsCausal())
    added = frontend::select(b, loc, isVisible(b, loc, at, inside), added, frontend::makeNumber(b, loc, type, lowest));
  return frontend::add(b, loc, score, added);
}

void MicrosoftScores::fillRegions(FrontendOp &op, attn::AttentionOp made) const {
  ImplicitLocOpBuilder &b = op.builder();
  Type type = attn::getScoreType(elementOf(made.getQuery())), index = b.getIndexType();
  if (mask >= 0 || bias >= 0)
    fillRegion(b, made.getScore(), {type, index, index, index, index}, captures,
               [&](OpBuilder &nested, Location loc, Block &block) {
                 auto inputs = block.getArguments();
                 return sum(nested, loc, inputs[0], attn::Position::of(inputs.slice(1, 4)), inputs.drop_front(5));
               });
  if (isCausal && !addsCausal())
    fillRegion(b, made.getMask(), {index, index, index, index}, captures,
               [&](OpBuilder &nested, Location loc, Block &block) {
                 auto inputs = block.getArguments();
                 return isVisible(nested, loc, attn::Position::of(inputs), inputs.drop_front(4));
               });
}

Value MicrosoftScores::emit(FrontendOp &op, const AttentionOperand &query, const AttentionOperand &key,
                            double scale) const {
  ImplicitLocOpBuilder &b = op.builder();
  Value raw = emitScores(b, query, key, scale);
  Type element = elementOf(query.tensor), type = elementOf(raw);
  return frontend::generate(b, frontend::extentsOf(b, raw), raw, element,
                            [&](OpBuilder &nested, Location loc, ValueRange x) {
                              auto at = attn::Position::of(x);
                              Value score = sum(nested, loc, x[4], at, captures);
                              if (isCausal && !addsCausal()) {
                                Value hidden = frontend::makeNumber(nested, loc, type, lowest);
                                score = frontend::select(nested, loc, isVisible(nested, loc, at, captures), score,
                                                         frontend::add(nested, loc, x[4], hidden));
                              }
                              return frontend::convert(nested, loc, score, element);
                            });
}
