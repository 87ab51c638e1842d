//===- AttentionOperands.cpp - Operands of ONNX attention ops -------------===//
#include "AttentionOperands.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using frontend::Extents;

attn::DimsAttr onnx::bhsdDims(MLIRContext *context) {
  return attn::DimsAttr::get(context, {Dim::Batch, Dim::Head, Dim::Seq, Dim::Depth});
}
attn::DimsAttr onnx::bshdDims(MLIRContext *context) {
  return attn::DimsAttr::get(context, {Dim::Batch, Dim::Seq, Dim::Head, Dim::Depth});
}

int RegionCaptures::add(Value value) {
  auto found = llvm::find(values, value);
  if (found != values.end())
    return found - values.begin();
  values.push_back(value);
  return values.size() - 1;
}

void RegionCaptures::addExtent(OpFoldResult extent) {
  if (auto value = dyn_cast<Value>(extent))
    add(value);
}

Value RegionCaptures::extent(OpBuilder &b, Location loc, OpFoldResult extent, ValueRange inside) const {
  if (auto value = dyn_cast<Value>(extent))
    return inside[llvm::find(values, value) - values.begin()];
  return getValueOrCreateConstantIndexOp(b, loc, extent);
}

Value onnx::softcapped(OpBuilder &b, Location loc, Value score, double cap) {
  if (cap <= 0)
    return score;
  Value limit = frontend::makeNumber(b, loc, score.getType(), cap);
  Value ratio = frontend::div(b, loc, score, limit);
  return frontend::mul(b, loc, math::TanhOp::create(b, loc, ratio), limit);
}

FailureOr<AttentionOperand> onnx::splitHeads(FrontendOp &op, Value tensor, int64_t heads, StringRef role) {
  ImplicitLocOpBuilder &b = op.builder();
  auto type = cast<RankedTensorType>(tensor.getType());
  if (!isa<FloatType>(type.getElementType()))
    return op.error() << role << " is " << type << ", expected floating point";
  if (type.getRank() == 4)
    return AttentionOperand{tensor, bhsdDims(b.getContext()), frontend::extentsOf(b, tensor)};
  if (type.getRank() != 3)
    return op.error() << role << " is " << type << ", expected 3 or 4 dimensions";
  int64_t width = type.getDimSize(2);
  if (heads <= 0)
    return op.error() << role << " is " << type << ", expected a positive number of heads";
  if (ShapedType::isDynamic(width) || width % heads != 0)
    return op.error() << role << " is " << type << ", expected a last dimension divisible by " << heads << " heads";
  Extents extents = frontend::extentsOf(b, tensor);
  extents.back() = b.getIndexAttr(width / heads);
  extents.insert(extents.begin() + 2, b.getIndexAttr(heads));
  return AttentionOperand{frontend::reshape(b, tensor, extents), bshdDims(b.getContext()), extents};
}

AttentionOperand onnx::toBHSD(ImplicitLocOpBuilder &b, const AttentionOperand &operand) {
  if (operand.dims == bhsdDims(b.getContext()))
    return operand;
  Value tensor = frontend::transpose(b, operand.tensor, {0, 2, 1, 3});
  return {tensor, bhsdDims(b.getContext()), frontend::extentsOf(b, tensor)};
}

LogicalResult onnx::requireFit(FrontendOp &op, const AttentionOperand &query, const AttentionOperand &key,
                               const AttentionOperand &value) {
  auto requireEqual = [&](const AttentionOperand &x, const AttentionOperand &y, Dim dim,
                          const Twine &what) -> LogicalResult {
    std::optional<int64_t> found = getConstantIntValue(x.extent(dim)), expected = getConstantIntValue(y.extent(dim));
    if (!found || !expected || *found == *expected)
      return success();
    return op.error() << what << ": found " << *found << ", expected " << *expected;
  };
  if (failed(requireEqual(key, query, Dim::Batch, "batches of the key")) ||
      failed(requireEqual(value, query, Dim::Batch, "batches of the value")) ||
      failed(requireEqual(key, query, Dim::Depth, "the head size of the key")) ||
      failed(requireEqual(value, key, Dim::Head, "heads of the value")) ||
      failed(requireEqual(value, key, Dim::Seq, "positions of the value")))
    return failure();
  for (const AttentionOperand *each : {&query, &value})
    if (std::optional<int64_t> depth = getConstantIntValue(each->extent(Dim::Depth)); !depth || *depth == 0)
      return op.error() << "the head size of " << each->tensor.getType() << " must be static and not 0";
  std::optional<int64_t> heads = getConstantIntValue(query.extent(Dim::Head));
  std::optional<int64_t> kvHeads = getConstantIntValue(key.extent(Dim::Head));
  if (heads && kvHeads && (*kvHeads == 0 || *heads % *kvHeads != 0))
    return op.error() << "found " << *heads << " query heads, expected a multiple of the " << *kvHeads << " KV heads";
  if (elementOf(key.tensor) != elementOf(query.tensor))
    return op.error() << "the key is " << key.tensor.getType() << ", the query " << query.tensor.getType();
  return success();
}

attn::AttentionFields onnx::makeFields(ImplicitLocOpBuilder &b, const AttentionOperand &query,
                                       const AttentionOperand &key, const AttentionOperand &value, double scale) {
  Type element = elementOf(query.tensor);
  Extents extents(query.extents);
  extents.back() = value.extent(Dim::Depth);
  attn::AttentionFields fields;
  fields.query = query.tensor, fields.queryDims = fields.outputDims = query.dims;
  fields.key = key.tensor, fields.keyDims = key.dims;
  fields.value = frontend::castElements(b, value.tensor, element), fields.valueDims = value.dims;
  fields.scale = b.getF64FloatAttr(scale);
  fields.output = frontend::typeOf(extents, element);
  return fields;
}

