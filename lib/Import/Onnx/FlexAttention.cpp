//===- FlexAttention.cpp - ONNX FlexAttention (preview opset 1) -----------===//
//
// The subgraphs transform the whole tensor of scores or softmax weights. If each result element depends only on its own
// input element and position, they become the score and weight regions of one attn.attention. Otherwise the tensors are
// materialized.
//
//===----------------------------------------------------------------------===//
#include "AttentionOperands.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "saccade/Import/Common/ElementReader.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using frontend::Extents;

namespace {

struct Flex {
  AttentionOperand query, key, value;
  double scale;
  Type modified; // the element type of the subgraph inputs
  Region *score = nullptr, *weight = nullptr;

  Extents pairs() const {
    return {query.extent(Dim::Batch), query.extent(Dim::Head), query.extent(Dim::Seq), key.extent(Dim::Seq)};
  }
};

} // namespace

static FailureOr<Flex> readFlex(FrontendOp &op) {
  if (failed(requireOperands(op, 3, 3)))
    return failure();
  for (unsigned i = 0; i < 3; ++i)
    if (rankOf(op.operand(i)) != 4)
      return op.error() << "input " << i << " is " << op.operand(i).getType() << ", expected 4 dimensions";
  FailureOr<AttentionOperand> query = splitHeads(op, op.operand(0), 0, "the query");
  FailureOr<AttentionOperand> key = splitHeads(op, op.operand(1), 0, "the key");
  FailureOr<AttentionOperand> value = splitHeads(op, op.operand(2), 0, "the value");
  if (failed(query) || failed(key) || failed(value) || failed(requireFit(op, *query, *key, *value)))
    return failure();
  Flex flex{*query, *key, *value, 0, attn::getScoreType(elementOf(query->tensor))};
  flex.scale = op.number("scale", 1 / std::sqrt(*getConstantIntValue(query->extent(Dim::Depth))));
  if (int64_t precision = op.integer("softmax_precision", 0))
    flex.modified = elementType(op.builder().getContext(), precision);
  if (!isa_and_nonnull<FloatType>(flex.modified))
    return op.error() << "softmax_precision is not a floating-point type";
  auto names = op.getOperation()->getAttrOfType<ArrayAttr>("regions");
  for (auto [i, region] : llvm::enumerate(op.getOperation()->getRegions())) {
    auto name = names && i < names.size() ? dyn_cast<StringAttr>(names[i]) : StringAttr();
    if (name && name.getValue() == "score_mod")
      flex.score = &region;
    else if (name && name.getValue() == "prob_mod")
      flex.weight = &region;
    else
      return op.error() << "unknown subgraph " << i << ", expected score_mod or prob_mod";
  }
  return flex;
}

/// Applies a subgraph to `tensor`; the result must have the same shape and element type.
static FailureOr<Value> apply(FrontendOp &op, Region *region, Value tensor) {
  if (!region)
    return tensor;
  SmallVector<Value> results;
  if (failed(op.inlineRegion(*region, tensor, results)))
    return failure();
  auto type = cast<RankedTensorType>(tensor.getType());
  auto found = results.size() == 1 ? dyn_cast<RankedTensorType>(results[0].getType()) : RankedTensorType();
  if (!found || found.getElementType() != type.getElementType() ||
      failed(verifyCompatibleShape(found.getShape(), type.getShape()))) {
    InFlightDiagnostic error = op.error() << "a subgraph maps " << type << " to";
    if (results.size() == 1)
      return error << " " << results[0].getType();
    return error << " " << results.size() << " results";
  }
  return results[0];
}

/// Fills `block` with code that computes an element of `modified` from the same element of `whole`; returns false if it
/// depends on other elements.
static bool fillBlock(ImplicitLocOpBuilder &b, Block &block, frontend::Captures &captures, Value whole, Value modified,
                      Type type) {
  Type index = b.getIndexType();
  for (Type each : {type, index, index, index, index})
    block.addArgument(each, b.getLoc());
  ValueRange position = block.getArguments().slice(1, 4);
  // The block has no region yet.
  OpBuilder nested(b.getContext());
  nested.setInsertionPointToEnd(&block);
  Value element = frontend::convert(nested, b.getLoc(), block.getArgument(0), elementOf(whole));
  SmallVector<Value> at(position);
  Value result = frontend::ElementReader(block, 5, captures, whole, at, element).read(modified, at);
  if (!result)
    return false;
  nested.setInsertionPointToEnd(&block);
  attn::YieldOp::create(nested, b.getLoc(), frontend::convert(nested, b.getLoc(), result, type));
  return true;
}

