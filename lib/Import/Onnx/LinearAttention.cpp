//===- LinearAttention.cpp - ONNX LinearAttention, opset 27 ---------------===//
//
// Translates to one causal attn.linear on [batch, token, head, size]; decay, beta and past state become its operands.
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

/// A gate (decay or beta) with its dimensions; null if the update rule has none.
struct Gate {
  Value tensor;
  attn::AxesAttr axes;
};

/// The verified operands and attributes of the op.
struct Linear {
  AttentionOperand query, key, value;
  Gate decay, beta;
  Value state;
  double scale;
};

} // namespace

static ArrayRef<int64_t> shapeOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getShape(); }

static FailureOr<AttentionOperand> readOperand(FrontendOp &op, unsigned input, int64_t heads, StringRef role) {
  if (rankOf(op.operand(input)) != 3)
    return op.error() << role << " is " << op.operand(input).getType() << ", expected 3 dimensions";
  return splitHeads(op, op.operand(input), heads, role);
}

/// Casts `tensor` to the score type unless it has type `element`; attn.linear accepts both.
static Value castOperand(ImplicitLocOpBuilder &b, Value tensor, Type element) {
  Type type = attn::getScoreType(element);
  return elementOf(tensor) == element ? tensor : frontend::castElements(b, tensor, type);
}

/// Reads a gate as [batch, token], [batch, token, head] or [batch, token, head, row], depending on its last extent.
static FailureOr<Gate> readGate(FrontendOp &op, unsigned input, const AttentionOperand &key, bool isPerRow,
                                StringRef role) {
  Value tensor = op.operand(input);
  if (!tensor)
    return Gate{};
  ImplicitLocOpBuilder &b = op.builder();
  int64_t heads = *getConstantIntValue(key.extent(Dim::Head)), depth = *getConstantIntValue(key.extent(Dim::Depth));
  int64_t width = rankOf(tensor) == 3 ? shapeOf(tensor)[2] : -1;
  if (width != heads && width != (isPerRow ? heads * depth : 1)) {
    InFlightDiagnostic error = op.error() << role << " is " << tensor.getType() << ", expected one value per KV head";
    return isPerRow ? error << " or one for each of its " << depth << " dimensions" : error << " or one for all";
  }
  if (!isa<FloatType>(elementOf(tensor)))
    return op.error() << role << " is " << tensor.getType() << ", expected floating point";
  for (unsigned i : {0u, 1u})
    if (int64_t own = shapeOf(tensor)[i], expected = shapeOf(key.tensor)[i];
        !ShapedType::isDynamic(own) && !ShapedType::isDynamic(expected) && own != expected)
      return op.error() << role << " is " << tensor.getType() << ", expected " << expected
                        << (i ? " tokens" : " batches") << " as in the key";
  SmallVector<Dim> dims = {Dim::Batch, Dim::Seq, Dim::Head};
  if (width != heads && isPerRow) {
    FailureOr<AttentionOperand> own = splitHeads(op, tensor, heads, role);
    if (failed(own))
      return failure();
    tensor = own->tensor;
    dims.push_back(Dim::Depth);
  } else if (width != heads) {
    tensor = frontend::squeeze(b, tensor, {2});
    dims.pop_back();
  }
  return Gate{castOperand(b, tensor, elementOf(key.tensor)), attn::AxesAttr::get(b.getContext(), dims)};
}

static FailureOr<Linear> readLinear(FrontendOp &op) {
  if (failed(requireOperands(op, 3, 6)))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  int64_t heads = op.integer("q_num_heads", 0), kvHeads = op.integer("kv_num_heads", 0);
  if (heads <= 0 || kvHeads <= 0 || heads % kvHeads)
    return op.error() << "found " << heads << " query heads, expected a multiple of the " << kvHeads << " KV heads";
  StringRef rule = op.text("update_rule", "gated_delta");
  if (!llvm::is_contained({"linear", "gated", "delta", "gated_delta"}, rule))
    return op.error() << "unknown update rule '" << rule << "', expected linear, gated, delta or gated_delta";
  if (rule.contains("gated") != bool(op.operand(4)) || rule.contains("delta") != bool(op.operand(5)))
    return op.error() << "inputs do not match the update rule '" << rule
                      << "', expected decay for gated and beta for delta rules";

  FailureOr<AttentionOperand> query = readOperand(op, 0, heads, "the query"),
                              key = readOperand(op, 1, kvHeads, "the key");
  FailureOr<AttentionOperand> value = readOperand(op, 2, kvHeads, "the value");
  if (failed(query) || failed(key) || failed(value) || failed(requireFit(op, *query, *key, *value)))
    return failure();
  std::optional<int64_t> queries = getConstantIntValue(query->extent(Dim::Seq));
  std::optional<int64_t> keys = getConstantIntValue(key->extent(Dim::Seq));
  if (queries && keys && *queries != *keys)
    return op.error() << "query and key have different sequence lengths: found " << *queries << " and " << *keys;
  FailureOr<Gate> decay = readGate(op, 4, *key, /*isPerRow=*/true, "decay");
  FailureOr<Gate> beta = readGate(op, 5, *key, /*isPerRow=*/false, "beta");
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
      return op.error() << "past_state is " << past.getType() << ", expected [batch, KV heads, "
                        << *getConstantIntValue(depth) << ", " << *getConstantIntValue(width) << "]";
    linear.state = castOperand(b, past, element);
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
                                     linear->beta.tensor, /*erase=*/Value(), linear->state, /*cu_seqlens=*/Value(),
                                     /*kv_len=*/Value(), query.dims, key.dims, value.dims, query.dims,
                                     linear->decay.axes, linear->beta.axes, attn::DimsAttr(),
                                     b.getF64FloatAttr(linear->scale), /*l2norm=*/FloatAttr(), /*causal=*/true,
                                     /*normalize=*/false);
  OpFoldResult joined = frontend::multiplyExtents(b, {extents[2], extents[3]});
  results.push_back(frontend::reshape(b, made.getOutput(), {extents[0], extents[1], joined}));
  results.push_back(state ? frontend::castElements(b, made.getFinalState(), stateElement) : Value());
  return success();
}

void onnx::addLinearAttention(frontend::Frontend &frontend) {
  frontend.translators["LinearAttention"] = translateLinearAttention;
}
