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
  bool fits = type.getElementType().isInteger(32);
  if (type.getRank() == 1) {
    bool isLengths = agrees(0, extents[0]) || (batches && first == 3 * *batches + 2);
    bool isOpen = type.isDynamicDim(0) || !batches;
    fits &= isLengths || isOpen || first == 2 * *batches;
    padding = isLengths && !isOpen ? Padding::Lengths : Padding::Ranges;
  } else {
    fits &= (type.getRank() == 2 || type.getRank() == 3) && agrees(0, extents[0]) &&
            agrees(type.getRank() - 1, extents[3]) && (type.getRank() == 2 || agrees(1, extents[2]));
    padding = Padding::Elements;
  }
  if (!fits)
    return op.error() << "the padding mask is " << type
                      << ", expected i32: lengths [batch], [2 * batch] or [3 * batch + 2], or a mask [batch, keys] "
                         "or [batch, queries, keys]";
  mask = captures.add(given);
  if (padding != Padding::Ranges)
    return success();
  maskLength = frontend::extentsOf(op.builder(), given)[0];
  for (OpFoldResult size : {extents[0], maskLength})
    captures.addExtent(size);
  return success();
}

LogicalResult MicrosoftScores::readBias(FrontendOp &op, Value given) {
  if (!given)
    return success();
  if (failed(requireScoreBias(op, given, extents)))
    return failure();
  bias = captures.add(given);
  return success();
}

void MicrosoftScores::readCausal(FrontendOp &op, bool seesAll) {
  isCausal = op.integer("unidirectional", 0) != 0;
  seesAllAtLast = seesAll;
  if (!isCausal)
    return;
  captures.addExtent(pastLength);
  if (seesAllAtLast)
    captures.addExtent(extents[2]);
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
  // Other numbers of elements than 2 · b are lengths alone.
  Value batches = captures.extent(b, loc, extents[0], inside), elements = captures.extent(b, loc, maskLength, inside);
  Value place = frontend::minimum(b, loc, frontend::add(b, loc, at.batch, batches),
                                  frontend::sub(b, loc, elements, arith::ConstantIndexOp::create(b, loc, 1)));
  Value hasStarts = frontend::compare(b, loc, Predicate::eq, elements, frontend::add(b, loc, batches, batches));
  Value isBefore = frontend::compare(b, loc, Predicate::slt, at.key, bound(place));
  return arith::OrIOp::create(b, loc, isBehind, arith::AndIOp::create(b, loc, hasStarts, isBefore));
}

Value MicrosoftScores::isVisible(OpBuilder &b, Location loc, const attn::Position &at, ValueRange inside) const {
  Value own = frontend::add(b, loc, at.query, captures.extent(b, loc, pastLength, inside));
  Value visible = frontend::compare(b, loc, Predicate::sle, at.key, own);
  if (!seesAllAtLast)
    return visible;
  Value last =
      frontend::sub(b, loc, captures.extent(b, loc, extents[2], inside), arith::ConstantIndexOp::create(b, loc, 1));
  return arith::OrIOp::create(b, loc, visible, frontend::compare(b, loc, Predicate::eq, at.query, last));
}

Value MicrosoftScores::sum(OpBuilder &b, Location loc, Value score, const attn::Position &at, ValueRange inside) const {
  Type type = score.getType();
  if (bias >= 0)
    score = addScoreBias(b, loc, score, inside[bias], at.inOrder());
  if (mask < 0 && !addsCausal())
    return score;
  Value added = frontend::makeNumber(b, loc, type, 0);
  if (mask >= 0)
    added = frontend::select(b, loc, isPadding(b, loc, at, inside), frontend::makeNumber(b, loc, type, padded), added);
  if (addsCausal())
    added = frontend::select(b, loc, isVisible(b, loc, at, inside), added, frontend::makeNumber(b, loc, type, lowest));
  return frontend::add(b, loc, score, added);
}

void MicrosoftScores::fillRegions(FrontendOp &op, attn::AttentionOp made) const {
  ImplicitLocOpBuilder &b = op.builder();
  Type type = attn::getScoreType(elementOf(made.getQuery())), index = b.getIndexType();
  if (mask >= 0 || bias >= 0)
    fillRegion(b, made.getScore(), {type, index, index, index, index}, getCaptures(),
               [&](OpBuilder &nested, Location loc, Block &block) {
                 auto inputs = block.getArguments();
                 return sum(nested, loc, inputs[0], attn::Position::of(inputs.slice(1, 4)), inputs.drop_front(5));
               });
  if (isCausal && !addsCausal())
    fillRegion(b, made.getMask(), {index, index, index, index}, getCaptures(),
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
                              Value score = sum(nested, loc, x[4], at, getCaptures());
                              if (isCausal && !addsCausal()) {
                                Value hidden = frontend::makeNumber(nested, loc, type, lowest);
                                score = frontend::select(nested, loc, isVisible(nested, loc, at, getCaptures()), score,
                                                         frontend::add(nested, loc, x[4], hidden));
                              }
                              return frontend::convert(nested, loc, score, element);
                            });
}
