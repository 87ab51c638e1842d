//===- AttentionScores.cpp - Score and mask code of ONNX Attention --------===//
#include "AttentionScores.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;

/// Requires that the mask broadcasts to the scores as far as shapes are known. Its last dimension may be shorter.
static LogicalResult requireMaskShape(FrontendOp &op, RankedTensorType type, ArrayRef<OpFoldResult> scores) {
  if (type.getRank() < 1 || type.getRank() > 4)
    return op.error() << "the mask is " << type << ", expected 1 to 4 dimensions";
  for (int64_t i = 1; i <= type.getRank(); ++i) {
    int64_t found = type.getDimSize(type.getRank() - i);
    std::optional<int64_t> expected = getConstantIntValue(scores[scores.size() - i]);
    if (ShapedType::isDynamic(found) || !expected || found == 1 || found == *expected || (i == 1 && found < *expected))
      continue;
    InFlightDiagnostic error = op.error() << "the mask is " << type << ", expected a shape that broadcasts to ";
    llvm::interleave(
        scores,
        [&](OpFoldResult each) {
          if (std::optional<int64_t> extent = getConstantIntValue(each))
            error << *extent;
          else
            error << '?';
        },
        [&] { error << 'x'; });
    return error << ", batch x query heads x queries x keys";
  }
  return success();
}

LogicalResult AttentionScores::init(FrontendOp &op, ArrayRef<OpFoldResult> scores, OpFoldResult past) {
  queryLength = scores[2];
  keyLength = scores[3];
  pastLength = past;
  isCausal = op.integer("is_causal", 0) != 0;
  softcap = op.number("softcap", 0);
  if (!std::isfinite(softcap))
    return op.error() << "softcap is " << softcap << ", expected a finite number";
  if (opsetOf(op) >= 25) {
    leftWindow = op.integer("left_window_size", -1);
    rightWindow = op.integer("right_window_size", -1);
  }
  if (leftWindow < -1 || rightWindow < -1)
    return op.error() << "a window of " << leftWindow << " keys before and " << rightWindow
                      << " after, expected -1 or more";
  if (Value given = op.operand(3)) {
    auto type = cast<RankedTensorType>(given.getType());
    if (failed(requireMaskShape(op, type, scores)))
      return failure();
    isBias = isa<FloatType>(type.getElementType());
    if (!isBias && !type.getElementType().isInteger(1))
      return op.error() << "the mask has elements of " << type.getElementType() << ", expected bool or floating point";
    mask = captures.add(given);
    maskLength = frontend::extentsOf(op.builder(), given).back();
    captures.addExtent(maskLength);
    broadcastsOneColumn = opsetOf(op) < 24;
  }
  if (Value given = op.operand(6)) {
    auto type = cast<RankedTensorType>(given.getType());
    if (type.getRank() != 1 || !type.getElementType().isInteger(64))
      return op.error() << "nonpad_kv_seqlen is " << type << ", expected one i64 per batch";
    if (op.operand(4))
      return op.error() << "nonpad_kv_seqlen and past_key are mutually exclusive";
    lengths = captures.add(given);
  }
  if (isCausal || leftWindow >= 0 || rightWindow >= 0) {
    if (lengths >= 0)
      captures.addExtent(queryLength);
    else
      captures.addExtent(pastLength);
  }
  return success();
}

/// Whether the mask has a column for key `k`. A mask shorter than the keys hides the remaining ones. One column hides
/// all but key 0, too; in operator set 23, whose masks are not padded, it applies to all keys.
Value AttentionScores::hasColumn(OpBuilder &b, Location loc, Value k, ValueRange inside) const {
  std::optional<int64_t> known = getConstantIntValue(maskLength);
  if (known && (getConstantIntValue(keyLength) == known || (*known == 1 && broadcastsOneColumn)))
    return nullptr;
  Value length = captures.extent(b, loc, maskLength, inside);
  Value has = frontend::compare(b, loc, arith::CmpIPredicate::slt, k, length);
  if (known || !broadcastsOneColumn)
    return has;
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value isOne = frontend::compare(b, loc, arith::CmpIPredicate::eq, length, one);
  return arith::OrIOp::create(b, loc, has, isOne);
}