/// Builds one attn.attention; null if a subgraph reads elements other than its own.
static FailureOr<Value> buildFused(FrontendOp &op, const Flex &flex) {
  ImplicitLocOpBuilder &b = op.builder();
  Type type = attn::getScoreType(elementOf(flex.query.tensor));
  frontend::Captures captures;
  std::unique_ptr<Block> blocks[2];
  Region *regions[] = {flex.score, flex.weight};
  for (auto [block, region] : llvm::zip(blocks, regions)) {
    if (!region)
      continue;
    // A placeholder for the scores, dead after the region is built.
    Value whole = tensor::EmptyOp::create(b, flex.pairs(), flex.modified);
    FailureOr<Value> modified = apply(op, region, whole);
    if (failed(modified))
      return failure();
    block = std::make_unique<Block>();
    if (!fillBlock(b, *block, captures, whole, *modified, type)) {
      // A detached block must not have uses when it is destroyed.
      for (auto &each : blocks)
        if (each)
          each->dropAllUses();
      return Value();
    }
  }
  attn::AttentionFields fields = makeFields(b, flex.query, flex.key, flex.value, flex.scale);
  fields.captures = captures.values;
  attn::AttentionOp made = fields.create(b, b.getLoc());
  Region *targets[] = {&made.getScore(), &made.getWeight()};
  for (auto [block, target] : llvm::zip(blocks, targets))
    if (block) {
      captures.complete(*block, 5);
      target->push_back(block.release());
    }
  return made.getOutput();
}

/// Materializes scores and weights and computes P·V.
static FailureOr<Value> buildWhole(FrontendOp &op, const Flex &flex) {
  ImplicitLocOpBuilder &b = op.builder();
  Value scores = frontend::castElements(b, emitScores(b, flex.query, flex.key, flex.scale), flex.modified);
  FailureOr<Value> modified = apply(op, flex.score, scores);
  if (failed(modified))
    return failure();
  FailureOr<Value> weights = apply(op, flex.weight, frontend::softmax(b, *modified, 3));
  if (failed(weights))
    return failure();
  // Query heads [kv, group] share the values of a KV head.
  Extents extents = flex.pairs();
  OpFoldResult heads = flex.key.extent(Dim::Head), group = frontend::divideExtents(b, extents[1], heads);
  Value grouped = frontend::reshape(b, *weights, {extents[0], heads, group, extents[2], extents[3]});
  AffineExpr batch, head, member, i, d, j;
  bindDims(b.getContext(), batch, head, member, i, d, j);
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(6, 0, dims, b.getContext()); };
  OpFoldResult depth = flex.value.extent(Dim::Depth);
  Value sum =
      frontend::contract(b, grouped, flex.value.tensor, map({batch, head, member, i, j}), map({batch, head, j, d}),
                         map({batch, head, member, i, d}), {extents[0], heads, group, extents[2], depth, extents[3]},
                         attn::getScoreType(elementOf(flex.query.tensor)));
  Value joined = frontend::reshape(b, sum, {extents[0], extents[1], extents[2], depth});
  return frontend::castElements(b, joined, elementOf(flex.query.tensor));
}

static LogicalResult translateFlexAttention(FrontendOp &op, Values &results) {
  FailureOr<Flex> flex = readFlex(op);
  if (failed(flex))
    return failure();
  FailureOr<Value> output = buildFused(op, *flex);
  if (succeeded(output) && !*output)
    output = buildWhole(op, *flex);
  if (failed(output))
    return failure();
  results.push_back(*output);
  return success();
}

void onnx::addFlexAttention(frontend::Frontend &frontend) {
  frontend.translators["preview.FlexAttention"] = translateFlexAttention;
}
