//===- LinearAttention.cpp - ONNX's LinearAttention, version 27 ---------------===//
//
// The recurrence written out, one step a token, for a known and small number of tokens: decay the state, correct the
// value by what the state already gives for its key, add key × value, read with the query. Sums and state are in f32.
//
//===----------------------------------------------------------------------===//
#include "AttentionOperands.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using door::Extents;

static constexpr int64_t maxTokens = 64;

namespace {

/// All in f32, [batch, head, token, ...]; null where the update rule has none.
struct Linear {
  Value query, key, value, state, decay, beta;
  double scale;
  int64_t heads, keyHeads, tokens;
};

} // namespace

/// [b, t, h·d] as [b, h, t, d] in f32.
static FailureOr<Value> cut(DoorOp &op, unsigned input, int64_t heads, StringRef role) {
  if (rankOf(op.operand(input)) != 3)
    return op.error() << role << " is " << op.operand(input).getType() << ", wanted 3 dimensions";
  FailureOr<Headed> headed = cutIntoHeads(op, op.operand(input), heads, role);
  if (failed(headed))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  return door::castElements(b, toHeadsFirst(b, *headed).tensor, b.getF32Type());
}

static FailureOr<Linear> readLinear(DoorOp &op) {
  if (failed(requireOperands(op, 3, 6)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  Linear linear{{}, {}, {}, {}, {}, {}, 0, op.integer("q_num_heads", 0), op.integer("kv_num_heads", 0), 0};
  if (linear.heads <= 0 || linear.keyHeads <= 0 || linear.heads % linear.keyHeads)
    return op.error() << "found " << linear.heads << " query heads, wanted a multiple of the " << linear.keyHeads
                      << " key heads";
  StringRef rule = op.text("update_rule", "gated_delta");
  if (!llvm::is_contained({"linear", "gated", "delta", "gated_delta"}, rule))
    return op.error() << "the update rule '" << rule << "' is not known, wanted linear, gated, delta or gated_delta";
  if (rule.contains("gated") != bool(op.operand(4)) || rule.contains("delta") != bool(op.operand(5)))
    return op.error() << "decay goes with gated rules and beta with delta rules, found the rule '" << rule << "'";

  FailureOr<Value> query = cut(op, 0, linear.heads, "the query"), key = cut(op, 1, linear.keyHeads, "the key");
  FailureOr<Value> value = cut(op, 2, linear.keyHeads, "the value");
  if (failed(query) || failed(key) || failed(value))
    return failure();
  std::tie(linear.query, linear.key, linear.value) = std::tie(*query, *key, *value);
  auto shapeOf = [](Value tensor) { return cast<RankedTensorType>(tensor.getType()).getShape(); };
  int64_t depth = shapeOf(linear.key)[3];
  linear.tokens = shapeOf(linear.query)[2];
  if (ShapedType::isDynamic(linear.tokens) || linear.tokens < 1 || linear.tokens > maxTokens)
    return op.error() << "found " << op.operand(0).getType() << ", wanted a static number of tokens, 1 to "
                      << maxTokens;
  if (shapeOf(linear.query)[3] != depth || shapeOf(linear.key)[2] != linear.tokens ||
      shapeOf(linear.value)[2] != linear.tokens)
    return op.error() << "query, key and value differ in tokens or head size: " << op.operand(0).getType() << ", "
                      << op.operand(1).getType() << ", " << op.operand(2).getType();
  if (Value decay = op.operand(4)) {
    int64_t width = rankOf(decay) == 3 ? shapeOf(decay)[2] : -1;
    if (width != linear.keyHeads && width != linear.keyHeads * depth)
      return op.error() << "decay is " << decay.getType()
                        << ", wanted a number for each key head or one for each of its " << depth << " dimensions";
    FailureOr<Value> own = cut(op, 4, linear.keyHeads, "decay");
    if (failed(own))
      return failure();
    linear.decay = *own;
  }
  if (Value beta = op.operand(5)) {
    int64_t width = rankOf(beta) == 3 ? shapeOf(beta)[2] : -1;
    if (width != linear.keyHeads && width != 1)
      return op.error() << "beta is " << beta.getType() << ", wanted a number for each key head or one for all";
    FailureOr<Value> own = cut(op, 5, width, "beta");
    if (failed(own))
      return failure();
    linear.beta = *own;
  }
  for (Value each : {linear.decay, linear.beta})
    if (each && shapeOf(each)[2] != linear.tokens)
      return op.error() << "decay and beta must have " << linear.tokens << " tokens";

  Extents extents = door::extentsOf(b, linear.key);
  extents[2] = b.getIndexAttr(depth);
  extents[3] = b.getIndexAttr(shapeOf(linear.value)[3]);
  if (Value past = op.operand(3)) {
    if (!isa<FloatType>(elementOf(past)) ||
        failed(verifyCompatibleShape(past.getType(), door::typeOf(extents, elementOf(past)))))
      return op.error() << "past_state is " << past.getType() << ", wanted [batch, key heads, " << depth << ", "
                        << shapeOf(linear.value)[3] << "]";
    linear.state = door::castElements(b, past, b.getF32Type());
  } else {
    linear.state = door::splat(b, extents, b.getF32Type(), 0);
  }
  double scale = op.number("scale", 0);
  linear.scale = scale != 0 ? scale : 1 / std::sqrt(depth);
  return linear;
}

/// One token: gives [b, h, d_v] and moves the state on.
static Value step(ImplicitLocOpBuilder &b, Linear &linear, int64_t token) {
  Type type = b.getF32Type();
  auto at = [&](Value tensor) { return door::pick(b, tensor, 2, token); };
  Value query = at(linear.query), key = at(linear.key), value = at(linear.value);
  if (linear.decay) {
    Value decay = door::unsqueeze(b, at(linear.decay), {3});
    linear.state = door::elementwise(b, {linear.state, decay}, type, [](OpBuilder &nested, Location loc, ValueRange x) {
      return door::mul(nested, loc, x[0], math::ExpOp::create(nested, loc, x[1]));
    });
  }
  Extents state = door::extentsOf(b, linear.state);
  if (linear.beta) {
    AffineExpr batch, head, m, d;
    bindDims(b.getContext(), batch, head, m, d);
    auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(4, 0, dims, b.getContext()); };
    Value known = door::contract(b, linear.state, key, map({batch, head, d, m}), map({batch, head, d}),
                                 map({batch, head, m}), {state[0], state[1], state[3], state[2]}, type);
    value =
        door::elementwise(b, {value, known, at(linear.beta)}, type, [](OpBuilder &nested, Location loc, ValueRange x) {
          return door::mul(nested, loc, x[2], door::sub(nested, loc, x[0], x[1]));
        });
  }
  SmallVector<Value> factors = {linear.state, door::unsqueeze(b, key, {3}), door::unsqueeze(b, value, {2})};
  linear.state = door::elementwise(b, factors, type, [](OpBuilder &nested, Location loc, ValueRange x) {
    return door::add(nested, loc, x[0], door::mul(nested, loc, x[1], x[2]));
  });
  // Query heads [kv, group] read the state of their key head.
  OpFoldResult group = b.getIndexAttr(linear.heads / linear.keyHeads);
  Value grouped = door::reshape(b, query, {state[0], state[1], group, state[2]});
  AffineExpr batch, head, member, m, d;
  bindDims(b.getContext(), batch, head, member, m, d);
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(5, 0, dims, b.getContext()); };
  Value sum = door::contract(b, grouped, linear.state, map({batch, head, member, d}), map({batch, head, d, m}),
                             map({batch, head, member, m}), {state[0], state[1], group, state[3], state[2]}, type);
  return door::reshape(b, sum, {state[0], b.getIndexAttr(linear.heads), state[3]});
}

static LogicalResult translateLinearAttention(DoorOp &op, Values &results) {
  FailureOr<Linear> linear = readLinear(op);
  if (failed(linear))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  SmallVector<Value> outputs;
  for (int64_t token = 0; token < linear->tokens; ++token)
    outputs.push_back(door::unsqueeze(b, step(b, *linear, token), {1}));
  Value joined = door::concat(b, outputs, 1); // [b, t, h, d_v]
  Type element = elementOf(op.operand(0));
  Value scaled = door::elementwise(b, joined, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    Value scale = door::makeNumber(nested, loc, x[0].getType(), linear->scale);
    return door::convert(nested, loc, door::mul(nested, loc, x[0], scale), element);
  });
  Extents extents = door::extentsOf(b, scaled);
  OpFoldResult width = door::multiplyExtents(b, {extents[2], extents[3]});
  results.push_back(door::reshape(b, scaled, {extents[0], extents[1], width}));
  Type stateElement = op.operand(3) ? elementOf(op.operand(3)) : element;
  results.push_back(door::castElements(b, linear->state, stateElement));
  return success();
}

void onnx::addLinearAttention(door::Door &door) { door.translators["LinearAttention"] = translateLinearAttention; }
