//===- LinearAttention.cpp - ONNX's LinearAttention, version 27 ---------------===//
//
// One causal attn.linear on [batch, token, head, size]: the operator's decay, beta and past state are clauses of it.
//
//===----------------------------------------------------------------------===//
#include "AttentionOperands.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using frontend::Extents;

namespace {

/// Decay or beta, with the dimensions that it has; null where the update rule has none.
struct Factor {
  Value tensor;
  attn::AxesAttr axes;
};

/// What the op is made of, checked.
struct Linear {
  AttentionOperand query, key, value;
  Factor decay, beta;
  Value state;
  double scale;
};

} // namespace

static ArrayRef<int64_t> shapeOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getShape(); }

static FailureOr<AttentionOperand> cut(FrontendOp &op, unsigned input, int64_t heads, StringRef role) {
  if (rankOf(op.operand(input)) != 3)
    return op.error() << role << " is " << op.operand(input).getType() << ", expected 3 dimensions";
  return splitHeads(op, op.operand(input), heads, role);
}

/// `tensor` in a type that attn.linear takes beside `element`: that, or the one of states.
static Value toNumbers(ImplicitLocOpBuilder &b, Value tensor, Type element) {
  Type type = attn::getScoreType(element);
  return elementOf(tensor) == element ? tensor : frontend::castElements(b, tensor, type);
}

/// Tensor `input` as [batch, token], [batch, token, head] or [batch, token, head, row], whichever its width is that of.
static FailureOr<Factor> readGate(FrontendOp &op, unsigned input, const AttentionOperand &key, bool ofRows, StringRef role) {
  Value tensor = op.operand(input);
  if (!tensor)
    return Factor{};
  ImplicitLocOpBuilder &b = op.builder();
  int64_t heads = *getConstantIntValue(key.extent(Dim::Head)), depth = *getConstantIntValue(key.extent(Dim::Depth));
  int64_t width = rankOf(tensor) == 3 ? shapeOf(tensor)[2] : -1;
  if (width != heads && width != (ofRows ? heads * depth : 1)) {
    InFlightDiagnostic error = op.error()
                               << role << " is " << tensor.getType() << ", expected a number for each key head";
    return ofRows ? error << " or one for each of its " << depth << " dimensions" : error << " or one for all";
  }
  if (!isa<FloatType>(elementOf(tensor)))
    return op.error() << role << " is " << tensor.getType() << ", expected floating point";
  for (unsigned i : {0u, 1u})
    if (int64_t own = shapeOf(tensor)[i], expected = shapeOf(key.tensor)[i];
        !ShapedType::isDynamic(own) && !ShapedType::isDynamic(expected) && own != expected)
      return op.error() << role << " is " << tensor.getType() << ", expected " << (i ? "tokens" : "batches")
                        << " as the key has them, " << expected;
  SmallVector<Dim> dims = {Dim::Batch, Dim::Seq, Dim::Head};
  if (width != heads && ofRows) {
    FailureOr<AttentionOperand> own = splitHeads(op, tensor, heads, role);
    if (failed(own))
      return failure();
    tensor = own->tensor;
    dims.push_back(Dim::Depth);
  } else if (width != heads) {
    tensor = frontend::squeeze(b, tensor, {2});
    dims.pop_back();
  }
  return Factor{toNumbers(b, tensor, elementOf(key.tensor)), attn::AxesAttr::get(b.getContext(), dims)};
}

