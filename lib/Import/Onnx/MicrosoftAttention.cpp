//===- MicrosoftAttention.cpp - Attention of com.microsoft ----------------===//
//
// Attention, with its projection, and MultiHeadAttention, as ONNX Runtime 1.31 computes them on a CPU. Both become one
// attn.attention whose score region adds the bias and what is added for padding.
//
//===----------------------------------------------------------------------===//
#include "MicrosoftScores.h"
#include "saccade/Import/Common/Matmul.h"

using namespace mlir;
using namespace saccade;
using namespace saccade::onnx;
using attn::Dim;
using frontend::Extents;
using frontend::sliceLastDim;

namespace {

/// Query, and key and value behind those of the cache.
struct Operands {
  AttentionOperand query, key, value;
  OpFoldResult past; ///< positions of the cache
};

} // namespace

/// `tensor` + the elements of `bias` from `first` on.
static Value biased(ImplicitLocOpBuilder &b, Value tensor, Value bias, int64_t first) {
  int64_t width = cast<ShapedType>(tensor.getType()).getShape().back();
  Value part = sliceLastDim(b, bias, first, width);
  Type element = elementOf(tensor);
  return frontend::elementwise(b, {tensor, part}, element, [&](OpBuilder &nested, Location loc, ValueRange x) {
    return frontend::add(nested, loc, x[0], x[1]);
  });
}

static Value attend(FrontendOp &op, const Operands &operands, const MicrosoftScores &scores) {
  ImplicitLocOpBuilder &b = op.builder();
  attn::AttentionFields fields =
      makeFields(b, operands.query, operands.key, operands.value, scaleOf(op, operands.query));
  fields.captures = scores.getCaptures();
  attn::AttentionOp made = fields.create(b, b.getLoc());
  scores.fillRegions(op, made);
  return joinHeads(b, made.getOutput());
}

static MicrosoftScores scoresOf(const Operands &operands) {
  OpFoldResult extents[] = {operands.query.extent(Dim::Batch), operands.query.extent(Dim::Head),
                            operands.query.extent(Dim::Seq), operands.key.extent(Dim::Seq)};
  return MicrosoftScores(extents, operands.past);
}

//===- MultiHeadAttention -------------------------------------------------===//

/// Reads query, key and value of MultiHeadAttention with their bias. A key or value [b,h,s,d] is that of another
/// sequence and has no bias.
static FailureOr<Operands> readMultiHead(FrontendOp &op, int64_t heads) {
  ImplicitLocOpBuilder &b = op.builder();
  Value query = op.operand(0), key = op.operand(1), value = op.operand(2), bias = op.operand(3);
  if (rankOf(query) != 3)
    return op.error() << "the query is " << query.getType() << ", expected [batch, position, heads * size]";
  if (!key || !value)
    return op.error() << "key or value is missing: packed inputs are not supported";
  if (rankOf(key) != rankOf(value))
    return op.error() << "the key is " << key.getType() << " and the value " << value.getType()
                      << ", expected equal ranks";
  bool isOther = rankOf(key) == 4;
  if (bias) {
    auto widthOf = [](Value x) { return cast<ShapedType>(x.getType()).getShape().back(); };
    auto type = cast<RankedTensorType>(bias.getType());
    int64_t width = widthOf(query);
    int64_t last = isOther ? cast<ShapedType>(value.getType()).getDimSize(1) * widthOf(value) : widthOf(value);
    bool isKnown = !ShapedType::isDynamic(width) && !ShapedType::isDynamic(widthOf(value)) &&
                   (isOther ? !cast<ShapedType>(value.getType()).isDynamicDim(1) : widthOf(key) == width);
    if (!isKnown || type.getRank() != 1 || type.getDimSize(0) != 2 * width + last ||
        type.getElementType() != elementOf(query))
      return op.error() << "the bias is " << type << ", expected one element for each of query, key and value";
    query = biased(b, query, bias, 0);
    if (!isOther) {
      key = biased(b, key, bias, width);
      value = biased(b, value, bias, 2 * width);
    }
  }
  FailureOr<AttentionOperand> q = splitHeads(op, query, heads, "the query"), k = splitHeads(op, key, heads, "the key"),
                              v = splitHeads(op, value, heads, "the value");
  if (failed(q) || failed(k) || failed(v))
    return failure();
  return Operands{*q, *k, *v, b.getIndexAttr(0)};
}

