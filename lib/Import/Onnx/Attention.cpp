//===- Attention.cpp - ONNX Attention, opset 23 to 25 ---------------------===//
//
// Translates to one attn.attention: the cache is concatenated before the new keys; the causal mask, windows and masks
// become the mask region; soft-cap and bias become the score region. The operator order is scale, soft-cap, bias,
// softmax. If the scores are a result, a separate matmul computes them.
//
//===----------------------------------------------------------------------===//
#include "AttentionOperands.h"
#include "AttentionScores.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using frontend::Extents;

namespace {

/// The verified operands and attributes of the op.
struct Parts {
  AttentionOperand query, key, value;
  double scale;
  AttentionScores scores;
  bool isRank3; // whether inputs and output have three dimensions
};

} // namespace

static FailureOr<Parts> readParts(FrontendOp &op) {
  ImplicitLocOpBuilder &b = op.builder();
  int64_t heads = op.integer("q_num_heads", 0), kvHeads = op.integer("kv_num_heads", 0);
  if (failed(requireOperands(op, 3, opsetOf(op) >= 24 ? 7 : 6)))
    return failure();
  if (bool(op.operand(4)) != bool(op.operand(5)))
    return op.error() << "found only one of past_key and past_value, expected both or none";
  FailureOr<AttentionOperand> query = splitHeads(op, op.operand(0), heads, "the query");
  FailureOr<AttentionOperand> key = splitHeads(op, op.operand(1), kvHeads, "the key");
  FailureOr<AttentionOperand> value = splitHeads(op, op.operand(2), kvHeads, "the value");
  if (failed(query) || failed(key) || failed(value))
    return failure();
  bool isRank3 = rankOf(op.operand(0)) == 3;
  for (unsigned i : {1u, 2u})
    if ((rankOf(op.operand(i)) == 3) != isRank3)
      return op.error() << "query, key and value have different ranks, expected equal ranks";
  OpFoldResult past = b.getIndexAttr(0);
  if (op.operand(4) && rankOf(op.operand(4)) == 4)
    past = frontend::extentsOf(b, op.operand(4))[2];
  key = appendToCache(op, op.operand(4), *key, "key");
  if (failed(key))
    return failure();
  value = appendToCache(op, op.operand(5), *value, "value");
  if (failed(value) || failed(requireFit(op, *query, *key, *value)))
    return failure();
  Parts parts{*query, *key, *value, 0, {}, isRank3};
  double depth = *getConstantIntValue(parts.query.extent(Dim::Depth));
  parts.scale = op.number("scale", 1 / std::sqrt(depth));
  OpFoldResult scores[] = {parts.query.extent(Dim::Batch), parts.query.extent(Dim::Head), parts.query.extent(Dim::Seq),
                           parts.key.extent(Dim::Seq)};
  if (failed(parts.scores.init(op, scores, past)))
    return failure();
  return parts;
}

static attn::AttentionOp buildAttention(FrontendOp &op, const Parts &parts) {
  ImplicitLocOpBuilder &b = op.builder();
  const AttentionScores &scores = parts.scores;
  Type type = attn::getScoreType(elementOf(parts.query.tensor)), index = b.getIndexType();
  attn::AttentionFields fields = makeFields(b, parts.query, parts.key, parts.value, parts.scale);
  fields.captures = scores.getCaptures();
  fields.kvLen = op.operand(6);
  attn::AttentionOp made = fields.create(b, b.getLoc());
  if (scores.changesScores())
    fillRegion(b, made.getScore(), {type, index, index, index, index}, scores.getCaptures(),
               [&](OpBuilder &nested, Location loc, Block &block) {
                 auto inputs = block.getArguments();
                 Value softcapped = scores.softcapped(nested, loc, inputs[0]);
                 return scores.biased(nested, loc, softcapped, attn::Position::of(inputs.slice(1, 4)),
                                      inputs.drop_front(5));
               });
  if (scores.hasMask())
    fillRegion(b, made.getMask(), {index, index, index, index}, scores.getCaptures(),
               [&](OpBuilder &nested, Location loc, Block &block) {
                 auto inputs = block.getArguments();
                 return scores.isVisible(nested, loc, attn::Position::of(inputs), inputs.drop_front(4));
               });
  return made;
}

/// The scores as a result. Modes: 0 raw, 1 soft-capped, 2 biased and masked (−∞ for masked keys), 3 softmax weights, 0
/// for masked keys.
static Value buildScores(FrontendOp &op, const Parts &parts, int64_t mode) {
  ImplicitLocOpBuilder &b = op.builder();
  Value raw = emitScores(b, parts.query, parts.key, parts.scale);
  Type element = elementOf(parts.query.tensor), type = elementOf(raw);
  Value lengths = op.operand(6);
  Value scores = frontend::generate(
      b, frontend::extentsOf(b, raw), raw, mode == 3 ? type : element,
      [&](OpBuilder &nested, Location loc, ValueRange x) {
        auto at = attn::Position::of(x);
        ValueRange captures = parts.scores.getCaptures();
        Value score = x[4];
        if (mode >= 1)
          score = parts.scores.softcapped(nested, loc, score);
        if (mode >= 2) {
          score = parts.scores.biased(nested, loc, score, at, captures);
          Value visible = parts.scores.isVisible(nested, loc, at, captures);
          if (lengths) {
            Value length = tensor::ExtractOp::create(nested, loc, lengths, at.batch);
            length = arith::IndexCastOp::create(nested, loc, nested.getIndexType(), length);
            visible = nested.createOrFold<arith::AndIOp>(
                loc, visible, frontend::compare(nested, loc, arith::CmpIPredicate::slt, at.key, length));
          }
          Value hidden = arith::ConstantOp::create(nested, loc, frontend::extremeAttr(type, /*largest=*/false));
          score = frontend::select(nested, loc, visible, score, hidden);
        }
        return mode == 3 ? score : frontend::convert(nested, loc, score, element);
      });
  if (mode != 3)
    return scores;
  // A log-sum-exp in one number would lose the logarithm of the sum where a mask shifts all scores of a row.
  Value weights = frontend::softmax(b, scores, 3);
  return frontend::elementwise(b, {weights, scores}, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value lowest = arith::ConstantOp::create(nested, loc, frontend::extremeAttr(type, /*largest=*/false));
    Value isHidden = arith::CmpFOp::create(nested, loc, arith::CmpFPredicate::OEQ, x[1], lowest);
    Value weight = frontend::select(nested, loc, isHidden, frontend::makeNumber(nested, loc, type, 0), x[0]);
    return frontend::convert(nested, loc, weight, element);
  });
}

static LogicalResult translateAttention(FrontendOp &op, Values &results) {
  ImplicitLocOpBuilder &b = op.builder();
  FailureOr<Parts> parts = readParts(op);
  if (failed(parts))
    return failure();
  int64_t mode = op.integer("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3)
    return op.error() << "qk_matmul_output_mode is " << mode << ", expected 0 to 3";
  bool needsScores = op.isUsed(3);
  attn::AttentionOp made = buildAttention(op, *parts);
  Value output = made.getOutput();
  if (parts->isRank3)
    output = joinHeads(b, output);
  results.push_back(output);
  results.push_back(op.isUsed(1) ? toBHSD(b, parts->key).tensor : Value());
  results.push_back(op.isUsed(2) ? toBHSD(b, parts->value).tensor : Value());
  results.push_back(needsScores ? buildScores(op, *parts, mode) : Value());
  return success();
}

void onnx::addAttention(frontend::Frontend &frontend) { frontend.translators["Attention"] = translateAttention; }