static FailureOr<Linear> readLinear(FrontendOp &op) {
  if (failed(requireOperands(op, 3, 6)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  int64_t heads = op.integer("q_num_heads", 0), keyHeads = op.integer("kv_num_heads", 0);
  if (heads <= 0 || keyHeads <= 0 || heads % keyHeads)
    return op.error() << "found " << heads << " query heads, expected a multiple of the " << keyHeads << " key heads";
  StringRef rule = op.text("update_rule", "gated_delta");
  if (!llvm::is_contained({"linear", "gated", "delta", "gated_delta"}, rule))
    return op.error() << "the update rule '" << rule << "' is not known, expected linear, gated, delta or gated_delta";
  if (rule.contains("gated") != bool(op.operand(4)) || rule.contains("delta") != bool(op.operand(5)))
    return op.error() << "decay goes with gated rules and beta with delta rules, found the rule '" << rule << "'";

  FailureOr<AttentionOperand> query = cut(op, 0, heads, "the query"), key = cut(op, 1, keyHeads, "the key");
  FailureOr<AttentionOperand> value = cut(op, 2, keyHeads, "the value");
  if (failed(query) || failed(key) || failed(value) || failed(requireFit(op, *query, *key, *value)))
    return failure();
  std::optional<int64_t> queries = getConstantIntValue(query->extent(Dim::Seq));
  std::optional<int64_t> keys = getConstantIntValue(key->extent(Dim::Seq));
  if (queries && keys && *queries != *keys)
    return op.error() << "query and key differ in tokens: found " << *queries << " and " << *keys;
  FailureOr<Factor> decay = readGate(op, 4, *key, /*ofRows=*/true, "decay");
  FailureOr<Factor> beta = readGate(op, 5, *key, /*ofRows=*/false, "beta");
  if (failed(decay) || failed(beta))
    return failure();

  Type element = elementOf(query->tensor);
  value->tensor = frontend::castElements(b, value->tensor, element);
  Linear linear{*query, *key, *value, *decay, *beta, {}, 0};
  OpFoldResult depth = key->extent(Dim::Depth), width = value->extent(Dim::Depth);
  if (Value past = op.operand(3)) {
    Extents extents = {key->extent(Dim::Batch), key->extent(Dim::Head), depth, width};
    if (!isa<FloatType>(elementOf(past)) ||
        failed(verifyCompatibleShape(past.getType(), frontend::typeOf(extents, elementOf(past)))))
      return op.error() << "past_state is " << past.getType() << ", expected [batch, key heads, "
                        << *getConstantIntValue(depth) << ", " << *getConstantIntValue(width) << "]";
    linear.state = toNumbers(b, past, element);
  }
  double scale = op.number("scale", 0);
  linear.scale = scale != 0 ? scale : 1 / std::sqrt(double(*getConstantIntValue(depth)));
  return linear;
}

static LogicalResult translateLinearAttention(FrontendOp &op, Values &results) {
  FailureOr<Linear> linear = readLinear(op);
  if (failed(linear))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  const AttentionOperand &query = linear->query, &key = linear->key, &value = linear->value;
  Type element = elementOf(query.tensor), stateElement = op.operand(3) ? elementOf(op.operand(3)) : element;
  OpFoldResult width = value.extent(Dim::Depth);
  Extents extents(query.extents);
  extents.back() = width;
  Type output = frontend::typeOf(extents, element), state;
  if (op.isUsed(1)) {
    Type held = stateElement == element ? element : attn::getScoreType(element);
    state = frontend::typeOf({key.extent(Dim::Batch), key.extent(Dim::Head), key.extent(Dim::Depth), width}, held);
  }
  auto made = attn::LinearOp::create(b, output, state, query.tensor, key.tensor, value.tensor, linear->decay.tensor,
                                     linear->beta.tensor, linear->state, query.dims, key.dims, value.dims, query.dims,
                                     linear->decay.axes, linear->beta.axes, b.getF64FloatAttr(linear->scale),
                                     /*causal=*/true, /*normalize=*/false);
  OpFoldResult joined = frontend::multiplyExtents(b, {extents[2], extents[3]});
  results.push_back(frontend::reshape(b, made.getOutput(), {extents[0], extents[1], joined}));
  results.push_back(state ? frontend::castElements(b, made.getFinalState(), stateElement) : Value());
  return success();
}

void onnx::addLinearAttention(frontend::Frontend &frontend) { frontend.translators["LinearAttention"] = translateLinearAttention; }