/// The mask element for a (query, key) pair; mask dimensions are aligned at the last one. Keys beyond its end are
/// clamped to the last element.
Value AttentionScores::element(OpBuilder &b, Location loc, const attn::Position &at, ValueRange inside) const {
  auto type = cast<RankedTensorType>(getCaptures()[mask].getType());
  SmallVector<Value> position = at.inOrder();
  position.erase(position.begin(), position.end() - type.getRank());
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (type.getDimSize(i) == 1)
      position[i] = arith::ConstantIndexOp::create(b, loc, 0);
  if (type.getShape().back() != 1) {
    Value last =
        frontend::sub(b, loc, captures.extent(b, loc, maskLength, inside), arith::ConstantIndexOp::create(b, loc, 1));
    position.back() = frontend::minimum(b, loc, position.back(), last);
  }
  return tensor::ExtractOp::create(b, loc, inside[mask], position);
}

Value AttentionScores::offset(OpBuilder &b, Location loc, const attn::Position &at, ValueRange inside) const {
  if (lengths < 0)
    return captures.extent(b, loc, pastLength, inside);
  Value length = tensor::ExtractOp::create(b, loc, inside[lengths], at.batch);
  length = arith::IndexCastOp::create(b, loc, b.getIndexType(), length);
  return frontend::sub(b, loc, length, captures.extent(b, loc, queryLength, inside));
}

Value AttentionScores::isVisible(OpBuilder &b, Location loc, const attn::Position &at, ValueRange inside) const {
  using Predicate = arith::CmpIPredicate;
  Value visible;
  auto require = [&](Value condition) {
    visible = visible ? b.createOrFold<arith::AndIOp>(loc, visible, condition) : condition;
  };
  if (isCausal || leftWindow >= 0 || rightWindow >= 0) {
    Value own = frontend::add(b, loc, at.query, offset(b, loc, at, inside));
    if (isCausal)
      require(frontend::compare(b, loc, Predicate::sle, at.key, own));
    if (leftWindow >= 0) {
      Value first = frontend::sub(b, loc, own, arith::ConstantIndexOp::create(b, loc, leftWindow));
      require(frontend::compare(b, loc, Predicate::sge, at.key, first));
    }
    if (rightWindow >= 0) {
      Value last = frontend::add(b, loc, own, arith::ConstantIndexOp::create(b, loc, rightWindow));
      require(frontend::compare(b, loc, Predicate::sle, at.key, last));
    }
  }
  if (mask >= 0) {
    if (isConstantIntValue(maskLength, 0))
      return arith::ConstantIntOp::create(b, loc, 0, 1);
    if (Value has = hasColumn(b, loc, at.key, inside))
      require(has);
    Value given = element(b, loc, at, inside);
    if (isBias) {
      Value hidden = arith::ConstantOp::create(b, loc, frontend::extremeAttr(given.getType(), /*largest=*/false));
      given = frontend::compare(b, loc, Predicate::ne, given, hidden);
    }
    require(given);
  }
  return visible ? visible : arith::ConstantIntOp::create(b, loc, 1, 1);
}

Value AttentionScores::softcapped(OpBuilder &b, Location loc, Value score) const {
  return onnx::softcapped(b, loc, score, softcap);
}

Value AttentionScores::biased(OpBuilder &b, Location loc, Value score, const attn::Position &at,
                              ValueRange inside) const {
  if (!isBias || isConstantIntValue(maskLength, 0))
    return score;
  return frontend::add(b, loc, score, frontend::convert(b, loc, element(b, loc, at, inside), score.getType()));
}