/// Puts the keys and values of the cache before those of `operands`.
static LogicalResult addPast(FrontendOp &op, Operands &operands, Value pastKey, Value pastValue) {
  if (bool(pastKey) != bool(pastValue))
    return op.error() << "found only one of past_key and past_value, expected both or none";
  if (pastKey && rankOf(pastKey) == 4)
    operands.past = frontend::extentsOf(op.builder(), pastKey)[2];
  FailureOr<AttentionOperand> key = appendToCache(op, pastKey, operands.key, "key");
  FailureOr<AttentionOperand> value = failed(key) ? key : appendToCache(op, pastValue, operands.value, "value");
  if (failed(value))
    return failure();
  operands.key = *key, operands.value = *value;
  return requireFit(op, operands.query, operands.key, operands.value);
}

static LogicalResult translateMultiHeadAttention(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 1, 10)) ||
      failed(refuseInputs(op, {{8, "past_sequence_length"}, {9, "cache_indirection"}})))
    return failure();
  ImplicitLocOpBuilder &b = op.builder();
  FailureOr<Operands> operands = readMultiHead(op, op.integer("num_heads", 0));
  if (failed(operands) || failed(addPast(op, *operands, op.operand(6), op.operand(7))))
    return failure();
  MicrosoftScores scores = scoresOf(*operands);
  scores.readCausal(op, /*seesAll=*/true);
  if (failed(scores.readPadding(op, op.operand(4))) || failed(scores.readBias(op, op.operand(5))))
    return failure();
  results.push_back(attend(op, *operands, scores));
  results.push_back(op.isUsed(1) ? toBHSD(b, operands->key).tensor : Value());
  results.push_back(op.isUsed(2) ? toBHSD(b, operands->value).tensor : Value());
  double scale = scaleOf(op, operands->query);
  results.push_back(op.isUsed(3) ? scores.emit(op, operands->query, operands->key, scale) : Value());
  return success();
}

//===- Attention ----------------------------------------------------------===//

/// Query, key and value of Attention: parts of one product with the weights.
static FailureOr<Operands> project(FrontendOp &op, int64_t heads) {
  ImplicitLocOpBuilder &b = op.builder();
  Value input = op.operand(0), weights = op.operand(1), bias = op.operand(2);
  if (rankOf(input) != 3 || rankOf(weights) != 2 || !isa<FloatType>(elementOf(input)))
    return op.error() << "the input is " << input.getType() << " and the weights " << weights.getType()
                      << ", expected [batch, position, size] and [size, columns] of floating point";
  int64_t width = cast<ShapedType>(weights.getType()).getDimSize(1);
  SmallVector<int64_t> sizes = op.integers("qkv_hidden_sizes").value_or(SmallVector<int64_t>());
  if (sizes.empty() && !ShapedType::isDynamic(width) && width % 3 == 0)
    sizes.assign(3, width / 3);
  bool fits = sizes.size() == 3 && llvm::all_of(sizes, [](int64_t size) { return size > 0; }) && sizes[0] == sizes[1];
  if (!fits || sizes[0] + sizes[1] + sizes[2] != width)
    return op.error() << "the weights are " << weights.getType()
                      << ", expected columns for queries, as many for keys, and for values";
  auto type = bias ? cast<RankedTensorType>(bias.getType()) : RankedTensorType();
  if (bias && (type.getRank() != 1 || type.getDimSize(0) != width || type.getElementType() != elementOf(input)))
    return op.error() << "the bias is " << type << ", expected " << width << " elements of " << elementOf(input);
  FailureOr<Value> product = frontend::importMatmul(op, input, weights);
  if (failed(product))
    return failure();
  Value all = bias ? biased(b, *product, bias, 0) : *product;
  SmallVector<AttentionOperand> parts;
  int64_t first = 0;
  for (auto [size, role] : llvm::zip(sizes, ArrayRef<StringRef>{"the query", "the key", "the value"})) {
    FailureOr<AttentionOperand> part = splitHeads(op, sliceLastDim(b, all, first, size), heads, role);
    if (failed(part))
      return failure();
    parts.push_back(*part);
    first += size;
  }
  return Operands{parts[0], parts[1], parts[2], b.getIndexAttr(0)};
}