Value onnx::emitScores(ImplicitLocOpBuilder &b, const AttentionOperand &query, const AttentionOperand &key,
                       double scale) {
  Type type = attn::getScoreType(elementOf(query.tensor));
  OpFoldResult group = frontend::divideExtents(b, query.extent(Dim::Head), key.extent(Dim::Head));
  // Split query heads into [kv, group], so that the indexing maps express which KV head each query head attends to.
  unsigned at = *query.dims.position(Dim::Head);
  Extents cut(query.extents);
  cut[at] = key.extent(Dim::Head);
  cut.insert(cut.begin() + at + 1, group);
  Value grouped = frontend::reshape(b, query.tensor, cut);
  AffineExpr batch, head, member, i, j, d;
  bindDims(b.getContext(), batch, head, member, i, j, d);
  auto map = [&](ArrayRef<AffineExpr> dims) { return AffineMap::get(6, 0, dims, b.getContext()); };
  bool queryFirst = at == 1, keyFirst = *key.dims.position(Dim::Head) == 1;
  AffineMap queryMap = queryFirst ? map({batch, head, member, i, d}) : map({batch, i, head, member, d});
  AffineMap keyMap = keyFirst ? map({batch, head, j, d}) : map({batch, j, head, d});
  OpFoldResult queries = query.extent(Dim::Seq), keys = key.extent(Dim::Seq);
  Value product = frontend::contract(
      b, grouped, key.tensor, queryMap, keyMap, map({batch, head, member, i, j}),
      {query.extent(Dim::Batch), key.extent(Dim::Head), group, queries, keys, query.extent(Dim::Depth)}, type);
  Value scores = frontend::reshape(b, product, {query.extent(Dim::Batch), query.extent(Dim::Head), queries, keys});
  return frontend::elementwise(b, scores, type, [&](OpBuilder &nested, Location loc, ValueRange x) {
    return frontend::mul(nested, loc, x[0], frontend::makeNumber(nested, loc, type, scale));
  });
}

void onnx::fillRegion(ImplicitLocOpBuilder &b, Region &region, ArrayRef<Type> types, ValueRange captures,
                      function_ref<Value(OpBuilder &, Location, Block &)> body) {
  Block &block = region.emplaceBlock();
  for (Type type : types)
    block.addArgument(type, b.getLoc());
  for (Value capture : captures)
    block.addArgument(capture.getType(), b.getLoc());
  OpBuilder nested = OpBuilder::atBlockBegin(&block);
  Value result = body(nested, b.getLoc(), block);
  attn::YieldOp::create(nested, b.getLoc(), result);
}

Value onnx::joinHeads(ImplicitLocOpBuilder &b, Value output) {
  Extents extents = frontend::extentsOf(b, output);
  return frontend::reshape(b, output, {extents[0], extents[1], frontend::multiplyExtents(b, {extents[2], extents[3]})});
}

FailureOr<AttentionOperand> onnx::appendToCache(FrontendOp &op, Value past, const AttentionOperand &operand,
                                                StringRef role) {
  ImplicitLocOpBuilder &b = op.builder();
  if (!past)
    return operand;
  AttentionOperand fresh = toBHSD(b, operand);
  auto type = cast<RankedTensorType>(past.getType()), own = cast<RankedTensorType>(fresh.tensor.getType());
  bool fits = type.getRank() == 4 && type.getElementType() == own.getElementType();
  for (unsigned i : {0u, 1u, 3u})
    fits = fits && (type.isDynamicDim(i) || own.isDynamicDim(i) || type.getDimSize(i) == own.getDimSize(i));
  if (!fits)
    return op.error() << "past " << role << " is " << type << ", new " << role << "s are " << own;
  Value joined = frontend::concat(b, {past, fresh.tensor}, 2);
  return AttentionOperand{joined, fresh.dims, frontend::extentsOf(b, joined)};
}

LogicalResult onnx::requireScoreBias(FrontendOp &op, Value given, ArrayRef<OpFoldResult> extents) {
  auto type = cast<RankedTensorType>(given.getType());
  bool fits = type.getRank() == 4 && isa<FloatType>(type.getElementType());
  for (unsigned i = 0; fits && i < 4; ++i) {
    std::optional<int64_t> expected = getConstantIntValue(extents[i]);
    fits = type.isDynamicDim(i) || !expected || type.getDimSize(i) == *expected || (i < 2 && type.getDimSize(i) == 1);
  }
  if (fits)
    return success();
  return op.error() << "attention_bias is " << type << ", expected [1 or batch, 1 or heads, queries, keys]";
}

Value onnx::addScoreBias(OpBuilder &b, Location loc, Value score, Value bias, SmallVector<Value, 4> position) {
  for (unsigned i = 0; i < 2; ++i)
    if (cast<ShapedType>(bias.getType()).getDimSize(i) == 1)
      position[i] = arith::ConstantIndexOp::create(b, loc, 0);
  Value element = tensor::ExtractOp::create(b, loc, bias, position);
  return frontend::add(b, loc, score, frontend::convert(b, loc, element, score.getType()));
}

double onnx::scaleOf(FrontendOp &op, const AttentionOperand &query) {
  double given = op.number("scale", 0);
  return given != 0 ? given : 1 / std::sqrt(double(*getConstantIntValue(query.extent(Dim::Depth))));
}

LogicalResult onnx::refuseInputs(FrontendOp &op, ArrayRef<std::pair<unsigned, StringRef>> inputs) {
  for (auto [i, name] : inputs)
    if (op.operand(i))
      return op.error() << "input " << i << " ('" << name << "') is not supported";
  return success();
}