/// The cache [2,b,h,s,d] with the new keys and values behind `past`, which may be null. With a past, `operands` become
/// parts of it, so that rows are copied once.
static FailureOr<Value> joinPresent(FrontendOp &op, Operands &operands, Value past) {
  ImplicitLocOpBuilder &b = op.builder();
  Value key = frontend::unsqueeze(b, toBHSD(b, operands.key).tensor, {0});
  Value value = frontend::unsqueeze(b, toBHSD(b, operands.value).tensor, {0});
  if (key.getType() != value.getType())
    return op.error() << "present has keys " << key.getType() << " and values " << value.getType()
                      << ", expected equal sizes";
  Value fresh = frontend::concat(b, {key, value}, 0);
  if (!past)
    return fresh;
  auto type = cast<RankedTensorType>(past.getType()), own = cast<RankedTensorType>(fresh.getType());
  SmallVector<int64_t> expected(own.getShape());
  expected[3] = ShapedType::kDynamic;
  if (type.getElementType() != own.getElementType() || failed(verifyCompatibleShape(type.getShape(), expected)))
    return op.error() << "the past is " << type << ", new keys and values are " << own;
  Value present = frontend::concat(b, {past, fresh}, 3);
  operands.past = frontend::extentsOf(b, past)[3];
  for (auto [part, operand] : llvm::enumerate(ArrayRef<AttentionOperand *>{&operands.key, &operands.value})) {
    Value tensor = frontend::selectIndex(b, present, 0, part);
    *operand = AttentionOperand{tensor, toBHSD(b, *operand).dims, frontend::extentsOf(b, tensor)};
  }
  return present;
}

static LogicalResult translateAttention(FrontendOp &op, Values &results) {
  if (failed(requireOperands(op, 2, 7)) || failed(refuseInputs(op, {{6, "past_sequence_length"}})))
    return failure();
  for (StringRef name : {"do_rotary", "past_present_share_buffer"})
    if (op.integer(name, 0) != 0)
      return op.error() << "'" << name << "' is 1, expected 0";
  (void)op.integer("rotary_embedding_dim", 0); // of do_rotary
  Value past = op.operand(4);
  if (past && (rankOf(past) != 5 || cast<ShapedType>(past.getType()).getDimSize(0) != 2))
    return op.error() << "the past is " << past.getType() << ", expected [2, batch, heads, position, size]";
  if (past && op.operand(5))
    return op.error() << "found a past and attention_bias, expected one of them";
  FailureOr<Operands> operands = project(op, op.integer("num_heads", 0));
  if (failed(operands))
    return failure();
  Value present;
  if (past || op.isUsed(1)) {
    FailureOr<Value> joined = joinPresent(op, *operands, past);
    if (failed(joined))
      return failure();
    present = *joined;
  }
  if (failed(requireFit(op, operands->query, operands->key, operands->value)))
    return failure();
  MicrosoftScores scores = scoresOf(*operands);
  scores.readCausal(op, /*seesAll=*/false);
  if (failed(scores.readPadding(op, op.operand(3))) || failed(scores.readBias(op, op.operand(5))))
    return failure();
  results.push_back(attend(op, *operands, scores));
  results.push_back(op.isUsed(1) ? present : Value());
  return success();
}

void onnx::addMicrosoftAttention(frontend::Frontend &frontend) {
  frontend.translators["microsoft.Attention"] = translateAttention;
  frontend.translators["microsoft.MultiHeadAttention"] = translateMultiHeadAttention;
}
